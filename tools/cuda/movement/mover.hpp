// SPDX-License-Identifier: LGPL-2.1-or-later
// Moving units between VRAM and system RAM, ahead of their use.
#pragma once

#include "account/ledger.hpp"
#include "base/driver.hpp"
#include "base/thread.hpp"
#include "base/trace.hpp"
#include "base/work.hpp"
#include "movement/arrangement.hpp"
#include "movement/block.hpp"
#include "movement/blocks.hpp"
#include "movement/check.hpp"
#include "movement/digests.hpp"
#include "movement/events.hpp"
#include "movement/flights.hpp"
#include "movement/frames.hpp"
#include "movement/gate.hpp"
#include "movement/lanes.hpp"
#include "movement/pinned.hpp"
#include "movement/planner.hpp"
#include "movement/rooms.hpp"
#include "policy/headroom.hpp"
#include "policy/pace.hpp"
#include "policy/patience.hpp"
#include "policy/reach.hpp"
#include "policy/recurrence.hpp"
#include "policy/schedule.hpp"
#include "policy/step_times.hpp"
#include "store/store.hpp"

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// One device's movement. It owns the units of the blocks it was given until
/// it is asked for them back.
///
/// A unit is unmapped for a moment when it moves, and a touch at that moment
/// would end the program's context. So it moves only while everything that the
/// device has in hand is vouched for, and none of it was given an address in
/// the unit's block; new work that was waits until the unit is there. Work
/// that nobody vouches for stops all movement until it is done. Everything
/// else is always mapped: a wrong guess costs time. Mapping system RAM is most
/// of what moving costs, so there is another way, for those who trust their
/// kernels: what leaves is mapped nowhere until it comes back, or until work is
/// given an address in its block, or nobody vouches for work.
class mover
{
public:
    /// All that is named here outlives the object.
    struct options
    {
        const driver &calls;
        ledger &limits;
        /// Called when movement ends for good, with the reason.
        void (*tell)(const char *why);
        int device = 0;
        bool always = false; ///< memory moves even where that is slower
        bool unmaps = false; ///< what has left VRAM is not mapped until it is
                             ///< wanted
        trace *record = nullptr; ///< or null
        /// Where kernels may find addresses that nobody copied to the device;
        /// or null.
        const pinned *host = nullptr;
        /// What kernels have to keep to is checked: nothing moves, and nothing
        /// is mapped but what work in flight was given. Null: not so.
        check *checked = nullptr;
    };

    explicit mover(const options &asked);
    mover(const mover &) = delete;
    mover &operator=(const mover &) = delete;
    ~mover();

    /// Takes a block over.
    /// @param units  of which those from @p first_host on are in system RAM
    /// @param tokens  the charges of those, one for each, which are taken over,
    ///   too; or none: they are the caller's, and the block's as a whole
    void add(CUdeviceptr base, std::uint64_t bytes, CUcontext context,
             const std::vector<unit> &units, std::size_t first_host,
             const std::vector<std::uint64_t> &tokens);

    /// A block's remains: what is mapped at its addresses.
    struct remains
    {
        std::vector<unit> units;
        std::vector<bool> host;
        std::vector<bool> away; ///< in system RAM, and mapped nowhere
        std::uint64_t physical_bytes = 0;
        struct charge
        {
            std::uint64_t bytes;
            std::uint64_t token;
        };
        std::vector<charge> charges; ///< virtual ones
    };

    /// Gives a block back. Waits until none of it is on its way.
    /// @return false where there is no such block
    bool remove(CUdeviceptr base, remains &left);

    /// The block that begins there is freed, in the order of the program's work
    /// so far, and kept to be allocated again: what it holds need not be copied
    /// any more.
    void vacate(CUdeviceptr base);
    /// It is allocated again.
    void occupy(CUdeviceptr base);

    /// The block around an address stays as it is from now on.
    void fix(CUdeviceptr address);

    /// Memory of one kind.
    struct stretch
    {
        bool in_ram;
        std::uint64_t bytes; ///< UINT64_MAX: to the end of the block
    };

    /// From an address on, in a block that stays as it is.
    /// @return nothing where there is no such block
    std::optional<stretch> stretch_at(CUdeviceptr address);

    /// As fix(), for blocks that begin at one of these addresses, or of which
    /// work was given something that does: other numbers may look like
    /// addresses.
    void fix_those_in(const std::vector<CUdeviceptr> &words);

    /// Whether any of these is such an address.
    bool names_any(const std::vector<CUdeviceptr> &words);

    /// The same for all of them, for good.
    /// @param why  for the user
    void fix_all(const char *why);
    static constexpr char unreadable_why[] =
        "it may not be searched for addresses (process_vm_readv)";

    /// Asks the driver about an address whose block is mapped meanwhile: of
    /// nothing it knows nothing.
    template <typename Call>
    CUresult while_mapped(CUdeviceptr address, Call ask)
    {
        const block_ref held = hold(address);
        const CUresult result = ask();
        if (held)
            let_go(*held);
        return result;
    }

    /// Gives up VRAM and system RAM that are held for movement alone.
    void shed();

    /// Charges VRAM for what cannot be anywhere else, and sends units away
    /// until there is as much. Waits for work in flight, if need be.
    /// @return false where there is not so much to be had
    bool make_way(std::uint64_t bytes);

    /// Ends movement in a context that is about to go; waits for it.
    /// @param context  null: for good
    void stop(CUcontext context);

    /// The process ends: as stop(nullptr), but a thread that goes on waiting
    /// for what the device had in hand before movement is left to that: it may
    /// never end.
    void leave();

    /// The context did not go: movement in it goes on, unless somebody else is
    /// about to end it.
    void resume(CUcontext context);

    /// It went.
    void gone(CUcontext context);

    /// A stream is about to be captured, or to wait for something else than
    /// work that it has been given: what is on it ends before that.
    void stream_waits();

    /// A stream is about to go: nothing of what is on it needs it any more.
    void stream_goes(CUstream stream) { flights_.leave(stream); }

    /// Whether work has to be announced.
    bool active() const { return active_.load(); }

    /// Runs work: announced before, followed after.
    /// @param stream  with the default streams named
    /// @param collect  says what the work is, where that is asked for
    template <typename Collect, typename Call>
    CUresult run(CUstream stream, Collect collect, Call real)
    {
        passing_.fetch_add(1);
        if (!active()) {
            const CUresult result = real();
            passing_.fetch_sub(1);
            return result;
        }
        passing_.fetch_sub(1);
        work announced;
        collect(announced);
        flight begun;
        const bool followed = begin(announced, stream, begun);
        const CUresult result = real();
        if (followed)
            end(std::move(begun), stream, result == CUDA_SUCCESS);
        else
            passing_.fetch_sub(1);
        return result;
    }

private:
    // A launch waits for memory that is on its way. If nothing at all arrives
    // or ends for so long, then what it waits for may be waiting for it.
    static constexpr std::uint64_t patience_ns = 200000000;

    enum class stage
    {
        fetch,
        room, ///< in system RAM, being made
        roomed,
        digest,
        write_back,
        ready, ///< may leave as soon as its frame is wanted
        remap, ///< to where it shall be, under way
        remapped,
    };
    struct motion
    {
        block_ref of;
        std::size_t index = 0;
        stage at = stage::fetch;
        bool evicts = false;
        bool copies = false;     // what it fetches
        bool done = false;       // what another thread was to do
        bool called_off = false; // before it did
        frame into;
        CUevent event = nullptr;
        std::size_t digest = 0; // which of those under way
        bool wrote = false;
        std::uint64_t started_ns = 0;
        std::uint64_t next_use = 0;

        slot &unit() const { return of->slots[index]; }
    };

    using motion_ref = std::list<motion>::iterator;

    // What is under way, arrived being in VRAM and not mapped yet.
    struct traffic
    {
        std::size_t fetching = 0;
        std::size_t evicting = 0;
        std::uint64_t coming_bytes = 0;
        std::uint64_t arrived_bytes = 0;
        std::uint64_t leaving_bytes = 0;
    };

    // Where what leaves VRAM finds room in system RAM.
    struct leeway
    {
        std::uint64_t more_below = 0; // smaller than this, more may be made
        bool maps = true;             // what has no address yet
        // The sizes of those that their units do not need, each once; known
        // where not all may be made.
        std::vector<std::uint64_t> spare;

        bool spares(std::uint64_t size) const;
        bool may_leave(const slot &one) const;
    };

    // What might move.
    struct survey
    {
        leeway ram;
        // The unit in system RAM that is needed first, the same of those for
        // which there is room without remaking frames ...
        candidate wanted{{}, 0, schedule::never};
        candidate fitting{{}, 0, schedule::never};
        // ... and, of those that hold nothing, the one that is needed first ...
        candidate hollow{{}, 0, schedule::never};
        // ... and the one in VRAM that is needed last: of those that are meant
        // to leave, of those that have room in system RAM, and of those that
        // have not.
        candidate passer;
        candidate victim;
        candidate newcomer;
        std::uint64_t used_bytes = 0; // by the schedule
        std::uint64_t vram_bytes = 0;
        std::uint64_t ram_bytes = 0;
        std::uint64_t idle_room_bytes = 0;
        // VRAM that waits for who allocates it, sooner than that one.
        std::uint64_t made_bytes = 0;
    };

    // A unit in VRAM and one in system RAM that change places.
    struct exchange
    {
        enum
        {
            none,
            leaving, ///< the one from VRAM
            coming,  ///< the other one
        } at = none;
        candidate out;
        candidate in;
        std::uint64_t begun_ns = 0;
    };

    bool let_pass();
    /// @return false where nobody follows it: it is passing then
    bool begin(work &announced, CUstream stream, flight &begun);
    void end(flight &&begun, CUstream stream, bool running);
    flights &in_flight();
    void ended(flight &which);
    std::vector<touched> follow(work &announced, std::uint64_t &what);
    bool note(std::uint64_t what, const std::vector<touched> &all);
    bool recurs(const std::vector<touched> &all, std::uint64_t lag);
    void count_use(const std::vector<touched> &all, bool foreseen);
    void report(std::unique_lock<std::mutex> &lock);
    bool hold_back(std::unique_lock<std::mutex> &lock, CUstream stream);
    void await(std::unique_lock<std::mutex> &lock,
               const std::vector<touched> &work);
    void await_end();
    void device_failed(const char *why);
    void hide_the_rest();
    block_ref block_of(CUdeviceptr address);

    void start(CUcontext context);
    void loop();
    bool prepare();
    void keep_pace(std::uint64_t lag, bool recurs);
    bool moves_ahead() const;
    bool is_astray();
    bool retire(std::unique_lock<std::mutex> &lock);
    void learn_reach(const flights::landing &from);
    bool advance(std::unique_lock<std::mutex> &lock);
    bool take_digest(std::unique_lock<std::mutex> &lock, motion &which);
    void compare(std::unique_lock<std::mutex> &lock, motion_ref which);
    void written(motion &which);
    void call_off(motion_ref which);
    void finish(motion_ref which);
    condition &jobs(stage of);
    void hand_over(motion &which, stage to);
    void serve(stage mine);
    traffic look_at_traffic() const;
    bool any_at(stage which) const;
    std::optional<survey> look_around(std::unique_lock<std::mutex> &lock,
                                      std::uint64_t free_bytes);
    bool is_passing(const slot &one, std::uint64_t next_use) const;
    template <typename Fits>
    candidate needed_last(Fits fits) const;
    bool may_fit(std::uint64_t bytes, std::uint64_t free_bytes) const;
    bool decide(std::unique_lock<std::mutex> &lock);
    bool change_places(std::unique_lock<std::mutex> &lock);
    void end_exchange();
    bool begin_exchange(std::unique_lock<std::mutex> &lock);
    void await_exchange(std::unique_lock<std::mutex> &lock,
                        const std::vector<touched> &all);
    bool give_way();
    bool start_fetch(std::unique_lock<std::mutex> &lock,
                     const candidate &which);
    bool start_evict(const candidate &which);
    bool is_room_spare(const block &of, const slot &one) const;
    slot *spare_room(std::uint64_t bytes) const;
    leeway look_for_rooms(std::uint64_t more_below) const;
    std::uint64_t idle_room_bytes() const;
    block_ref hold(CUdeviceptr address);
    void let_go(block &held);
    bool may_be_away(const motion &which) const;
    bool bring_home(block &around, slot &of);
    void bring_home(block &of);
    void bring_all_home();
    void map_all(std::unique_lock<std::mutex> &lock);
    bool bring_one_home();
    bool map(slot &of, CUmemGenericAllocationHandle to,
             CUmemGenericAllocationHandle from);
    motion_ref new_motion(const candidate &which, stage at);
    void end_motion(motion_ref which, place where, bool progress = true);
    bool wants_frame_of(const motion &which) const;
    void progressed();
    void hold_still(block &of);
    bool must_stay(const block &of) const;
    bool may_move(const motion &which) const;
    std::uint64_t next_use_of(block &of, std::size_t index) const;
    bool is_first_of_block(block &of, std::size_t index) const;
    std::uint64_t ahead_bytes(std::uint64_t next_use) const;
    std::unique_lock<std::mutex> enter();
    void enter(std::unique_lock<std::mutex> &lock);
    void let_in(std::unique_lock<std::mutex> &lock);
    void give_up(const char *why);

    const driver &calls_;
    ledger &limits_;
    const int device_;
    const bool unmaps_;
    trace *const trace_;
    void (*const tell_)(const char *why);
    check *const check_;

    std::mutex ending_; // one stop() at a time
    std::atomic<bool> active_{false};
    std::atomic<unsigned> passing_{0}; // work that nobody follows

    std::atomic<unsigned> entering_{0}; // who go before the mover

    std::mutex lock_; // guards all below
    condition changed_;
    condition to_map_;  // there is something to map ...
    condition to_make_; // ... or to make room for
    blocks blocks_;
    gate gate_; // what may move, of all that follows
    // What decisions look through, of what may be very many blocks: those whose
    // units come and go, and small ones that a launch waits for.
    std::vector<block_ref> large_;
    std::vector<block_ref> awaited_;
    std::vector<touch> noted_; // of one piece of work
    // Their memory is used again, by work that begins on another processor
    // than work ends on.
    std::vector<std::vector<touched>> spare_lists_;
    schedule schedule_;
    recurrence recurrence_;
    reach reach_;
    pace pace_;
    headroom headroom_;
    planner planner_;
    arrangement arrangement_;
    flights flights_; // see in_flight()
    step_times times_;
    std::list<motion> motions_;
    frames frames_;
    rooms rooms_;
    events events_;
    digests digests_;
    std::size_t vacant_ = 0; // blocks
    unsigned waiters_ = 0;
    std::uint64_t progress_ = 0;          // what has arrived or ended
    std::uint64_t version_ = 0;           // of all that decisions rest on
    std::uint64_t decided_ = UINT64_MAX;  // the state with nothing to do
    std::uint64_t hopeless_ = UINT64_MAX; // the progress at which to give up
    patience for_memory_;                 // launches wait for it
    patience for_device_;                 // and, before, for less work in hand
    std::uint64_t checked_ = 0;           // work that somebody waited for
    const char *running_ = nullptr;       // the last of it, if it is a kernel
    std::uint64_t look_again_ns_ = 0;
    std::uint64_t led_ns_ = 0; // when the past showed the way, lately
    exchange exchange_;
    std::uint64_t exchange_after_ns_ = 0; // the next one
    std::uint64_t uses_ = 0;              // of anything
    std::uint64_t host_bytes_ = 0;        // of blocks, in system RAM
    std::uint64_t wanted_bytes_ = 0;      // by make_way()
    std::uint64_t given_up_ = 0;          // units and frames that have left
    counters unreported_;
    std::uint64_t reported_ns_ = 0;
    std::uint64_t share_bytes_ = 0;    // of VRAM
    std::uint64_t idle_since_ns_ = 0;  // 0: somebody has begun since
    std::atomic<bool> resting_{false}; // the mover sleeps until it is woken
    bool preparing_ = false;           // it waits for what nobody followed
    bool settled_ = false;             // all that is in flight is followed
    bool stopping_ = false;
    unsigned ending_it_ = 0; // who are about to end the context
    bool served_ = false;    // nothing is left to be mapped
    bool gave_up_ = false;

    thread thread_;
    CUcontext context_ = nullptr;
    lanes lanes_;
};

} // namespace emuv::cuda

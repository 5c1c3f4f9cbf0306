// SPDX-License-Identifier: LGPL-2.1-or-later
// Moving units between VRAM and system RAM, ahead of their use.
//
// Locks:
//
//  1. mover::lock_ guards blocks and their units, the schedule and all that
//     decides, motions, frames, rooms, events, counters, figures.
//  2. ending_ comes before it: one stop() at a time, also while the mover's
//     thread is joined.
//  3. Under it may be taken: a ledger's lock, flights::departing_, and those of
//     trace, check and pinned. None calls a mover.
//  4. flights::departing_ lets a launch hand over its work without lock_. lock_
//     is never taken under it.
//  5. The program's call of the driver runs without any lock of ours. The
//     kernel's parameters are read before lock_ is taken.
//  6. The lock is let go for calls of the driver that take long, or that take
//     the lock of the driver's that launches take. These ask about events,
//     start copies and digests, make frames and rooms, and remap. So it is for
//     planning, arranging and reporting.
//  7. These calls of the driver are made under it:
//     - mapping a unit again that is wanted, or hiding one (bring_home,
//       hide_the_rest);
//     - giving up frames and rooms (shed, give_way, remove);
//     - as movement ends, the last report and the end of events; in a check,
//       cuCtxSynchronize once the device has failed.
//     While untrusted work waits at a barrier, none of them may wait for the
//     device. So none makes, ends or records an event, copies or launches. The
//     driver holds these up while a call of the program's waits for the device.
//  8. After the lock was let go, nothing that was seen before counts: a motion
//     is asked again (may_move), the table by its version.
//  9. emuv-mapper, and the mover's thread and emuv-filer in hide, map and unmap
//     units without the lock. They mark the unit unmapped under the lock
//     before, and clear the mark under it. Work that needs the block waits for
//     that.
// 10. Only emuv-maker makes slabs for coded copies. Only emuv-maker makes
//     rooms, and gives them second addresses; for units
//     that go to the file or come from there, emuv-filer does. Only the mover's
//     thread uses lanes and starts digests.
// 11. The program's threads go first: the mover lets them in after each phase,
//     and after 64 units of a survey.
// 12. A condition is waited for with the lock, and whoever changes what it is
//     about notifies all. The mover's thread has its own.
#pragma once

#include "account/budget.hpp"
#include "account/ledger.hpp"
#include "base/driver.hpp"
#include "base/thread.hpp"
#include "base/trace.hpp"
#include "base/work.hpp"
#include "movement/arrangement.hpp"
#include "movement/barriers.hpp"
#include "movement/block.hpp"
#include "movement/blocks.hpp"
#include "movement/check.hpp"
#include "movement/digests.hpp"
#include "movement/events.hpp"
#include "movement/figures.hpp"
#include "movement/flights.hpp"
#include "movement/frames.hpp"
#include "movement/gate.hpp"
#include "movement/lanes.hpp"
#include "movement/packed.hpp"
#include "movement/pinned.hpp"
#include "movement/planner.hpp"
#include "movement/rooms.hpp"
#include "policy/advice.hpp"
#include "policy/choice.hpp"
#include "policy/headroom.hpp"
#include "policy/pace.hpp"
#include "policy/patience.hpp"
#include "policy/reach.hpp"
#include "policy/recurrence.hpp"
#include "policy/reuse.hpp"
#include "policy/schedule.hpp"
#include "policy/step_times.hpp"
#include "policy/view.hpp"
#include "store/file_store.hpp"
#include "store/store.hpp"
#include "store/stretch.hpp"

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <pthread.h>

namespace emuv::cuda {

/// One device's movement. It owns the units of the blocks given to it, until
/// remove() gives them back.
///
/// A unit is mapped nowhere while it moves. A touch meanwhile would end the
/// program's context. So a unit moves only while no work in flight was given an
/// address in its block, and no untrusted work runs. New work that was
/// given such an address waits until the unit is mapped again. Untrusted work
/// waits in its stream until all is mapped, and stops all movement until it
/// ends.
///
/// All other memory stays mapped, so a wrong guess costs only time. Mapping
/// system RAM is most of the cost of a move. With options::unmaps, an evicted
/// unit stays mapped nowhere, as does a new one. It is mapped when it comes,
/// or when work or a question to the driver names its block. Untrusted work,
/// 100 ms without a prediction after the first plan, and the end of movement
/// map it, too. That is for users who trust their kernels.
class mover
{
public:
    /// Everything named here outlives the object.
    struct options
    {
        const driver &calls;
        budget &shares;
        trace &record;
        /// Called when movement ends for good, with the reason.
        void (*tell)(const char *why);
        /// Called when a kernel has reached memory that is not mapped, with the
        /// trusted kernels that may be the one. May be null.
        void (*faulted)(const std::vector<const char *> &kernels) = nullptr;
        int device = 0;
        bool always = false; ///< memory moves even where that is slower
        /// An evicted unit is not mapped until it is wanted.
        bool unmaps = false;
        /// Host memory where kernels may find addresses that nobody copied to
        /// the device; or null.
        const pinned *host = nullptr;
        /// Checks that kernels keep to the rules: nothing moves, and only
        /// memory that work in flight was given is mapped. Null: no check.
        check *checked = nullptr;
        /// The page on which it publishes its figures; or null.
        device_statistics *page = nullptr;
        /// For units that have no room in system RAM; or null. It goes with
        /// @c unmaps alone: what is there is mapped nowhere.
        file_store *file = nullptr;
        /// Called with a line when a tier fails: the file, or coded copies.
        /// And where work is refused since memory cannot come from the file.
        /// The text is the callee's for the call. Not null where there is one.
        void (*tell_of_tier)(const char *text) = nullptr;
        /// System RAM for coded copies of units; 0: there are none. It goes
        /// with @c unmaps alone: a unit that is mapped in its room may change
        /// there.
        std::uint64_t packed_bytes = 0;
        /// So long work waits for memory from there if nothing at all ends
        /// meanwhile; six times as long where something does.
        std::uint64_t patience_for_file_ns = 10000000000;
    };
    /// Smaller blocks do not lie in the file: they are worth no move.
    static constexpr std::uint64_t least_moving_bytes = std::uint64_t{4} << 20;

    explicit mover(const options &asked);
    mover(const mover &) = delete;
    mover &operator=(const mover &) = delete;
    ~mover();

    /// Takes a block over.
    /// @param units  those from @p first_host on are in system RAM. Those
    ///   without a handle have no memory, and were charged by charge_file().
    ///   Those that are mapped nowhere hold nothing: see takes_hidden()
    /// @param tokens  the charge of each of those, taken over, too; if empty,
    ///   the caller keeps the charges, for the block as a whole
    void add(CUdeviceptr base, std::uint64_t bytes, CUcontext context,
             const std::vector<unit> &units, std::size_t first_host,
             const std::vector<std::uint64_t> &tokens);

    /// True if new memory in system RAM need not be mapped. Nothing is copied
    /// then when it comes to VRAM for its first use.
    bool takes_hidden();

    /// Charges the file for new units that have room nowhere else. The charge
    /// goes with the units: see add().
    /// @return false where there is no file, or no room in it, or nothing moves
    ///   any more
    bool charge_file(std::uint64_t bytes);
    /// The units did not come to be.
    void uncharge_file(std::uint64_t bytes);

    /// A block's remains: the memory behind its addresses.
    struct remains
    {
        std::vector<unit> units; ///< those without a handle have no memory
        std::vector<bool> host;
        std::vector<bool> away; ///< in system RAM and mapped nowhere
        std::uint64_t physical_bytes = 0;
        std::vector<ram_charge> charges;
    };

    /// Gives a block back. Waits until none of its units moves.
    /// @return false where there is no such block
    bool remove(CUdeviceptr base, remains &left);

    /// The allocation at @p at is freed, in the order of the program's work so
    /// far, and kept for the next one. Nobody needs its contents, so they are
    /// no longer copied.
    void vacate(CUdeviceptr at);
    /// Memory that was vacated is allocated again: @p bytes from @p at on.
    void occupy(CUdeviceptr at, std::uint64_t bytes);

    /// The program's own allocator has made an allocation, and hands out a part
    /// of it: @p bytes from @p at on, of undefined contents. From the first
    /// such part on, all else of that allocation is free. Nothing happens where
    /// that cannot be: in small blocks, in memory that is allocated in stream
    /// order, and where the allocator has contradicted itself before. Its word
    /// about an allocation ends for good in a capture, and once work is given
    /// an address in a free part. From then on all contents count.
    void hand_out(CUdeviceptr at, std::uint64_t bytes);
    /// It has taken back a part that it had handed out, in the order of the
    /// program's work so far. Nobody needs the contents any more, once the
    /// calling thread begins other work, or some of it is handed out again in
    /// another way. The same part may be handed out again before, and its
    /// contents then count.
    void take_back(CUdeviceptr at, std::uint64_t bytes);

    /// Fixes the block around an address: it stays as it is from now on.
    /// @return false where it is not all mapped, as memory cannot come from the
    ///   file
    bool fix(CUdeviceptr address);

    /// The stretch from an address on. The answer holds for a fixed block.
    /// @return nothing where there is no such block
    std::optional<stretch> stretch_at(CUdeviceptr address);

    /// A table of these words comes to lie in memory. A word counts that is a
    /// block's base, or an address in it that work was given: other numbers may
    /// only look like addresses. Work that is trusted by a name alone may reach
    /// those blocks from the return on.
    void note_table(const std::vector<CUdeviceptr> &words);

    /// True if any of these is such an address.
    bool any_is_address(const std::vector<CUdeviceptr> &words);

    /// Ends movement for good, and maps all blocks.
    /// @param why  the reason, for the user
    void fix_all(const char *why);
    static constexpr char unreadable_why[] =
        "it may not be searched for addresses (process_vm_readv)";

    /// Asks the driver about an address while its block is mapped. The driver
    /// knows nothing of an address that is not mapped.
    template <typename Call>
    CUresult while_mapped(CUdeviceptr address, Call ask)
    {
        bool lacks_room = false;
        const auto [held, those] = hold(address, lacks_room);
        if (lacks_room)
            return CUDA_ERROR_OUT_OF_MEMORY;
        const CUresult result = ask();
        if (held)
            let_go(*held, those);
        return result;
    }

    /// Gives up VRAM and system RAM that movement alone holds.
    void shed();
    /// Others wait for the VRAM of a card that lends it. Gives up the rooms
    /// there that hold nothing. Units that are there go to system RAM, one by
    /// one, as the gate lets them, until nobody waits any more.
    void give_back_rooms(int peer);
    /// @return bytes that shed() would give up
    std::uint64_t spare_bytes();

    /// Charges VRAM for memory that can be nowhere else, and evicts units until
    /// there is as much. Waits for work in flight, if need be.
    /// @return false where so much is not to be had
    bool make_way(std::uint64_t bytes);

    /// The places of a subrange's bytes, and the moves of its units so far.
    struct whereabouts
    {
        std::uint64_t vram_bytes = 0;
        std::uint64_t ram_bytes = 0;
        std::uint64_t card_bytes = 0; ///< on cards that lend VRAM
        moves moved;
    };
    /// Some of a block: @p bytes from @p at on, all of them in the block.
    struct subrange
    {
        CUdeviceptr at = 0;
        std::uint64_t bytes = 0;
        /// Of the block: see identify(). Another allocation may have come to
        /// lie there since, and what is said is not meant for that.
        std::uint64_t identity = 0;
    };
    /// The advice about a subrange that lasts until it is taken back.
    struct lasting
    {
        int priority = 0;
        bool read_mostly = false;
        bool pinned = false;
    };
    enum class answer
    {
        done,
        gone,     ///< the allocation is
        too_much, ///< may not be pinned
    };

    /// @return a number of the allocation at this address, which no other one
    ///   has; 0 where there is none
    std::uint64_t identify(CUdeviceptr at);

    /// The program says something of a subrange. That is a wish: the
    /// policy weighs it, and the gate is asked before anything moves. Each unit
    /// counts that the subrange lies in. To be demoted or seldom written, it
    /// must have less than an eighth of other memory; to be dead, none. Nothing
    /// happens to blocks that stay where they are.
    ///
    /// Of what lasts, whoever asks says each thing once and takes it back once:
    /// hint::pin and hint::read_mostly here, the priority by rank().
    answer advise(const subrange &of, hint what);
    /// Adds a priority to all units that the subrange lies in. The highest
    /// counts.
    answer rank(const subrange &of, int priority);
    /// Takes back what was said of the subrange and lasts.
    void forget_advice(const subrange &of, const lasting &said);

    /// @return nothing where the allocation is gone
    std::optional<whereabouts> find(const subrange &of);
    /// The same. It is used about now.
    std::optional<whereabouts> access(const subrange &of);
    /// All moves so far.
    moves moved();

    /// Ends movement in a context that is about to go, and waits for that end.
    /// @param context  null: for good
    void stop(CUcontext context);

    /// The process ends. As stop(nullptr), but leaves the thread behind if it
    /// goes on waiting for work from before movement. Such work may never end.
    void leave();

    /// The context did not go. Movement in it goes on, unless another thread is
    /// about to end the context.
    void resume(CUcontext context);

    /// The context went.
    void gone(CUcontext context);

    /// A stream is about to be captured, or to wait for something other than
    /// its own work. Missing events are recorded first, so that earlier work is
    /// seen to end.
    void stream_waits();

    /// A stream is about to go. A missing event of its work is recorded first:
    /// afterwards nothing needs the stream.
    void stream_goes(CUstream stream) { flights_.leave(stream); }

    /// True if work has to be announced.
    bool active() const { return active_.load(); }

    /// True if memory lies in the file. Work that needs it may be refused for
    /// now.
    bool uses_file() const { return on_file_.load() > 0; }

    /// True if nothing has moved for a while, and all blocks around these
    /// addresses lie in VRAM, or if nothing moves any more. Then nothing is
    /// gained by following each work on them. Not in a check, nor while any
    /// memory lies in the file.
    /// @param addresses  in order
    bool is_at_rest(const std::vector<CUdeviceptr> &addresses);

    /// Runs work: announces it before, and follows it after.
    /// @param stream  with the default streams named
    /// @param collect  describes the work; called only while movement is active
    template <typename Collect, typename Call>
    CUresult run(CUstream stream, Collect collect, Call real)
    {
        passing_.fetch_add(1);
        if (!active() && on_file_.load() == 0) {
            const CUresult result = real();
            passing_.fetch_sub(1);
            return result;
        }
        passing_.fetch_sub(1);
        // Else nobody would bring back what is in the file.
        if (!active() && !await_return())
            return CUDA_ERROR_OUT_OF_MEMORY;
        work announced;
        collect(announced);
        flight begun;
        const admission as = begin(announced, stream, begun);
        if (as == admission::refused)
            return CUDA_ERROR_OUT_OF_MEMORY;
        const CUresult result = real();
        if (as == admission::followed)
            end(std::move(begun), stream, result == CUDA_SUCCESS);
        else
            passing_.fetch_sub(1);
        return result;
    }

private:
    // A launch waits for memory that is on its way. If nothing arrives or ends
    // for so long, that memory may itself wait for the launch.
    static constexpr std::uint64_t patience_ns = 200000000;
    // Free frames, so that there is always one to go on with. More would only
    // be VRAM that holds nothing.
    static constexpr std::uint64_t max_free_bytes = std::uint64_t{96} << 20;

    enum class stage
    {
        fetch,
        room, ///< in system RAM, or its address, being made
        roomed,
        digest,
        write_back,
        code,      ///< being coded, and compared
        code_copy, ///< the coded bytes are on their way to system RAM
        ready,     ///< leaves as soon as its frame is wanted
        remap,     ///< its new memory is being mapped
        remapped,
    };
    // True if an event tells when a motion is over with that.
    static bool is_on_device(stage at)
    {
        return at == stage::fetch || at == stage::digest ||
               at == stage::write_back || at == stage::code ||
               at == stage::code_copy;
    }
    struct motion
    {
        static constexpr std::size_t none = SIZE_MAX;
        block_ref of;
        std::size_t index = 0;
        stage at = stage::fetch;
        bool evicts = false;
        bool rehouses = false;   // from one room to another, as a fetch
        bool copies = false;     // a fetch has contents to copy
        bool done = false;       // the other thread's job succeeded
        bool called_off = false; // before that job began
        frame into;              // of a fetch
        room to;                 // ... or of one that rehouses
        CUevent event = nullptr;
        std::size_t digest = none; // its number in digests_
        bool wrote = false;
        bool is_read = false;   // its digest is that of its bytes
        bool codes = false;     // a coded copy is being made, or of its own
        bool decodes = false;   // a fetch comes from such a copy
        coded_copy coded;       // that one
        std::size_t sum = none; // of what is decoded: its number in packed_
        bool was_away = false;  // as it began
        std::uint64_t started_ns = 0;
        std::uint64_t next_use = 0;

        slot &unit() const { return of->slots[index]; }
    };

    using motion_ref = std::list<motion>::iterator;

    // Asks if the device has ended a motion's copy or digest.
    struct question
    {
        motion_ref about;
        CUresult answer;
    };

    // Of a thread that waits for VRAM: the news it knows, and their times.
    struct hope
    {
        std::uint64_t left;   // given_up_
        std::uint64_t seen;   // progress_
        std::uint64_t nearer; // when given_up_ grew
        std::uint64_t since;  // when either grew
    };

    // See take_back(). It is not vacant yet.
    struct taken_back
    {
        block_ref of;
        std::uint64_t begin; // offsets into the block
        std::uint64_t end;
        pthread_t by;
    };

    // The block that a thread made last.
    struct made_by
    {
        pthread_t by;
        CUdeviceptr base;
    };

    // A unit in VRAM and one in system RAM that change places.
    struct exchange
    {
        enum
        {
            none,
            leaving, ///< the unit from VRAM moves
            coming,  ///< the unit from system RAM moves
        } at = none;
        candidate out;
        candidate in;
        std::uint64_t begun_ns = 0;
    };

    enum class admission
    {
        followed,
        passing, ///< nobody follows it
        refused, ///< memory that it needs cannot come from the file
    };
    bool await_return();
    void await_return(std::unique_lock<std::mutex> &lock);
    admission let_pass();
    admission let_pass_mapped(std::unique_lock<std::mutex> &lock);
    admission begin(work &announced, CUstream stream, flight &begun);
    bool enter_in_turn(std::unique_lock<std::mutex> &lock, CUstream stream,
                       CUcontext current);
    void note_those_left(const work &announced);
    void map_tables(std::unique_lock<std::mutex> &lock);
    bool foresee(const work &announced, std::uint64_t what, CUstream stream,
                 flight &begun);
    void end_pause();
    void trace_missing(const std::vector<touched> &all, bool expected);
    void hold_blocks(const work &announced, std::uint64_t what,
                     std::vector<touched> &all);
    void map_those(std::unique_lock<std::mutex> &lock,
                   const std::vector<touched> &all);
    void gate_or_drain(std::unique_lock<std::mutex> &lock, CUstream stream,
                       flight &begun);
    void begin_check(std::unique_lock<std::mutex> &lock, const work &announced);
    bool relies_on_blocks(work &announced);
    void ask_about_bases(work &announced) const;
    static void note_places(std::vector<touched> &all);
    void end(flight &&begun, CUstream stream, bool running);
    void note_emptiness();
    flights &in_flight();
    void ended(flight &which, bool seen);
    /// @param read  see block::vacate()
    void vacate(block &of, lot &freed, bool read);
    block *divided_around(CUdeviceptr at, std::uint64_t bytes);
    template <typename Which>
    void settle_taken_back_if(Which which);
    void settle_taken_back();
    template <typename Which>
    std::size_t forget_taken_back(Which which);
    void forget_taken_back(const block &of);
    bool begin_division(block &of, std::uint64_t begin);
    void note_made(CUdeviceptr base);
    void unite(block &of);
    static void add_next_part(block &of, CUdeviceptr address,
                              std::vector<touched> &all);
    static bool is_end_of_given(const block &of, CUdeviceptr address,
                                const work &announced);
    bool reaches_memory_in(block &of, CUdeviceptr address,
                           const work &announced);
    std::vector<touched> follow(work &announced, std::uint64_t &what);
    bool note(std::uint64_t what, const std::vector<touched> &all);
    void foretell(std::uint64_t kind, const std::vector<touched> &all);
    bool recurs(const std::vector<touched> &all, std::uint64_t lag);
    void count_use(const std::vector<touched> &all, bool foreseen);
    void report(std::unique_lock<std::mutex> &lock);
    void publish(std::uint64_t now);
    bool hold_back(std::unique_lock<std::mutex> &lock, CUstream stream);
    bool fetches_on_demand() const;
    void await(std::unique_lock<std::mutex> &lock,
               const std::vector<touched> &work);
    void await_end();
    void device_failed(const char *why,
                       const std::vector<const flight *> &ended);

    bool moves_beside_untrusted() const;
    bool stands_still_briefly() const;
    bool is_untrusted_about() const;
    bool is_untrusted_near() const;
    bool is_gated(barriers::ticket which) const;
    barriers::ticket gate_untrusted(const flight &begun);
    void raise_barrier(flight &begun, CUstream stream);
    void begin_untrusted();
    void end_untrusted(const flight &which, bool seen);
    void settle(std::unique_lock<std::mutex> &lock);
    void drain(std::unique_lock<std::mutex> &lock, CUstream stream);
    void note_standstill();
    void keep_gate();
    template <typename Ready>
    void open_gate(std::unique_lock<std::mutex> &lock, Ready ready);

    void hide_the_rest();
    block_ref block_of(CUdeviceptr address);

    void start(CUcontext context);
    struct helpers
    {
        thread mapper;
        thread maker;
        thread keeper;
        thread filer;
    };
    bool start(helpers &beside);
    bool look(std::unique_lock<std::mutex> &lock);
    bool is_waited_for() const;
    void rest(std::unique_lock<std::mutex> &lock, std::uint64_t &last_work_ns);
    void loop();
    bool prepare();
    void keep_pace(std::uint64_t lag, bool recurs);
    bool moves_ahead() const;
    bool keeps_near() const;
    bool is_astray();
    bool retire(std::unique_lock<std::mutex> &lock);
    void learn_reach(const flights::landing &from);
    std::vector<question> ask_device(std::unique_lock<std::mutex> &lock);
    void take_answer(std::unique_lock<std::mutex> &lock,
                     const question &answered);
    void roomed(std::unique_lock<std::mutex> &lock, motion_ref which);
    bool is_to_leave(const motion &which) const;
    bool leave_or_stay(motion_ref which);
    bool advance(std::unique_lock<std::mutex> &lock);
    bool hide(std::unique_lock<std::mutex> &lock, motion &which);
    bool take_digest(std::unique_lock<std::mutex> &lock, motion &which);
    bool is_hurried(const motion &which) const;
    void compare(std::unique_lock<std::mutex> &lock, motion_ref which);
    void arrived(std::unique_lock<std::mutex> &lock, motion &which);
    bool write_back(std::unique_lock<std::mutex> &lock, motion &which);
    void written(motion &which);
    bool take_buffers(std::unique_lock<std::mutex> &lock,
                      std::uint64_t unit_bytes);
    void keep_for_buffers(vram_view &left) const;
    void give_up_buffers();
    bool begin_coding(std::unique_lock<std::mutex> &lock, motion &which);
    void coded(std::unique_lock<std::mutex> &lock, motion &which);
    void keep_coded(motion &which);
    bool begin_decoding(std::unique_lock<std::mutex> &lock, motion &which);
    bool has_decoded(motion &which);
    void codes_no_more(const char *why);
    void end_coding(motion &which);
    bool make_slab(std::unique_lock<std::mutex> &lock);
    void call_off(motion_ref which);
    void finish(motion_ref which);
    condition &jobs(stage of);
    void hand_over(motion &which, stage to);
    motion *first_at(stage mine);
    bool make_room(std::unique_lock<std::mutex> &lock, motion &which);
    bool remap(std::unique_lock<std::mutex> &lock, motion &which);
    void serve(stage mine);
    bool any_at(stage which) const;
    void look_at_traffic();
    void look_around();
    unit_view describe(block &of, std::size_t index) const;
    bool look_at_units(std::unique_lock<std::mutex> &lock, bool heats);
    candidate seen_unit(std::size_t number) const;
    bool may_begin() const;
    template <typename Choose>
    auto choose(std::unique_lock<std::mutex> &lock, Choose policy)
        -> std::optional<decltype(policy(std::declval<const view &>()))>;
    bool carry_out(std::unique_lock<std::mutex> &lock, const intent &wish);
    bool plan_anew(std::unique_lock<std::mutex> &lock);
    bool decide(std::unique_lock<std::mutex> &lock);
    void note_decided(std::uint64_t decided);
    bool change_places(std::unique_lock<std::mutex> &lock);
    void end_exchange();
    bool begin_exchange(std::unique_lock<std::mutex> &lock);
    void await_exchange(std::unique_lock<std::mutex> &lock,
                        const std::vector<touched> &all);
    bool give_way(std::unique_lock<std::mutex> &lock);
    bool is_in_vain(hope &which);
    void call_off_waits();
    bool start_fetch(std::unique_lock<std::mutex> &lock,
                     const candidate &which);
    bool begin_copy(std::unique_lock<std::mutex> &lock, motion_ref which);
    void give_back(motion_ref which);
    bool start_evict(const candidate &which, slot *spare);
    static constexpr std::uint64_t bit_of(int card)
    {
        return std::uint64_t{1} << static_cast<unsigned>(card) % max_devices;
    }
    bool may_rehouse(const candidate &which) const;
    std::optional<candidate> find_to_rehouse(bool &any);
    bool rehouse();
    void rehoused(motion_ref which);
    void rehoused_in_vain(motion &which);
    /// The block with the allocation that a subrange is of.
    struct identified_lot
    {
        block *of = nullptr; ///< null where the allocation is gone
        const lot *which = nullptr;
    };
    identified_lot identified(const subrange &of);
    whereabouts look_at(block &of, const subrange &in);
    template <typename Use>
    static void each_unit(block &of, const subrange &in, unsigned rest,
                          Use use);
    static std::uint64_t common_bytes(const slot &one, const subrange &in);
    void say(block &of, slot &one, const advice &next);
    void wish(block &of, slot &one, advice::wish what);
    bool pin(block &of, const subrange &in);
    void unpin(block &of, slot &one);
    void forget_advice(block &of, const segment &those);
    void drop_stale_advice();
    void is_used(block &of, slot &one);
    bool is_asked_for(const touched &which) const;
    void has_moved(const motion &which);
    void revive_all();
    bool follow_advice(std::unique_lock<std::mutex> &lock);
    std::pair<block_ref, segment> hold(CUdeviceptr address, bool &lacks_room);
    void let_go(block &held, const segment &those);
    bool may_be_away(const motion &which) const;
    bool may_hide_new() const;
    void add_hidden(block &of, slot &one);
    bool bring_home(block &around, slot &of);
    bool bring_home(block &of, const segment &those);
    void bring_all_home();
    template <typename Call>
    void each_spare_room(Call call);
    void map_all(std::unique_lock<std::mutex> &lock);
    unsigned away_on_file() const;
    bool bring_one_home();

    // Memory in the file: see filing.cpp.
    using parts = std::vector<std::pair<block_ref, segment>>;
    // A unit that is to come from the file.
    struct recall
    {
        candidate which;
        bool begun = false; ///< emuv-filer is at it
    };
    // A wish for system RAM.
    struct ram_request
    {
        std::uint64_t bytes = 0;
        bool waits = false; ///< for work that keeps units from leaving
        bool done = false;
        bool granted = false;
    };
    // For copies of emuv-filer's, through memory that the processor reads.
    struct filer
    {
        CUstream stream = nullptr;
        void *memory = nullptr;
        char *staging = nullptr; // in that memory
    };
    bool open(filer &by) const;
    void close(filer &by) const;
    void keep_file();
    parts all_parts() const;
    parts parts_of(const std::vector<touched> &all, bool and_tables) const;
    static std::uint64_t bytes_on_file(const parts &all);
    bool are_too_many(const parts &all) const;
    bool is_served() const;
    bool bring_back(std::unique_lock<std::mutex> &lock, const parts &all,
                    bool tells = true);
    bool bring_back(std::unique_lock<std::mutex> &lock, const flight &of);
    void await_from_file(std::unique_lock<std::mutex> &lock, const parts &all);
    void tell_of_lack(std::uint64_t bytes);
    bool bring_all_back(std::unique_lock<std::mutex> &lock);
    void mark_all(std::unique_lock<std::mutex> &lock);
    void ask_back(const candidate &which);
    recall *recall_of(const slot &one);
    static bool is_awaited(const slot &one);
    void forget_recalls();
    bool fetch_from_file(const candidate &which);
    bool ask_for_ram(std::unique_lock<std::mutex> &lock, std::uint64_t bytes,
                     bool waits);
    bool make_room(std::unique_lock<std::mutex> &lock, std::uint64_t bytes,
                   room &made);
    void take_back(std::unique_lock<std::mutex> &lock, const filer &by,
                   recall &next);
    void grant(std::unique_lock<std::mutex> &lock, const filer &by,
               ram_request &wish);
    template <typename Waits>
    std::uint64_t free_ram(std::unique_lock<std::mutex> &lock, const filer &by,
                           std::uint64_t later_than, Waits waits);
    bool is_quiet();
    std::uint64_t drop_idle_room(std::uint64_t later_than);
    std::optional<candidate> find_to_file(std::uint64_t later_than);
    bool put_on_file(std::unique_lock<std::mutex> &lock, const filer &by,
                     const candidate &which);
    int write_to_file(const filer &by, CUdeviceptr from, std::uint64_t bytes,
                      std::uint64_t number) const;
    int read_from_file(const filer &by, CUdeviceptr to, std::uint64_t bytes,
                       std::uint64_t number) const;
    bool copy(const filer &by, CUdeviceptr to, CUdeviceptr from,
              std::uint64_t bytes) const;
    void note_on_file(block &of, slot &one);
    void leave_file(block &of, slot &one);
    void tell_of_file(int error, bool writing);

    motion_ref new_motion(const candidate &which, stage at);
    void end_motion(motion_ref which, place where, bool progress = true);
    bool wants_frame_of(const motion &which) const;
    void progressed();
    void hold_still(block &of);
    bool must_stay(const candidate &which) const;
    bool may_move(const motion &which) const;
    std::uint64_t next_use_of(block &of, std::size_t index) const;
    bool is_first_of_lot(block &of, std::size_t index) const;
    std::unique_lock<std::mutex> enter();
    void enter(std::unique_lock<std::mutex> &lock);
    void tell_all();
    void let_in(std::unique_lock<std::mutex> &lock);
    void give_up(const char *why);

    const driver &calls_;
    budget &budget_;
    const int device_;
    const ledger &limits_; // of the device
    const bool unmaps_;
    trace &trace_;
    void (*const tell_)(const char *why);
    void (*const faulted_)(const std::vector<const char *> &kernels);
    check *const check_;
    file_store *const file_;
    void (*const tell_of_tier_)(const char *text);
    const std::uint64_t patience_for_file_ns_;
    const std::uint64_t most_ns_; // of any wait for the file

    std::mutex ending_; // one stop() at a time
    std::atomic<bool> active_{false};
    std::atomic<unsigned> passing_{0}; // work that nobody follows
    std::atomic<unsigned> on_file_{0}; // units; changes under the lock

    std::atomic<unsigned> entering_{0}; // threads that go before the mover

    std::mutex lock_; // guards all below
    // A thread that waits for a change wakes the mover's thread, and no other
    // that waits: two of those would wake each other without end.
    condition changed_; // for all others, ...
    condition to_look_; // ... and for the mover's thread
    condition to_map_;  // there is something to map ...
    condition to_open_; // ... or untrusted work at a barrier ...
    condition to_make_; // ... or to make room for
    condition to_file_; // ... or to put into the file, or take from it
    blocks blocks_;
    gate gate_; // decides what may move
    // Decisions look through these lists only, as there may be very many
    // blocks. The first has blocks whose units come and go, the second small
    // blocks that launches await.
    std::vector<block_ref> large_;
    std::vector<block_ref> awaited_;
    std::vector<taken_back> taken_back_;
    std::vector<made_by> made_last_;
    // Filled in by the mover's thread, and read by it without the lock.
    view seen_;
    std::vector<std::pair<block *, std::size_t>> seen_units_; // of the view
    std::vector<touch> noted_;                                // of one work
    // Lists of ended work, for new work to use. Otherwise one thread would
    // allocate each list, and another would free it.
    std::vector<std::vector<touched>> spare_lists_;
    schedule schedule_;
    recurrence recurrence_;
    reuse reuse_;
    reach reach_;
    pace pace_;
    headroom headroom_;
    planner planner_;
    arrangement arrangement_;
    flights flights_; // see in_flight()
    step_times times_;
    barriers barriers_;
    // Untrusted work that waits in its stream, and streams that the program
    // waits for in its stead.
    struct gated
    {
        barriers::ticket barrier;
        bool landed; // nobody follows the work any more
        const char *kernel;
        const char *why; // it is not trusted
    };
    std::vector<gated> gated_;
    std::vector<CUstream> draining_;
    unsigned settling_ = 0;
    std::uint64_t untrusted_ns_ = 0;   // when such work began last
    std::uint64_t fetch_pace_ = 64;    // a fetch's time, by 64ths of the least
    std::uint64_t arrived_ = 0;        // units in VRAM, ever
    std::uint64_t arrived_before_ = 0; // when untrusted work last began
    unsigned in_vain_ = 0;             // since then
    patience for_untrusted_;
    std::list<motion> motions_;
    frames frames_;
    rooms rooms_;
    rooms rooms_by_file_; // the same, for those who free system RAM first
    events events_;
    digests digests_;
    packed packed_;
    std::size_t vacant_ = 0; // units
    unsigned waiters_ = 0;
    std::uint64_t progress_ = 0;          // what has arrived or ended
    std::uint64_t version_ = 0;           // of all that decisions rest on
    std::uint64_t decided_ = UINT64_MAX;  // the version with nothing to do
    std::uint64_t hopeless_ = UINT64_MAX; // the progress at which to give up
    patience for_memory_;                 // launches wait for it
    patience for_device_;                 // launches wait for less in flight
    std::uint64_t checked_ = 0;           // calls of await_end()
    const char *running_ = nullptr;       // the last kernel begun, or null
    bool running_proven_ = false;         // it is trusted by a proof
    std::uint64_t look_again_ns_ = 0;
    std::uint64_t led_ns_ = 0; // when moves_ahead() was true last
    bool has_fetched_ = false; // for a launch, while nothing was predicted
    exchange exchange_;
    std::uint64_t exchange_after_ns_ = 0; // no next one before
    std::uint64_t uses_ = 0;              // of anything
    std::uint64_t host_bytes_ = 0;        // of all units beyond VRAM
    std::uint64_t lent_bytes_ = 0;        // ... and of those on other cards
    std::uint64_t on_file_bytes_ = 0;     // ... and of those in the file
    bool files_ = false;                  // emuv-filer is there
    std::vector<recall> recalls_;         // in order
    std::vector<ram_request *> requests_; // in order
    std::uint64_t recall_after_ns_ = 0;   // none ahead of use before
    unsigned making_in_file_ = 0;         // blocks that are being made there
    bool is_bringing_ = false;            // a thread has units come from there
    unsigned holding_ = 0; // threads that hold units, but for work in flight
    bool file_is_stuck_ = false; // the last unit could not go there
    int write_error_ = 0;        // of the file, the last one told of
    int read_error_ = 0;
    bool told_of_refusal_ = false;
    bool told_of_use_ = false;
    std::uint64_t called_back_ = 0;      // cards that others wait for, as bits
    std::uint64_t rehouse_after_ns_ = 0; // none was found to rehouse before
    CUdeviceptr last_rehoused_ = 0;      // a unit, by its address
    std::uint64_t wanted_bytes_ = 0;     // by make_way()
    std::size_t wishes_ = 0;             // units that the program asks for
    std::uint64_t advise_after_ns_ = 0;  // no wish can be granted before
    std::uint64_t pinned_bytes_ = 0;     // by the program's advice
    bool any_dead_ = false;              // see block::discard()
    std::uint64_t last_identity_ = 0;    // see block::identity
    moves moved_;
    std::vector<hope *> asleep_; // of those in the ledger's queue
    std::uint64_t given_up_ = 0; // units and frames that have left
    figures figures_;
    counters unreported_;
    std::uint64_t reported_ns_ = 0;
    std::uint64_t share_bytes_ = 0;    // of VRAM
    std::uint64_t moved_ns_ = 0;       // when a motion began last
    std::uint64_t wanted_ns_ = 0;      // when work waited for memory last
    std::uint64_t idle_since_ns_ = 0;  // 0: work has begun since
    std::atomic<bool> resting_{false}; // the mover sleeps until it is woken
    bool preparing_ = false;           // it awaits work that nobody followed
    bool settled_ = false;             // all work in flight is followed
    bool stopping_ = false;
    bool leaving_ = false;   // with the process
    unsigned ending_it_ = 0; // threads about to end the context
    bool served_ = false;    // the helper threads may end
    bool gave_up_ = false;

    thread thread_;
    CUcontext context_ = nullptr;
    lanes lanes_;
};

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// Moving units between VRAM and system RAM, ahead of their use.
#pragma once

#include "driver.hpp"
#include "ledger.hpp"
#include "schedule.hpp"
#include "store.hpp"
#include "thread.hpp"
#include "trace.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// A piece of work that the program hands to the device: what it is given.
struct work
{
    static constexpr std::size_t max_names = 1024;

    /// What runs. Work of the same kind has the same number.
    std::uint64_t what = 0;
    /// Whether it reaches memory only by the addresses it is given.
    bool vouched = false;
    std::uint32_t count = 0;
    std::array<CUdeviceptr, max_names> names;

    /// Adds an address; with too many of them nothing is vouched for.
    void name(CUdeviceptr address)
    {
        if (count < max_names)
            names[count++] = address;
        else
            vouched = false;
    }
};

/// What moving has done, since the beginning.
struct movement
{
    std::uint64_t fetched_bytes = 0;
    std::uint64_t written_back_bytes = 0; ///< of what was evicted
    std::uint64_t evicted_bytes = 0;
    std::uint64_t waits = 0;
    std::uint64_t waited_ns = 0;
    std::uint64_t named_bytes = 0;  ///< what launches were given
    std::uint64_t missed_bytes = 0; ///< and what of it was in system RAM
    std::uint64_t steps = 0;
    std::uint64_t surprises = 0;
};

/// One device's movement. It owns the units of the blocks it was given until
/// it is asked for them back.
///
/// A unit is unmapped for a moment when it moves, and a touch at that moment
/// would end the program's context. So it moves only while everything that the
/// device has in hand is vouched for, and none of it was given an address in
/// the unit's block; new work that was waits until the unit is there. Work
/// that nobody vouches for stops all movement until it is done. Everything
/// else is always mapped: a wrong guess costs time.
class mover
{
public:
    /// @param calls, limits, record  outlive this object; @p record may be null
    /// @param tell  called when movement ends for good, with the reason
    mover(const driver &calls, ledger &limits, int device, trace *record,
          void (*tell)(const char *why));
    mover(const mover &) = delete;
    mover &operator=(const mover &) = delete;
    ~mover();

    /// Takes a block over.
    /// @param units  of which those from @p first_host on are in system RAM
    void add(CUdeviceptr base, std::uint64_t bytes, CUcontext context,
             const std::vector<unit> &units, std::size_t first_host);

    /// A block's remains: what is mapped at its addresses.
    struct remains
    {
        std::vector<unit> units;
        std::vector<bool> host;
        std::uint64_t physical_bytes = 0;
        struct charge
        {
            std::uint64_t bytes;
            std::uint64_t token;
        };
        std::vector<charge> charges; ///< virtual ones, beyond add()'s
    };

    /// Gives a block back. Waits until none of it is on its way.
    /// @return false where there is no such block
    bool remove(CUdeviceptr base, remains &left);

    /// The block around an address stays as it is from now on.
    void fix(CUdeviceptr address);

    /// The same for all of them: others may see this memory now.
    void fix_all();

    /// Gives up VRAM and system RAM that are held for movement alone.
    void shed();

    /// Ends movement in a context that is about to go; waits for it.
    void stop(CUcontext context);

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
        if (!begin(announced, stream, begun))
            return real();
        const CUresult result = real();
        end(std::move(begun), stream, result == CUDA_SUCCESS);
        return result;
    }

    movement counters();

private:
    enum class place
    {
        host,
        vram,
        fetching, ///< in system RAM, a copy to a frame under way
        evicting, ///< in VRAM, on its way out
    };
    struct slot
    {
        CUdeviceptr at = 0;
        std::uint64_t bytes = 0;
        place where = place::host;
        bool gap = false;    // may be unmapped at this moment
        bool cancel = false; // its copy no longer counts
        CUmemGenericAllocationHandle vram = 0;
        CUdeviceptr vram_alias = 0;
        CUmemGenericAllocationHandle host = 0;
        CUdeviceptr host_alias = 0;
        bool charged = false; // the host handle, by token
        std::uint64_t token = 0;
        bool digested = false; // of what the host handle holds
        std::array<std::uint64_t, 2> digest{};
    };
    struct block
    {
        CUdeviceptr base = 0;
        std::uint64_t bytes = 0;
        std::vector<slot> slots;
        std::vector<std::uint64_t> starts; // offsets that work was given
        unsigned in_flight = 0;
        unsigned waiting = 0;
        unsigned moving = 0;
        bool small = false; // not worth it, nor a sign of anything
        bool fixed = false;
        std::atomic<unsigned> holders{0};
    };
    // As std::shared_ptr, which needs a newer glibc.
    class block_ref
    {
    public:
        block_ref() = default;
        explicit block_ref(block *which) : block_(which) { hold(); }
        block_ref(const block_ref &other) : block_(other.block_) { hold(); }
        block_ref(block_ref &&other) noexcept
            : block_(std::exchange(other.block_, nullptr))
        {}
        block_ref &operator=(block_ref other) noexcept
        {
            std::swap(block_, other.block_);
            return *this;
        }
        ~block_ref()
        {
            if (block_ != nullptr && block_->holders.fetch_sub(1) == 1)
                delete block_;
        }
        block *operator->() const { return block_; }
        block &operator*() const { return *block_; }
        bool operator==(const block_ref &other) const = default;
        explicit operator bool() const { return block_ != nullptr; }

    private:
        void hold()
        {
            if (block_ != nullptr)
                block_->holders.fetch_add(1);
        }
        block *block_ = nullptr;
    };
    struct flight
    {
        CUevent event = nullptr;
        bool vouched = false;
        std::vector<block_ref> blocks;
    };
    struct frame
    {
        CUmemGenericAllocationHandle handle;
        CUdeviceptr alias;
        std::uint64_t bytes;
    };
    enum class stage
    {
        fetch,
        digest,
        write_back,
        ready, ///< may leave as soon as its frame is wanted
    };
    struct motion
    {
        block_ref of;
        std::size_t index = 0;
        stage at = stage::fetch;
        frame into{};
        CUevent event = nullptr;
        std::size_t digest_slot = 0;
        bool wrote = false;
        std::uint64_t started_ns = 0;
        std::uint64_t next_use = 0;
    };

    bool begin(work &announced, CUstream stream, flight &begun);
    void end(flight &&begun, CUstream stream, bool running);
    void follow(work &announced, std::vector<touch> &touches);
    bool missing(const std::vector<touch> &touches, std::uint64_t &bytes);
    void await(std::unique_lock<std::mutex> &lock,
               const std::vector<touch> &touches);
    block_ref block_of(CUdeviceptr address);

    void start(CUcontext context);
    void loop();
    bool prepare();
    void put_away();
    bool retire();
    bool advance(std::unique_lock<std::mutex> &lock);
    bool decide(std::unique_lock<std::mutex> &lock);
    bool start_fetch(const block_ref &of, std::size_t index,
                     std::uint64_t next_use);
    bool start_evict(std::unique_lock<std::mutex> &lock, const block_ref &of,
                     std::size_t index, std::uint64_t next_use);
    bool take_frame(std::uint64_t bytes, frame &out);
    bool make_host(slot &of);
    bool remap(slot &of, CUmemGenericAllocationHandle to,
               CUmemGenericAllocationHandle from);
    CUdeviceptr alias(CUmemGenericAllocationHandle handle, std::uint64_t bytes);
    void drop_alias(CUdeviceptr at, std::uint64_t bytes);
    void drop_frame(const frame &which);
    CUevent take_event();
    void end_motion(const motion &which, place where);
    void cancel_all();
    std::uint64_t free_bytes() const;
    std::uint64_t next_use_of(const block &of, std::size_t index) const;
    void give_up(const char *why);

    const driver &calls_;
    ledger &limits_;
    const int device_;
    trace *const trace_;
    void (*const tell_)(const char *why);

    std::atomic<bool> active_{false};
    std::atomic<unsigned> passing_{0}; // work that nobody follows

    std::mutex lock_; // guards all below
    condition changed_;
    std::map<CUdeviceptr, block_ref> blocks_;
    schedule schedule_;
    std::map<CUstream, std::deque<flight>> flights_;
    std::vector<motion> motions_;
    std::vector<frame> free_;
    std::vector<CUevent> events_;
    std::vector<std::size_t> digest_slots_;
    unsigned unvouched_ = 0; // in flight
    unsigned waiters_ = 0;
    unsigned gaps_ = 0;
    std::uint64_t progress_ = 0;          // what has arrived or ended
    std::uint64_t version_ = 0;           // of all that decisions rest on
    std::uint64_t decided_ = UINT64_MAX;  // the state with nothing to do
    std::uint64_t hopeless_ = UINT64_MAX; // the progress at which to give up
    std::uint64_t patient_again_ = 0;     // the step from which launches wait
    unsigned patience_lost_ = 0;
    std::uint64_t host_bytes_ = 0;              // of blocks, in system RAM
    std::atomic<std::uint64_t> spare_bytes_{0}; // room there, for what is not
    bool settled_ = false; // all that is in flight is followed
    bool stopping_ = false;
    bool gave_up_ = false;
    movement counters_;

    thread thread_;
    CUcontext context_ = nullptr;
    CUstream in_ = nullptr;
    CUstream out_ = nullptr;
    CUstream look_ = nullptr;
    CUmodule module_ = nullptr;
    CUfunction digest_ = nullptr;
    CUdeviceptr digest_device_ = 0;
    std::uint64_t *digest_host_ = nullptr;
};

} // namespace emuv::cuda

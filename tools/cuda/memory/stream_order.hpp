// SPDX-License-Identifier: LGPL-2.1-or-later
// What is allocated and freed in stream order: what is kept when it is freed,
// and what leaves behind the work before it.
#pragma once

#include "account/pools.hpp"
#include "base/driver.hpp"
#include "memory/allocation.hpp"
#include "memory/movers.hpp"
#include "memory/vacancies.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// Allocations between the program, which has freed them, and the driver. Those
/// the program has are in the table, which this does not know. Every call may
/// come from any thread; no lock is held while the driver is asked.
class stream_order
{
public:
    /// What is ours of a pool, in bytes: allocated, and with what is kept for
    /// later, now and at most; and what is kept that is the driver's, which
    /// takes it for allocated.
    struct pool_use
    {
        std::uint64_t used = 0;
        std::uint64_t used_high = 0;
        std::uint64_t reserved = 0;
        std::uint64_t reserved_high = 0;
        std::uint64_t kept = 0;
    };

    /// All outlive this object.
    stream_order(const driver &calls, pools &all, const movers &moving)
        : calls_(calls), pools_(all), movers_(moving)
    {}
    stream_order(const stream_order &) = delete;
    stream_order &operator=(const stream_order &) = delete;

    /// Whether what is allocated from a pool in a stream is kept when it is
    /// freed. Of per-thread streams there is one name for several.
    /// @param pool  null for the device's current one
    bool keeps(CUmemoryPool pool, CUstream stream)
    {
        return keeps_for(stream) && is_usual(pool);
    }
    bool keeps_for(CUstream stream) const
    {
        return movers_.only() != nullptr && stream != CU_STREAM_PER_THREAD;
    }

    /// cuDeviceSetMemPool and its like.
    void pool_is_set() { usual_pool_.store(nullptr); }

    /// @return false where the driver has no pool to name, or where the pool
    ///   holds no VRAM
    bool find_pool(CUmemoryPool pool, pools::source &from) const;

    /// Charges what the driver may have to take (see pools). What is kept here
    /// makes way.
    bool begin(const pools::source &from, std::uint64_t bytes);

    /// Gives back what the driver had to take too much VRAM for.
    void hand_back(CUdeviceptr at, CUstream stream, int device);

    /// Takes what was freed in the stream before.
    /// @return none where there is nothing that will do
    allocations::node_type take(std::uint64_t bytes, CUstream stream);

    /// Keeps what was made in stream order, in the current context, for who
    /// asks next in that stream.
    void keep(allocations::node_type freed, CUstream stream);

    /// Whether it is kept.
    bool has(CUdeviceptr at);

    /// Has what we placed leave once the stream has come that far.
    /// @param freed  left as it is on failure
    CUresult leave(allocations::node_type &freed, CUstream stream);

    /// Takes out what has left by now.
    /// @param wait  for all that is leaving
    std::vector<allocations::node_type> take_gone(bool wait);

    /// Has what is kept leave: what nobody asks for any more, all, and what is
    /// kept for a stream that is about to go.
    void give_up_idle();
    void give_up_all();
    void stream_goes(CUstream stream);

    /// Takes out what was made in a context that is gone, with a serial below
    /// that one.
    std::vector<allocations::node_type> context_gone(CUcontext context,
                                                     std::uint64_t before);

    /// What the program has of what is kept when it is freed: one more, one
    /// less.
    void count_made(const allocation &made) { count(made, true); }
    void count_freed(const allocation &freed) { count(freed, false); }

    pool_use use_of(CUmemoryPool pool);
    /// The most is what there is now.
    void reset_high(CUmemoryPool pool, bool used);
    /// Has what is kept leave until no more than so many bytes of the pool are
    /// left, the driver's among them.
    /// @return whether any of the pool may be ours
    bool trim(CUmemoryPool pool, std::uint64_t keep);

    /// Bytes that are kept.
    std::uint64_t kept_bytes();

private:
    struct leaving
    {
        CUevent event;
        allocations::node_type what;
    };

    bool is_usual(CUmemoryPool pool);
    bool keeps_from(CUmemoryPool pool);
    void count(const allocation &of, bool is_used);
    void count_locked(const allocation &of, bool is_used);
    std::uint64_t reserved() const
    {
        return use_.used + vacancies_.bytes() - use_.kept;
    }
    bool put_behind(const vacancies::vacancy &which, bool is_pooled,
                    CUevent &event) const;
    void give_up(const std::vector<vacancies::vacancy> &unused);
    void give_up(const vacancies::vacancy &unused);
    template <typename Which>
    void give_up_if(Which which)
    {
        std::vector<vacancies::vacancy> taken;
        {
            const std::lock_guard guard(lock_);
            taken = vacancies_.take_if(which);
        }
        give_up(taken);
    }

    const driver &calls_;
    pools &pools_;
    const movers &movers_;
    // The default one, where it is the current one; null: not known.
    std::atomic<CUmemoryPool> usual_pool_{nullptr};

    std::mutex lock_; // guards all below
    std::vector<leaving> leaving_;
    vacancies vacancies_; // of the one device there is then
    allocations vacant_;  // what those are of
    pool_use use_;        // of its default pool
};

} // namespace emuv::cuda

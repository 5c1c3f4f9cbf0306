// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that is allocated and freed in stream order. Freed memory is kept, or
// leaves behind the work before it.
#pragma once

#include "account/budget.hpp"
#include "account/pools.hpp"
#include "base/driver.hpp"
#include "memory/allocation.hpp"
#include "memory/movers.hpp"
#include "memory/vacancies.hpp"
#include "policy/patience.hpp"

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// Allocations between the program, which has freed them, and the driver. The
/// program's own are in the table, which this class does not know. Every call
/// may come from any thread; no lock is held while the driver is asked.
class stream_order
{
public:
    /// Our part of a pool, in bytes: allocated (used), and with vacancies
    /// (reserved), now and at most. The field kept is the driver's memory in
    /// vacancies, which the driver takes for allocated.
    struct pool_use
    {
        std::uint64_t used = 0;
        std::uint64_t used_high = 0;
        std::uint64_t reserved = 0;
        std::uint64_t reserved_high = 0;
        std::uint64_t kept = 0;
    };

    /// All outlive this object.
    /// @param serials  the number of allocations so far, and one more
    stream_order(const driver &calls, budget &shares, const movers &moving,
                 const std::atomic<std::uint64_t> &serials)
        : calls_(calls), budget_(shares), pools_(shares.stream_pools()),
          movers_(moving), serials_(serials)
    {}
    stream_order(const stream_order &) = delete;
    stream_order &operator=(const stream_order &) = delete;

    /// True if memory allocated from a pool in a stream is kept when it is
    /// freed. A per-thread stream's name stands for several, so nothing is kept
    /// there. Of several devices it is the first that is asked about: most
    /// programs use one.
    /// @param pool  null for the current device's current one
    bool keeps(CUmemoryPool pool, CUstream stream)
    {
        return !movers_.empty() && is_of_device(stream) && keeps_for(stream) &&
               is_usual(pool);
    }
    /// True if it may have been kept.
    bool keeps_for(CUstream stream) const
    {
        return moving() != nullptr && stream != CU_STREAM_PER_THREAD &&
               !is_shared(device_.load());
    }
    /// The device whose memory is kept; -1: none so far.
    int device() const { return device_.load(); }
    /// Another device may read the memory of a pool: nothing more of it is
    /// kept. Or it may no longer.
    /// @return the device whose default pool it is, if memory moves there; -1
    ///   for all others, and for the reader's own
    int pool_is_shared(CUmemoryPool pool, int reader, bool opens);
    /// True if the stream is of the current context.
    bool is_current(CUstream stream) const;

    /// The size to ask memory::allocate_async() and the driver for in place of
    /// @p bytes, which are not 0. It is larger only if the memory will be kept.
    std::uint64_t size_for(std::uint64_t bytes, CUmemoryPool pool,
                           CUstream stream);

    /// cuDeviceSetMemPool and its like.
    void pool_is_set() { usual_pool_.store(nullptr); }

    /// @return false where the driver has no pool to name, or where the pool
    ///   holds no VRAM
    bool find_pool(CUmemoryPool pool, pools::source &from) const;

    /// Charges the memory that the driver may have to take (see pools). Kept
    /// memory makes way, and for small memory other memory that can.
    /// @param is_kept  when it is freed
    bool begin(const pools::source &from, std::uint64_t bytes, bool is_kept);

    /// Gives back an allocation for which the driver had to take too much VRAM.
    void hand_back(CUdeviceptr at, CUstream stream, int device);

    /// Takes memory that was freed in the stream before.
    /// @return none where there is nothing that will do
    allocations::node_type take(std::uint64_t bytes, CUstream stream);

    /// The bytes of a new range for several requests such as this one; 0 where
    /// it is to have one of its own: see vacancies.
    std::uint64_t shared_for(std::uint64_t bytes);

    /// Leaves to an allocation its part of a new range that several share. The
    /// rest is kept for the next requests. Memory of that stream leaves that
    /// the range replaces.
    void divide(CUdeviceptr base, allocation &made, CUstream stream);

    /// Keeps memory that was made in stream order, in the current context, for
    /// the next request in that stream.
    void keep(allocations::node_type freed, CUstream stream);

    /// Keeps memory that no work may use any more, if it is part of a range
    /// that others may have parts of.
    /// @param freed  left as it is where all of the range is free now: then
    ///   @p freed is all of it
    void keep_for_all(allocations::node_type &freed);

    /// True if the allocation is kept.
    bool has(CUdeviceptr at);

    /// Has memory that we placed leave once the stream has come that far.
    /// @param freed  left as it is on failure
    CUresult leave(allocations::node_type &freed, CUstream stream);

    /// Takes out the memory that has left by now.
    /// @param wait  waits for all that is leaving
    std::vector<allocations::node_type> take_gone(bool wait);

    /// Has kept memory leave: memory that nobody asks for any more; all of it;
    /// or that of a stream that is about to go. Nothing can be put behind that
    /// stream's work any more.
    /// @param bytes  of a request for kept memory that found none; 0 for small
    ///   requests, and for other memory's
    void give_up_idle(std::uint64_t bytes);
    void give_up_all();
    void stream_goes(CUstream stream);

    /// Takes out memory that was made in a context that is gone, with a serial
    /// below @p before.
    std::vector<allocations::node_type> context_gone(CUcontext context,
                                                     std::uint64_t before);

    /// Counts the program's memory that is kept when it is freed: one more, one
    /// less.
    void count_made(const allocation &made) { count(made, true); }
    void count_freed(const allocation &freed) { count(freed, false); }

    pool_use use_of(CUmemoryPool pool);
    /// Sets the high mark to the present value.
    void reset_high(CUmemoryPool pool, bool used);
    /// Has kept memory leave until at most @p keep bytes of the pool are left,
    /// the driver's among them.
    /// @return whether any of the pool may be ours
    bool trim(CUmemoryPool pool, std::uint64_t keep);

    /// Bytes of kept memory that can be given back: all of what was made as
    /// one.
    std::uint64_t spare_bytes(int device);

private:
    struct leaving
    {
        CUevent event;
        allocations::node_type what;
    };

    void make_way(const pools::source &from, std::uint64_t bytes);
    bool is_of_device(CUstream stream);
    CUcontext context_of(CUstream stream) const;
    bool is_usual(CUmemoryPool pool);
    mover *moving() const { return movers_.of(device_.load()); }
    bool is_shared(int device) const
    {
        return (shared_.load() >> device & 1) != 0;
    }
    bool keeps_from(CUmemoryPool pool);
    void count(const allocation &of, bool is_used);
    void count_locked(const allocation &of, bool is_used);
    std::uint64_t reserved() const
    {
        return use_.used + vacancies_.bytes() - use_.kept;
    }
    bool put_behind(const vacancies::vacancy &which, bool is_pooled,
                    CUevent &event) const;
    vacancies::vacancy put(const vacancies::vacancy &made);
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
    budget &budget_;
    pools &pools_;
    const movers &movers_;
    const std::atomic<std::uint64_t> &serials_;
    std::atomic<int> device_{-1};
    std::atomic<std::uint64_t> shared_{0}; // devices that share their pools
    // Its default pool, if it is the current one; null: not known.
    std::atomic<CUmemoryPool> usual_pool_{nullptr};

    std::mutex lock_; // guards all below
    std::vector<leaving> leaving_;
    vacancies vacancies_; // of that device
    allocations vacant_;  // their allocations
    // Allocations that leave vacant_, while the driver is asked: it may hand
    // their addresses out at once. Empty where the context has gone meanwhile.
    std::list<allocations::node_type> going_;
    pool_use use_;                 // of its default pool
    std::uint64_t most_used_ = 0;  // ever, whatever marks are reset
    std::uint64_t ever_made_ = 0;  // bytes of ranges, and of their parts
    std::uint64_t ever_freed_ = 0; // ... when they were freed
    patience for_way_;             // small memory of the driver's waits for it
};

} // namespace emuv::cuda

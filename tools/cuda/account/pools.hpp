// SPDX-License-Identifier: LGPL-2.1-or-later
// VRAM that the driver sets aside for stream-ordered allocations and graphs.
// The charge is what the driver holds, not what the program has of it.
#pragma once

#include "account/ledger.hpp"
#include "base/driver.hpp"
#include "base/thread.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// The pools of one process. Every call may come from any thread. Unlike the
/// table of allocations, this one asks the driver under its lock. The question
/// waits for nothing, and its answers must not overtake one another.
class pools
{
public:
    /// A pool, or what one device holds for graphs: a null pool then.
    struct source
    {
        int device = 0;
        CUmemoryPool pool = nullptr;
        bool operator<(const source &other) const
        {
            return pool != other.pool
                       ? pool < other.pool
                       : pool == nullptr && device < other.device;
        }
    };

    /// @param ledgers  by device ordinal, as for memory
    pools(const driver &calls, std::vector<ledger *> ledgers);

    /// The program made a pool, of memory at @p where.
    void created(CUmemoryPool pool, const CUmemLocation &where,
                 CUmemAllocationType type);

    /// The driver named one that it has there; the program may have made it.
    void named(CUmemoryPool pool, const CUmemLocation &where,
               CUmemAllocationType type);

    /// cuMemPoolDestroy. Allocations from the pool live on, and count. Waits
    /// while trim() is at the pool in another thread.
    template <typename Call>
    CUresult destroy(CUmemoryPool pool, Call from_driver)
    {
        const orphan left = release(pool);
        const CUresult result = from_driver();
        if (result != CUDA_SUCCESS)
            take_back(left);
        return result;
    }

    /// The device whose VRAM is in the pool: @p current, if nobody made or
    /// named it. -1: it holds no VRAM, or VRAM that comes and goes.
    int device_of(CUmemoryPool pool, int current);

    /// Charges what the driver may have to take for an allocation of
    /// @p bytes, before it is asked.
    /// @return false when the limit leaves no room
    bool begin(const source &from, std::uint64_t bytes);

    /// The bytes that begin() would have to charge.
    std::uint64_t missing(const source &from, std::uint64_t bytes);

    /// Takes the driver's answer. An allocation of a pool counts until freed().
    /// The memory of graphs is only known as a whole.
    /// @param number  out: what freed() takes
    /// @return false when the driver took more than the limit leaves; the
    ///   allocation should go back then
    bool end(const source &from, std::uint64_t bytes, bool granted,
             std::uint64_t &number);
    void freed(std::uint64_t number, std::uint64_t bytes);

    /// Brings the charges to what the driver holds by now.
    void settle();

    /// Has the driver give up unused memory of @p device's share.
    /// @return true if the charges went down
    bool trim(int device);

private:
    struct state
    {
        std::uint64_t number = 0; // handles of pools are used again
        ledger *limits = nullptr;
        std::uint64_t charged = 0;
        std::uint64_t pending = 0;   // between begin() and end()
        std::uint64_t allocated = 0; // not freed yet
        std::uint64_t slack = 0;     // the most it was seen to take beyond
    };

    struct orphan
    {
        source from;
        std::uint64_t number = 0;
        bool known = false;
    };

    static std::uint64_t missing_in(const state &of, std::uint64_t bytes);
    orphan release(CUmemoryPool pool);
    void take_back(const orphan &left);
    std::uint64_t reserved_by(const source &which, const state &of) const;
    bool settle(const source &which, state &of);

    const driver &calls_;
    const std::vector<ledger *> ledgers_;
    std::mutex lock_; // guards all below
    std::map<source, state> states_;
    std::vector<CUmemoryPool> trimmed_; // now, once by each thread
    condition trim_ended_;
    std::map<std::uint64_t, state> orphans_; // of pools that are destroyed
    std::map<CUmemoryPool, int> known_;      // the device, or -1
    std::uint64_t next_number_ = 1;
};

} // namespace emuv::cuda

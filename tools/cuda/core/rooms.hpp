// SPDX-License-Identifier: LGPL-2.1-or-later
// System RAM for units, whether they are there at the moment or not.
#pragma once

#include "driver.hpp"
#include "ledger.hpp"

#include <atomic>
#include <cstdint>

namespace emuv::cuda {

/// A piece of system RAM, with an address of its own by which it is filled.
struct room
{
    CUmemGenericAllocationHandle handle = 0; ///< 0: there is none
    CUdeviceptr alias = 0;                   ///< 0: none so far
    bool charged = false; ///< by itself, by token; else with its block
    std::uint64_t token = 0;
};

/// Makes room for one device's units, and gives it up. To make it takes long,
/// some 0.2 s a GiB: so it needs no lock.
class rooms
{
public:
    /// @param calls, limits  outlive this object
    rooms(const driver &calls, ledger &limits, int device)
        : calls_(calls), limits_(limits), device_(device)
    {}
    rooms(const rooms &) = delete;
    rooms &operator=(const rooms &) = delete;

    /// Makes what is missing: the room, charged by itself, and its address. By
    /// one thread at a time.
    /// @return false where that is not to be had; all is as it was then
    bool make(std::uint64_t bytes, room &of);

    /// Gives one up. What was charged with its block stays charged.
    void drop(std::uint64_t bytes, room &which);

    /// The size below which there may be more: what was refused is not asked
    /// for again within a second.
    std::uint64_t below() const;

private:
    bool create(std::uint64_t bytes, room &of);

    const driver &calls_;
    ledger &limits_;
    const int device_;
    std::atomic<std::uint64_t> refused_ns_{0};
    std::atomic<std::uint64_t> refused_bytes_{UINT64_MAX};
};

} // namespace emuv::cuda

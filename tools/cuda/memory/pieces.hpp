// SPDX-License-Identifier: LGPL-2.1-or-later
// Allocations in system RAM that are smaller than a chunk, and share one.
#pragma once

#include "base/driver.hpp"
#include "memory/ranges.hpp"
#include "store/slab.hpp"

#include <cstdint>
#include <map>
#include <mutex>

namespace emuv::cuda {

/// The shared chunks of one process, each of one device. A chunk goes with its
/// last piece. Every call may come from any thread.
class pieces
{
public:
    struct piece
    {
        CUdeviceptr at = 0;
        CUdeviceptr chunk = 0; ///< the begin of its chunk
        std::uint64_t bytes = 0;
    };

    /// @param from  makes the chunks; outlives this object
    explicit pieces(ranges &from) : ranges_(from) {}
    pieces(const pieces &) = delete;
    pieces &operator=(const pieces &) = delete;

    /// @param bytes  above 0, below a chunk
    /// @param made  out: as it was on failure
    CUresult make(std::uint64_t bytes, int device, piece &made);

    /// Gives back a piece that make() made, once.
    CUresult drop(const piece &gone);

    /// True if any of these bytes lies in a chunk.
    bool touches(CUdeviceptr at, std::uint64_t bytes);

private:
    struct chunk
    {
        int device = 0;
        slab taken;
    };
    bool take_from(CUdeviceptr base, chunk &from, std::uint64_t bytes,
                   piece &made);
    bool take(std::uint64_t bytes, int device, piece &made);

    ranges &ranges_;

    std::mutex lock_; // guards all below
    std::map<CUdeviceptr, chunk> chunks_;
};

} // namespace emuv::cuda

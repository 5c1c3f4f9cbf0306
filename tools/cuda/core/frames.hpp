// SPDX-License-Identifier: LGPL-2.1-or-later
// VRAM that holds nothing at the moment, for what comes next.
#pragma once

#include "driver.hpp"
#include "ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// A piece of VRAM, charged, with an address of its own by which it is filled.
struct frame
{
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr alias = 0; ///< 0: none so far
    std::uint64_t bytes = 0;
};

/// One device's free frames. Whoever uses them locks.
class frames
{
public:
    /// @param calls, limits  outlive this object
    frames(const driver &calls, ledger &limits, int device)
        : calls_(calls), limits_(limits), device_(device)
    {}
    frames(const frames &) = delete;
    frames &operator=(const frames &) = delete;

    /// A free frame, or a new one; those of other sizes make room for it.
    /// @return false where the share or the card has no more
    bool take(std::uint64_t bytes, frame &out);

    /// Keeps a frame for the next one.
    void put(const frame &free) { free_.push_back(free); }

    /// Gives all of them up.
    void drop() { drop(take_all()); }

    /// The same in two parts, the second of which needs no lock.
    std::vector<frame> take_all() { return std::exchange(free_, {}); }
    void drop(const std::vector<frame> &all);

    bool empty() const { return free_.empty(); }
    std::uint64_t bytes() const;

private:
    void drop(const frame &which);

    const driver &calls_;
    ledger &limits_;
    const int device_;
    std::vector<frame> free_;
};

} // namespace emuv::cuda

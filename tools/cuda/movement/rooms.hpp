// SPDX-License-Identifier: LGPL-2.1-or-later
// Places beyond VRAM for units, whether they are there at the moment or not.
#pragma once

#include "account/budget.hpp"
#include "base/driver.hpp"

#include <atomic>
#include <cstdint>

namespace emuv::cuda {

/// System RAM for one unit, or VRAM of a card that lends it, with an address of
/// its own by which it is filled. Nobody looks at a room that is being made:
/// its unit is on its way out.
struct room
{
    CUmemGenericAllocationHandle handle = 0; ///< 0: there is none
    CUdeviceptr alias = 0;                   ///< 0: none so far
    bool charged = false; ///< by itself, by token; else with its block
    std::uint64_t token = 0;
    int peer = -1; ///< the card where it lies; -1: in system RAM
};

/// Makes room for one device's units, and gives it up.
class rooms
{
public:
    /// @param calls, shares  outlive this object
    /// @param ask_again_ns  a refused size is not asked for again so soon
    rooms(const driver &calls, budget &shares, int device,
          std::uint64_t ask_again_ns = 1000000000)
        : calls_(calls), budget_(shares), device_(device),
          ask_again_ns_(ask_again_ns)
    {}
    rooms(const rooms &) = delete;
    rooms &operator=(const rooms &) = delete;

    /// Makes what a room lacks: its memory, charged by itself, and its address.
    /// Takes some 0.2 s a GiB. For one thread at a time.
    /// @return false where that is not to be had; all is as it was then
    bool make(std::uint64_t bytes, room &of);

    /// Gives a room up. A charge that the block holds stays.
    void drop(std::uint64_t bytes, room &which);

    /// A new room has to be smaller than this, a size that was refused lately.
    /// UINT64_MAX: none was.
    std::uint64_t below() const;

    /// True if rooms may be mapped: mapping was not refused lately.
    bool maps() const;

private:
    bool create(std::uint64_t bytes, room &of);
    bool is_recent(const std::atomic<std::uint64_t> &refused_ns) const;

    const driver &calls_;
    budget &budget_;
    const int device_;
    const std::uint64_t ask_again_ns_;
    std::atomic<std::uint64_t> refused_ns_{0}; // 0: never
    std::atomic<std::uint64_t> refused_bytes_{UINT64_MAX};
    std::atomic<std::uint64_t> not_mapped_ns_{0};
};

} // namespace emuv::cuda

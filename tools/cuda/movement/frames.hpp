// SPDX-License-Identifier: LGPL-2.1-or-later
// VRAM that holds nothing at the moment, for the units that come next.
#pragma once

#include "account/budget.hpp"
#include "base/driver.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// VRAM, charged, with an address of its own by which it is filled.
struct frame
{
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr alias = 0; ///< 0: none so far
    std::uint64_t bytes = 0;
};

/// One device's free frames. The caller locks, unless a function says
/// otherwise.
class frames
{
public:
    /// @param calls, shares  outlive this object
    /// @param ask_again_ns  a refused size is not asked for again so soon
    frames(const driver &calls, budget &shares, int device,
           std::uint64_t ask_again_ns = 100000000)
        : calls_(calls), budget_(shares), device_(device),
          ask_again_ns_(ask_again_ns)
    {}
    frames(const frames &) = delete;
    frames &operator=(const frames &) = delete;

    /// True if there is one of this size.
    bool has(std::uint64_t bytes) const { return this->bytes(bytes) > 0; }

    /// The size below which one may be made: this one was refused lately.
    std::uint64_t below() const;

    /// Takes a free frame, or describes a new one, for which the frames in
    /// @p gone have to go. The next call, complete(), drops those and makes the
    /// frame.
    /// @param gone  out: frames of other sizes, as few as can be
    /// @return false where not even all of those would be enough, or no frame
    ///   may be made
    bool take(std::uint64_t bytes, frame &out, std::vector<frame> &gone);

    /// Gives up the frames that have to go. Then makes what the frame lacks:
    /// its memory, its address. Takes the driver long, and needs no lock.
    /// @param filled  whether a copy fills the frame, and needs its address
    /// @return false where the share or the card has no more; nothing is left
    ///   of the frame then
    bool complete(frame &of, const std::vector<frame> &gone, bool filled);

    /// Keeps a free frame, for the next unit or as part of another frame.
    void put(const frame &free)
    {
        free_.push_back(free);
        refused_ns_.store(0);
    }

    /// Gives up all free frames.
    void drop() { drop(take_all()); }

    /// drop() in two parts, the second of which needs no lock.
    std::vector<frame> take_all() { return std::exchange(free_, {}); }
    void drop(const std::vector<frame> &all);

    bool empty() const { return free_.empty(); }
    std::uint64_t bytes() const;
    const std::vector<frame> &all() const { return free_; }
    /// Bytes of the frames of this size.
    std::uint64_t bytes(std::uint64_t size) const;

private:
    void drop(const frame &which);
    bool refuse(frame &which);

    const driver &calls_;
    budget &budget_;
    const int device_;
    const std::uint64_t ask_again_ns_;
    std::vector<frame> free_;
    std::atomic<std::uint64_t> refused_ns_{0}; // 0: not since one was put
    std::atomic<std::uint64_t> refused_bytes_{0};
};

} // namespace emuv::cuda

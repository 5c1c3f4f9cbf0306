// SPDX-License-Identifier: LGPL-2.1-or-later
// How far a piece of work reaches beyond the address that it was given.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace emuv::cuda {

/// Finds out which work reaches further into a block than it seems to.
///
/// A program that divides blocks by itself gives a kernel an address, and no
/// end. Where the next thing begins that was ever named there is a good guess,
/// until the block is divided another way. A wrong one shows: the rest lies in
/// system RAM, and what reads it there takes long. Work of which that was seen
/// twice is taken to reach to the block's end, unless that makes it no faster.
class reach
{
public:
    /// What is shorter is not looked at: it has read next to nothing over the
    /// link, and cannot be told from other work.
    static constexpr std::uint64_t slow_ns = 1000000;

    /// How long something took, as far as that is known.
    struct span
    {
        std::uint64_t least_ns = 0;
        std::uint64_t most_ns = 0;
    };

    /// Whether the work is taken to reach to its block's end.
    /// @param work  tells it, and the block, from others
    bool to_the_end(std::uint64_t work) const;

    /// The work has ended, and all that it was taken to reach was in VRAM.
    /// @param beyond  bytes of the block in system RAM that it was not
    /// @return whether it is taken to reach to the end from now on
    bool ended(std::uint64_t work, std::uint64_t beyond, span took);

    /// The work has begun without all that it is taken to reach. Again and
    /// again: there may never be room for it.
    void lacked(std::uint64_t work);

private:
    static constexpr std::size_t max_kept = 1u << 16;
    static constexpr unsigned slow_ends = 2;
    static constexpr unsigned max_trials = 3;
    static constexpr unsigned max_lacked = 16;

    struct finding
    {
        std::uint64_t short_ns = UINT64_MAX; // not reaching to the end
        unsigned slow = 0;
        unsigned trials = 0; // reaching there, and no faster
        unsigned lacked = 0; // in a row
        bool to_the_end = false;
        bool settled = false;
    };
    void take(std::uint64_t work, finding &known, bool to_the_end);

    std::map<std::uint64_t, finding> findings_;
    // Of those, the ones that reach to the end, in order: each launch asks.
    std::vector<std::uint64_t> to_the_end_;
};

} // namespace emuv::cuda

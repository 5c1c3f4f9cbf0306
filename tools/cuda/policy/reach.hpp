// SPDX-License-Identifier: LGPL-2.1-or-later
// The reach of work into a block, beyond the address that it was given.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace emuv::cuda {

/// Finds work that reaches further into a block than it seems to.
///
/// A program that divides blocks by itself gives a kernel an address, and no
/// end. A good guess is the next address that was ever named in the block,
/// until the block is divided another way. A wrong guess shows: the rest lies
/// in system RAM, and work that reads it there is slow. Work seen slow twice is
/// taken to reach to the block's end, unless that makes it no faster.
class reach
{
public:
    /// Shorter work is not looked at: it looks like any other work. Nor is work
    /// that is over before the link could bring a half of what lies beyond, and
    /// before long_ns.
    static constexpr std::uint64_t slow_ns = 150000;
    static constexpr std::uint64_t long_ns = 1000000;
    static constexpr std::uint64_t link_bytes_per_ns = 64; ///< a fast one's

    /// The bounds of the time that work took.
    struct time_bounds
    {
        std::uint64_t least_ns = 0;
        std::uint64_t most_ns = 0;
    };

    /// True if the work is taken to reach to its block's end.
    /// @param work  identifies the work and the block
    bool to_the_end(std::uint64_t work) const;

    /// The work has ended, and all that it was taken to reach was in VRAM.
    /// @param beyond  bytes of the block behind that, in system RAM
    /// @return true if the work is taken to reach to the end from now on
    bool ended(std::uint64_t work, std::uint64_t beyond, time_bounds took);

    /// The work has begun without all that it is taken to reach. If that comes
    /// again and again, there may never be room for it.
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
    static bool may_have_read(std::uint64_t beyond, time_bounds took);

    std::map<std::uint64_t, finding> findings_;
    // Of those, the ones that reach to the end, in order: each launch asks.
    std::vector<std::uint64_t> to_the_end_;
};

} // namespace emuv::cuda

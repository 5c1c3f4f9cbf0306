// SPDX-License-Identifier: LGPL-2.1-or-later
// How far a piece of work reaches beyond the address that it was given.
#pragma once

#include <cstdint>
#include <map>

namespace emuv::cuda {

/// Finds out which work reaches further into a block than it seems to.
///
/// A program that divides blocks by itself gives a kernel an address, and no
/// end. Where the next thing begins that was ever named there is a good guess,
/// until the block is divided another way. A wrong one shows: the rest lies in
/// system RAM, and what reads it there takes long. Such work is taken to reach
/// to the block's end from then on, unless that makes it no faster.
class reach
{
public:
    /// What is shorter is not looked at: a unit takes longer over the link.
    static constexpr std::uint64_t slow_ns = 1000000;

    /// Whether the work is taken to reach to its block's end.
    /// @param work  tells it, and the block, from others
    bool to_the_end(std::uint64_t work) const;

    /// The work has ended, and all that it was taken to reach was in VRAM.
    /// @param beyond  bytes of the block in system RAM that it was not
    /// @param ns  how long it took, alone
    /// @return whether it is taken to reach to the end from now on
    bool ended(std::uint64_t work, std::uint64_t beyond, std::uint64_t ns);

private:
    static constexpr std::size_t max_kept = 1u << 16;
    static constexpr unsigned max_trials = 3;

    struct finding
    {
        std::uint64_t short_ns = 0; // not reaching to the end
        unsigned trials = 0;        // reaching there, and no faster
        bool to_the_end = true;
        bool settled = false;
    };
    std::map<std::uint64_t, finding> findings_;
};

} // namespace emuv::cuda

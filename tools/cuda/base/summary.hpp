// SPDX-License-Identifier: LGPL-2.1-or-later
// A device's published figures in words: for `emuvctl why`, and for the end of
// a program that was run with EMUV_STATS.
#pragma once

#include "base/statistics.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace emuv::cuda {

/// The figures of one device, as means over its last steps.
struct summary
{
    /// An allocation; its bytes that crossed are those of one step.
    using allocation = crossing_allocation;
    /// Of one step, as means.
    struct kernel
    {
        std::string name; ///< empty: other work, or a kernel without a name
        std::string why;
        double launches = 0;
        double busy_ns = 0;
        double waited_ns = 0;
    };

    /// A tier of memory beyond the share.
    struct tier
    {
        static constexpr int file = -2;
        int card = -1; ///< whose VRAM it is; -1: system RAM; or file
        std::uint64_t limit_bytes = 0;
        std::uint64_t charged_bytes = 0;
        std::uint64_t most_bytes = 0;
        /// Ever, between it and VRAM; of a file, between it and system RAM.
        moved_bytes moved = {};
    };

    treatment is = treatment::resident;
    charged_bytes charged;
    std::vector<tier> beyond; ///< cards that lend, system RAM, the file
    std::uint64_t link_rate = 0;
    std::uint64_t card_bytes = 0;
    std::uint64_t share_bytes = 0;
    std::uint64_t virtual_bytes = 0;
    std::uint64_t in_ram_bytes = 0;   ///< beyond VRAM
    std::uint64_t on_cards_bytes = 0; ///< of those: on other cards
    std::uint64_t in_file_bytes = 0;  ///< of those: in the file
    packed_bytes packed;              ///< ever
    std::string stopped; ///< why movement ended; empty while it goes on

    std::uint64_t steps_ever = 0;
    std::uint64_t steps = 0; ///< that the means are of; 0: there are none
    std::uint64_t round = 0; ///< launches in a step; 0: no rhythm is known
    double launches = 0;
    // Nanoseconds of a step. The parts add up to all of it.
    double took_ns = 0;
    double computing_ns = 0;
    double link_ns = 0;
    double mapping_ns = 0;
    double standing_ns = 0;
    double program_ns = 0;
    double untrusted_ns = 0; ///< nothing could move; not a part
    double slowest_ns = 0;   ///< a step of the slowest sample
    // Bytes of a step.
    double fetched_bytes = 0;
    double evicted_bytes = 0;
    double from_cards_bytes = 0; ///< of those that were fetched
    double to_cards_bytes = 0;   ///< of those that were evicted
    double missed_bytes = 0;
    double used_bytes = 0;
    /// The least time that a step can take, for the bytes that it uses and VRAM
    /// has no room for. It is no less than computing takes if nothing is read
    /// in place. 0: it is not known.
    double limit_ns = 0;

    std::vector<allocation> allocations;
    std::vector<kernel> kernels;
    /// One sentence that the figures support; or empty.
    std::string advice;

    /// Bytes of a step that crossed the link to system RAM.
    double link_to_vram() const { return fetched_bytes - from_cards_bytes; }
    double link_to_ram() const { return evicted_bytes - to_cards_bytes; }
    /// The fraction of the link that crossing bytes take, from 0 to 1; negative
    /// where that is not known.
    double link_share(double bytes) const;
    /// True if other cards lend it VRAM.
    bool is_lent() const { return !beyond.empty() && beyond.front().card >= 0; }
    /// True if there is a file for what has no room in system RAM.
    bool has_file() const
    {
        return !beyond.empty() && beyond.back().card == tier::file;
    }
};

/// Adds a device's figures up, and draws a conclusion if they allow one.
/// @param memory  of that process
summary summarize(const device_statistics &of, mobility memory);

/// The summary as lines of at most 79 characters, without newlines; kernels'
/// names are cut, and may hold any bytes. The advice is not among them.
std::vector<std::string> describe(const summary &what, mobility memory);

} // namespace emuv::cuda

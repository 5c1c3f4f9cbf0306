// SPDX-License-Identifier: GPL-2.0-or-later
// The best that an engine could do that knew the future. docs/reference/tape.md
// says in words what is modelled.
#pragma once

#include "costs.hpp"
#include "score.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

struct oracle_result
{
    /// Nanoseconds of each step, from mark to mark; of all, if there is none.
    std::vector<std::uint64_t> steps;
    std::uint64_t whole_ns = 0;
    std::uint64_t in_bytes = 0;       ///< brought to VRAM
    std::uint64_t out_bytes = 0;      ///< brought to system RAM
    std::uint64_t in_place_bytes = 0; ///< read over the link by kernels

    /// The median of the second half of the steps.
    /// @param least  so many at least: the last one comes again
    [[nodiscard]] std::uint64_t settled_ns(std::size_t least = 0) const;
};

/// A schedule that can be carried out, of a program in so much VRAM:
///
/// - The program's thread goes on as it did, and waits where it waited.
/// - Work runs one at a time, in the order in which it was handed over, once
///   all its bytes are in VRAM.
/// - Each direction of the link carries one piece at a time, at its rate.
/// - Pieces come in the order of their next use, as early as there is room.
/// - Room is made by the piece whose next use is the furthest, if that is
///   further than what comes. It leaves when its last use is over. If it was
///   written to and is needed again, it is copied, as soon as its last change
///   is over. It comes back when that copy is over.
/// - A piece that finds no room is read in place, at the link's rate. So is one
///   that would be the next to leave, if the kernel takes no longer for it.
///   Some of the schedules that are tried do that even if it does.
///
/// Mapping costs nothing here.
/// @param share  bytes of VRAM; UINT64_MAX: the program natively
/// @param least_steps  the schedule that is best for so many, see settled_ns()
oracle_result run_oracle(const score &of, std::uint64_t share,
                         const card_costs &costs, std::size_t least_steps = 0);

/// A bound that no schedule can be below, given the score's uses. It is the
/// larger of two: the time natively, and the least bytes that have to come over
/// the link's rate. Belady's choice tells that least, for memory that can be
/// divided at will, if a missing byte need not be kept.
struct oracle_bound
{
    std::uint64_t native_ns = 0;
    std::uint64_t in_bytes = 0;
    std::uint64_t ns = 0;
};
oracle_bound bound_oracle(const score &of, std::uint64_t share,
                          const card_costs &costs);

} // namespace bench

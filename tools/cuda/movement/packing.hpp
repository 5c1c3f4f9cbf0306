// SPDX-License-Identifier: LGPL-2.1-or-later
// The coded form of 16-bit numbers whose exponents have few values, as a
// model's weights in bf16 do. For the host and for packing.cu.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emuv::cuda {

/// The layout of coded memory.
///
/// A number of bf16 is a sign, 8 bits of exponent, and 7 of mantissa. The
/// weights of a layer have about eight exponents that occur often. Those get 3
/// bits, sign and mantissa stay as they are: 11 bits of 16.
///
/// Numbers are coded in groups. A group's header names its seven most frequent
/// exponents, whose codes are 0 to 6. Code 7 is the escape: the exponent itself
/// stands behind all groups, a byte each. So every content can be coded without
/// loss, and one that is no bf16 takes more bytes than before, up to 19 bits
/// for 16. A decoder needs neither a search nor another group.
///
/// 32 lanes work on a group, each on eight numbers side by side at a time. A
/// number in a group is (turn * 32 + lane) * 8 + which. In this order lie:
///
///   header     where the group's escapes begin, counted from the first one;
///              4 bytes of nothing; 7 exponents, and one that is 0
///   remainders sign and mantissa, a byte each: 16 bytes for a lane's turns 2n
///              and 2n + 1, and so on for all lanes, then for the next two
///   low codes  bits 0 and 1 of the codes: for each lane 16 bits a turn
///   high codes bit 2 of them: for each lane 8 bits a turn
///
/// Escapes of a group are in order of the lane, then of the turn.
struct packing
{
    static constexpr unsigned lanes = 32;
    static constexpr unsigned turns = 8;
    static constexpr unsigned at_once = 8; ///< numbers of a lane in a turn
    static constexpr unsigned group_numbers = lanes * turns * at_once;
    static constexpr std::uint64_t raw_group_bytes = 2 * group_numbers;
    static constexpr unsigned codes = 7;
    static constexpr unsigned escape = 7;

    static constexpr std::uint64_t header_bytes = 16;
    static constexpr std::uint64_t low_at = header_bytes + group_numbers;
    static constexpr std::uint64_t high_at = low_at + group_numbers / 4;
    static constexpr std::uint64_t group_bytes = high_at + group_numbers / 8;

    /// Threads of a block of each kernel.
    static constexpr unsigned threads = 256;

    /// Memory is coded as a whole number of groups.
    static constexpr bool fits(std::uint64_t raw_bytes)
    {
        return raw_bytes > 0 && raw_bytes % raw_group_bytes == 0;
    }
    static constexpr std::uint64_t groups_of(std::uint64_t raw_bytes)
    {
        return raw_bytes / raw_group_bytes;
    }
    /// Bytes of coded memory, a multiple of 16.
    static constexpr std::uint64_t bytes_of(std::uint64_t raw_bytes,
                                            std::uint64_t escapes)
    {
        return groups_of(raw_bytes) * group_bytes + (escapes + 15) / 16 * 16;
    }
    /// The most bytes that coded memory is worth keeping at: it has to gain a
    /// fifth. A multiple of 16.
    static constexpr std::uint64_t most_bytes_of(std::uint64_t raw_bytes)
    {
        return raw_bytes * 4 / 5 / 16 * 16;
    }
    /// Escapes that have room in so much: more than a lane's of one group.
    static constexpr std::uint64_t most_escapes_of(std::uint64_t raw_bytes)
    {
        return most_bytes_of(raw_bytes) - groups_of(raw_bytes) * group_bytes;
    }

    /// The answer of the kernels, in memory that the caller sets to 0.
    struct outcome
    {
        std::uint64_t escapes = 0;   ///< of all groups, with or without room
        std::uint64_t differing = 0; ///< 16-byte words that decode wrongly
    };
};

static_assert(packing::group_bytes % 16 == 0);
static_assert(sizeof(packing::outcome) == 16);

} // namespace emuv::cuda

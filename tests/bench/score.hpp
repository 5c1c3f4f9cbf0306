// SPDX-License-Identifier: GPL-2.0-or-later
// A tape as an engine sees it: pieces of memory, and work that uses them.
#pragma once

#include "tape.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bench {

/// A part of an allocation that is used as a whole.
struct piece
{
    std::uint32_t allocation = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

struct use
{
    std::uint32_t piece = 0;
    bool writes = false;
    bool fresh = false; ///< its bytes do not count before: nobody wrote them
};

enum class what
{
    work,     ///< of the device
    copy_in,  ///< from the host's memory, over the link
    copy_out, ///< to it
    allocate,
    free,
    wait, ///< the program's thread, for the device
    mark, ///< a step of the program's ends, and the next begins
};

struct item
{
    bench::what what = bench::what::work;
    std::uint64_t gap = 0;  ///< nanoseconds of the program's thread before it
    std::uint64_t host = 0; ///< nanoseconds that handing it over takes
    /// Nanoseconds of the program's thread behind it, and behind the launch
    /// where it is a graph's node.
    std::uint64_t after = 0;
    std::uint64_t ns = 0;    ///< on the device, with all of it in VRAM
    std::uint64_t bytes = 0; ///< over the link, of a copy
    std::uint32_t allocation = 0;
    std::uint32_t stream = 0;
    std::uint64_t kind = 0;    ///< the same number for work of the same kind
    std::uint32_t kernel = 0;  ///< in the tape; emuv::tape::none: no kernel
    bool in_graph = false;     ///< it is a node of a launched graph
    bool graph_begins = false; ///< the first of its launch
    /// Its graph has nodes that the library does not launch one by one.
    bool is_whole = false;
    bool waits = false; ///< the program's thread waits until it is done
    std::size_t first_use = 0;
    std::size_t uses = 0;
    std::size_t first_name = 0; ///< addresses that it is given
    std::size_t names = 0;
};

/// Which of the memory that a kernel names is taken to be written: tapes do not
/// say.
enum class written
{
    made, ///< what nobody wrote before
    all,
};

struct score
{
    std::vector<piece> pieces;
    std::vector<use> uses;
    std::vector<emuv::tape::place> names; ///< of the device's memory
    std::vector<item> items;
    std::uint64_t peak_bytes = 0; ///< of the device's memory at any time
    std::string problem; ///< why there is none: it is more than a run can hold

    [[nodiscard]] std::span<const use> uses_of(const item &of) const
    {
        return std::span(uses).subspan(of.first_use, of.uses);
    }
    [[nodiscard]] std::span<const emuv::tape::place>
    names_of(const item &of) const
    {
        return std::span(names).subspan(of.first_name, of.names);
    }
};

/// No piece is larger, and none smaller unless its allocation is.
inline constexpr std::uint64_t most_piece = std::uint64_t{32} << 20;
inline constexpr std::uint64_t least_piece = std::uint64_t{64} << 10;

/// A row is at most so much of an allocation, or of the largest piece.
inline constexpr std::uint64_t first_row_divisor = 16;

/// A kernel is taken to use all from an address on to the next address in that
/// allocation that was ever given to anything. Addresses in its first row do
/// not count, much as in the engine. Work of several
/// streams comes one after the other, as it was handed over.
score make_score(const emuv::tape::tape &from, written how = written::made);

} // namespace bench

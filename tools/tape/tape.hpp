// SPDX-License-Identifier: GPL-2.0-or-later
// A tape in memory: what a program did, in order. docs/reference/tape.md has
// the format.
#pragma once

#include "record/format.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace emuv::tape {

/// "None" of an ordinal.
inline constexpr std::uint32_t none = UINT32_MAX;

/// An address as an allocation and an offset into it, in bytes. The allocation
/// is `none` for memory that the tape does not know.
struct place
{
    std::uint32_t allocation = none;
    std::uint64_t offset = 0; ///< < the allocation's bytes

    bool operator==(const place &) const = default;
};

struct allocation
{
    memory_kind kind = memory_kind::device;
    std::uint64_t bytes = 0;     ///< 1 to 2^50
    std::uint32_t stream = 0;    ///< of `ordered`
    place of;                    ///< of a `part`: where it lies
    std::size_t born = 0;        ///< the step that made it
    std::size_t gone = SIZE_MAX; ///< the step that freed it
};

/// A kernel with a grid, and where among its parameters addresses are.
struct shape
{
    std::uint32_t kernel = 0;
    std::uint32_t grid[3] = {};
    std::uint32_t block[3] = {};
    std::uint32_t shared_bytes = 0;
    std::vector<std::uint32_t> positions; ///< bytes into the parameters
    std::uint64_t ns = 0; ///< the median of its times; 0: not known
};

/// A node of a graph.
struct node
{
    node_kind kind = node_kind::other;
    std::uint32_t shape = 0;         ///< of a kernel
    std::vector<place> names;        ///< of a kernel
    place to;                        ///< of a copy, a fill, an end of memory
    place from;                      ///< of a copy
    std::uint64_t bytes = 0;         ///< of a copy, a fill, an allocation
    std::uint32_t allocation = none; ///< that an allocation makes
};

/// An executable graph as it was for some of its launches. See nodes_of().
struct graph
{
    std::uint32_t ordinal = 0;
    std::uint32_t count = 0;     ///< of its nodes
    std::vector<node> nodes;     ///< if it is kept as a whole
    std::uint32_t whole = none;  ///< the version that its nodes are in
    std::uint32_t before = none; ///< the version that it was made of, if any
    /// Places and nodes that are other than in that, in order.
    std::vector<std::pair<std::uint32_t, node>> changes;
    std::size_t changes_weight = 0; ///< of all changes since `whole`
    std::size_t weight = 0; ///< of its nodes and their addresses, if whole
    std::uint64_t ns = 0;   ///< the median of its times; 0: not known
};

/// One call of the program's.
struct step
{
    code what = code::end;
    std::uint64_t gap = 0;  ///< nanoseconds on the host since the last call
    std::uint64_t took = 0; ///< nanoseconds that the call took
    std::uint32_t stream = 0;
    /// Of an allocation or its end: which. Of a launch: its shape. Of a graph:
    /// its place in tape::graphs. Of a wait: the wait_kind. Of a mark: its
    /// value.
    std::uint32_t which = 0;
    std::uint32_t event = 0; ///< or a stream, of a synchronisation
    bool waits = false;      ///< a copy or a fill that returns when done
    copy_kind way = copy_kind::any;
    place to;
    place from;
    std::uint64_t bytes = 0;
    std::size_t first_name = 0; ///< in tape::names
    std::size_t names = 0;
    std::uint64_t ns = 0; ///< of a launch on the device; 0: not timed
};

struct tape
{
    std::vector<std::pair<std::string, std::string>> about;
    std::vector<std::string> kernels;
    std::vector<shape> shapes;
    std::vector<allocation> allocations;
    std::vector<graph> graphs;
    std::vector<step> steps;
    std::vector<place> names;
    std::uint32_t streams = 0; ///< with the two that all tapes have
    std::uint32_t events = 0;
    std::uint64_t overhead_ns = 0; ///< of timing, taken off all times
    std::uint64_t timed = 0;       ///< launches whose own time is known
    bool ended = false;            ///< the program ended in order
    bool cut = false;              ///< the last record is not whole

    [[nodiscard]] std::span<const place> names_of(const step &of) const
    {
        return std::span(names).subspan(of.first_name, of.names);
    }
    /// The text that is said about it by a key, or "".
    [[nodiscard]] std::string_view said(std::string_view key) const;
};

/// Why a tape was not read.
struct wrong
{
    std::string why; ///< "byte 17: an unknown record 0x7f"
};

/// Reads a tape. Input of any kind is answered with a tape or an error. A last
/// record that is cut off is left out: programs end at any time.
/// @param content  not compressed
/// @return false, with @p error set
bool read(std::span<const unsigned char> content, tape &out, wrong &error);

/// Reads a tape's file, also one that zstd or gzip compressed; for that these
/// programs must be there.
bool read_file(const std::string &path, tape &out, wrong &error);
/// The same of an open file, which may be a pipe.
/// @param file  stays open
/// @param begun  the bytes that were read of it already
bool read_file(int file, std::span<const unsigned char> begun, tape &out,
               wrong &error);

/// A tape in numbers.
struct summary
{
    std::uint64_t allocations = 0;
    std::uint64_t launches = 0; ///< of kernels
    std::uint64_t graph_launches = 0;
    std::uint64_t copies = 0;
    std::uint64_t copied_bytes = 0;
    std::uint64_t fills = 0;
    std::uint64_t waits = 0;
    std::uint64_t marks = 0;
    std::uint64_t peak_bytes = 0; ///< of the device's memory at any time
    std::uint64_t host_ns = 0;    ///< from the first call to the last
    std::uint64_t device_ns = 0;  ///< of all launches, where known
    std::uint64_t step_ns = 0;    ///< on the host between marks; the median
};
[[nodiscard]] summary summarize(const tape &of);

/// True if it is the device's memory: all kinds but pinned.
[[nodiscard]] inline bool on_device(memory_kind kind)
{
    return kind != memory_kind::pinned;
}
/// True if it takes memory of the device for itself. Parts lie in others.
[[nodiscard]] inline bool takes_vram(memory_kind kind)
{
    return on_device(kind) && kind != memory_kind::part;
}

/// The nodes of a graph as it was.
/// @param which  the place of its version in tape::graphs
/// @return pointers into the tape
[[nodiscard]] std::vector<const node *> nodes_of(const tape &in,
                                                 std::size_t which);

/// The memory that graphs hold by nodes of their own, from when they are made
/// executable, or change, until they are gone.
class graph_memory
{
public:
    /// A graph comes, changes or goes.
    /// @param change  called for each allocation, with whether it comes
    template <typename Change>
    void change(const tape &in, const step &by, Change change)
    {
        const graph &is = in.graphs[by.which];
        std::vector<std::uint32_t> &mine = of_[is.ordinal];
        for (const std::uint32_t each : mine)
            change(each, false);
        mine.clear();
        if (by.what == code::graph_gone)
            return;
        for (const node &each : is.nodes)
            if (each.kind == node_kind::allocate) {
                mine.push_back(each.allocation);
                change(each.allocation, true);
            }
    }

private:
    std::map<std::uint32_t, std::vector<std::uint32_t>> of_;
};

/// The time of a launch of a kernel on the device: its own, else its shape's,
/// else @p otherwise.
[[nodiscard]] std::uint64_t time_of(const tape &in, const step &launch,
                                    std::uint64_t otherwise = 2000);

/// The times of a graph's nodes. They add up to that of the launch, or of the
/// graph, where that is known.
[[nodiscard]] std::vector<std::uint64_t> times_of(const tape &in,
                                                  const step &launch);

} // namespace emuv::tape

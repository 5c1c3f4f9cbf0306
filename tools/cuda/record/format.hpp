// SPDX-License-Identifier: LGPL-2.1-or-later
// The format of tapes: docs/reference/tape.md has it in words. The library
// writes it and tools/tape reads it.
#pragma once

#include <array>
#include <cstdint>

namespace emuv::tape {

inline constexpr std::array<char, 8> magic = {'e', 'm', 'u', 'v',
                                              't', 'a', 'p', 'e'};
inline constexpr std::uint64_t version = 2;
/// The first that is still read. It has no parts.
inline constexpr std::uint64_t first_version = 1;

/// The first byte of each record.
enum class code : std::uint8_t
{
    end = 0x00,
    about = 0x01,
    kernel = 0x02,
    shape = 0x03,
    stream = 0x04,
    // With a gap and a duration on the host.
    allocate = 0x10,
    free = 0x11,
    launch = 0x12,
    copy = 0x13,
    fill = 0x14,
    graph = 0x15,
    graph_launch = 0x16,
    graph_gone = 0x17,
    event_record = 0x18,
    event_wait = 0x19,
    synchronize = 0x1a,
    stream_gone = 0x1b,
    node_changed = 0x1c,
    graph_changed = 0x1d,
    mark = 0x1e,
    host_work = 0x1f,
    // Found out later.
    duration = 0x20,
    overhead = 0x21,
};

/// The kinds of memory.
enum class memory_kind : std::uint8_t
{
    device = 0,  ///< cuMemAlloc
    ordered = 1, ///< allocated in stream order
    mapped = 2,  ///< cuMemMap of a handle
    managed = 3,
    pinned = 4, ///< the host's
    graph = 5,  ///< by a node of a graph
    /// Of another allocation, which the program's own allocator divides.
    part = 6,
    count
};

/// The kinds of a graph's nodes.
enum class node_kind : std::uint8_t
{
    other = 0,
    kernel = 1,
    copy = 2,
    fill = 3,
    allocate = 4,
    free = 5,
    count
};

/// The ways of a copy, as the program's call says.
enum class copy_kind : std::uint8_t
{
    any = 0, ///< the driver finds out
    to_device = 1,
    to_host = 2,
    on_device = 3,
    count
};

/// The ends that a synchronisation waits for.
enum class wait_kind : std::uint8_t
{
    context = 0,
    stream = 1,
    event = 2,
    count
};

/// A bit of a copy's or a fill's flags: the call returns once it is done.
inline constexpr std::uint64_t flag_waits = 1;

/// Streams that every tape has.
inline constexpr std::uint64_t legacy_stream = 0;
inline constexpr std::uint64_t per_thread_stream = 1;
inline constexpr std::uint64_t first_own_stream = 2;

} // namespace emuv::tape

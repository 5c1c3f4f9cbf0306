// SPDX-License-Identifier: GPL-2.0-or-later
// The costs of a card's copies and mappings, from a file (card.json).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {

/// Launches that the driver takes before the first of them ends. The next one
/// waits.
inline constexpr std::size_t most_queued = 1024;

/// Nanoseconds: at rest, while bytes come, while they leave in turns, while
/// both do. For VRAM they are for a handle, for system RAM for 64 MiB.
struct mapping_cost
{
    std::uint64_t rest, coming, leaving, both;
};

/// The card that programs are run before. The members have the file's names.
/// Rates are in bytes a microsecond, times in nanoseconds. Without a file they
/// are card.json's.
struct card_costs
{
    std::uint64_t link_in_alone = 54900;
    std::uint64_t link_in_beside = 50900;
    std::uint64_t link_out_alone = 50900;
    std::uint64_t link_out_beside = 44200;
    std::uint64_t in_place = 50000; ///< a kernel that reads system RAM
    std::uint64_t digest = 4300000;
    mapping_cost map_vram{60000, 140000, 150000, 215000};
    mapping_cost unmap_vram{40000, 115000, 115000, 170000};
    mapping_cost map_ram{561000, 874000, 675000, 1015000};
    mapping_cost unmap_ram{152000, 416000, 177000, 438000};
    std::uint64_t make_room_ns = 11500000; ///< 64 MiB
    std::uint64_t make_frame_ns = 52000;   ///< beside a kernel
    std::uint64_t drop_frame_ns = 16000;
    std::uint64_t launch_ns = 8000; ///< of the program's thread
};

/// Reads a file of costs: an object of numbers, and of texts that are for
/// people.
/// @return false, with @p error set, if the file cannot be read, has a name
///   that is not known, or lacks one
bool read_costs(const std::string &path, card_costs &out, std::string &error);

} // namespace bench

// SPDX-License-Identifier: LGPL-2.1-or-later
// A device's memory at one moment, as a choice sees it.
#pragma once

#include "policy/advice.hpp"
#include "policy/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// The place of a unit.
enum class place
{
    host,
    vram,
    fetching, ///< in system RAM, a copy to a frame under way
    evicting, ///< in VRAM, on its way out
};

/// A unit that may move. Plain values: a view can be written down in a test, or
/// read from a tape.
struct unit_view
{
    std::uint64_t bytes = 0;
    /// Steps until its next use; 0 while a launch waits for it;
    /// schedule::never if no use is predicted. Not asked for of a fixed unit,
    /// unless it is fresh.
    std::uint64_t next_use = schedule::never;
    /// The same steps, counted from its last use.
    std::uint64_t gap = 0;
    std::uint64_t idle = 0;       ///< uses of anything since its last one
    std::uint64_t heat = 0;       ///< see heat; filled in for exchanges alone
    std::uint32_t allocation = 0; ///< units of one stand side by side
    place where = place::host;

    bool small = false;      ///< of a small allocation; a launch waits for it
    bool fixed = false;      ///< stays where it is, for good
    bool busy = false;       ///< work in flight may reach its allocation
    bool vacant = false;     ///< its allocation is freed, and kept
    bool blank = false;      ///< its contents are of no use: no copy needed
    bool made = false;       ///< it holds VRAM for the next owner, or is
                             ///< about to
    bool fresh = false;      ///< fetched, and not used since
    bool leaves = false;     ///< planned to leave VRAM in some of its gaps
    bool passes = false;     ///< planned to leave VRAM in this gap
    bool stays_away = false; ///< arranged to stay in system RAM
    bool has_frame = false;  ///< VRAM is attached to it
    bool has_room = false;   ///< system RAM is attached to it
    bool room_is_charged = false; ///< by itself: the room may change hands
    bool room_has_alias = false;  ///< copies can reach it
    /// A digest of the room, which an eviction has proven, tells if the unit
    /// has to be written back.
    bool room_is_proven = false;
    advice said; ///< what the program says of it

    bool is_idle() const { return !fixed && !busy; }
    bool in_ram() const
    {
        return where == place::host || where == place::fetching;
    }
    /// True if its room in system RAM holds nothing that is needed there.
    bool has_idle_room() const { return where == place::vram && has_room; }
};

/// The motions under way, in bytes and units.
struct traffic
{
    std::size_t fetching = 0;
    std::size_t evicting = 0;
    std::uint64_t coming_bytes = 0;  ///< copied to a frame
    std::uint64_t arrived_bytes = 0; ///< in a frame, and not mapped yet
    std::uint64_t leaving_bytes = 0;
    std::vector<std::uint64_t> leaving_sizes; ///< one for each unit
};

/// VRAM at hand.
struct vram_view
{
    std::uint64_t share_bytes = 0;     ///< of the ledger
    std::uint64_t free_bytes = 0;      ///< of the share, charged to nobody
    std::vector<std::uint64_t> frames; ///< the sizes of free frames
    std::uint64_t frames_below = UINT64_MAX; ///< the driver refused this size
    std::uint64_t kept_bytes = 0; ///< free as well, but for no unit: see keep()

    std::uint64_t frame_bytes() const
    {
        std::uint64_t bytes = 0;
        for (const std::uint64_t each : frames)
            bytes += each;
        return bytes;
    }
    bool has_frame(std::uint64_t bytes) const
    {
        return std::find(frames.begin(), frames.end(), bytes) != frames.end();
    }
    /// Takes so many of the free bytes to kept_bytes, as a frame of that size
    /// would be made. A frame of its size goes first, then what is charged to
    /// nobody, then the smallest frame that is enough. Nothing goes where there
    /// are too few.
    void keep(std::uint64_t bytes)
    {
        auto best = frames.end();
        for (auto at = frames.begin(); at != frames.end(); ++at)
            if (*at >= bytes && (best == frames.end() || *at < *best))
                best = at;
        const bool is_alike = best != frames.end() && *best == bytes;
        if (!is_alike && free_bytes >= bytes) {
            free_bytes -= bytes;
        } else if (best != frames.end()) {
            free_bytes += *best - bytes;
            frames.erase(best);
        } else {
            return;
        }
        kept_bytes += bytes;
    }
    /// True if a frame of that size is free, or can be made while all others
    /// are kept.
    bool may_fit(std::uint64_t bytes) const
    {
        return has_frame(bytes) ||
               (bytes <= free_bytes && bytes < frames_below);
    }
};

/// System RAM for units that leave VRAM.
struct rooms_view
{
    std::uint64_t below = UINT64_MAX; ///< this size was refused lately
    bool maps = true; ///< a room without an address can be given one
};

/// All that a choice rests on.
struct view
{
    std::vector<unit_view> units;
    traffic under_way;
    vram_view vram;
    rooms_view rooms;
    std::uint64_t host_bytes = 0;     ///< in system RAM, of all allocations
    std::uint64_t headroom_bytes = 0; ///< VRAM to keep for units on the move
    std::uint64_t wanted_bytes = 0;   ///< VRAM that must be given up
    bool predicts = false;            ///< the past shows the way
    bool moves = false;               ///< memory moves ahead of its use
    bool arranges = false;     ///< memory is arranged once, and then stays
    bool launch_waits = false; ///< a launch waits for memory
    bool on_demand = false;    ///< launches fetch what they name
    bool any_vacant = false;   ///< freed allocations are kept
    bool may_digest = false;   ///< one more unit can be looked at
};

} // namespace emuv::cuda

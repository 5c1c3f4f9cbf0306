// SPDX-License-Identifier: LGPL-2.1-or-later
// What the user asked for, read once from the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace emuv::cuda {

/// What memory queries answer with.
enum class report_kind
{
    total,    ///< physical + virtual
    physical, ///< the physical part only
    free,     ///< the card's own total; only what is free is the instance's
};

/// Where memory beyond the card's share comes from.
enum class store_kind
{
    automatic, ///< what a trial shows to be better
    numa,      ///< HOST_NUMA handles
    pages,     ///< pages of the instance or of a memfd, registered
};

/// What is charged to the share of VRAM.
enum class charged_kind
{
    all,         ///< what the process holds, CUDA's contexts and code too
    allocations, ///< what the program allocates
};

/// What is at an address whose memory has left VRAM, until it is wanted.
enum class away_kind
{
    mapped,   ///< the same bytes in system RAM
    unmapped, ///< nothing
};

/// The settings of docs/cuda/settings.md, each under its own name.
struct settings
{
    bool disabled = false;
    std::optional<std::uint64_t> physical_bytes;
    std::optional<std::uint64_t> virtual_bytes;
    /// By device ordinal; devices behind the last one share the last one.
    std::vector<int> instances;
    const char *ledger_path = nullptr;
    report_kind report = report_kind::total;
    store_kind store = store_kind::automatic;
    charged_kind charge = charged_kind::all;
    /// Whether memory moves between VRAM and system RAM.
    bool move = false;
    /// And does so even where that is slower.
    bool move_always = false;
    /// Or it only looks as if, to find out whether the program's kernels keep
    /// to what they are given.
    bool move_check = false;
    away_kind away = away_kind::mapped;
    const char *trust = "known";
    const char *trace_path = nullptr;
    /// Large allocations that fit in VRAM are the driver's own, so that other
    /// processes can open them.
    bool ipc = false;

    /// Who caches memory is asked to give it back before any spills.
    bool reclaim = false;

    /// The variable that could not be understood, and why; null when all
    /// could.
    const char *wrong_name = nullptr;
    const char *wrong_value = nullptr;
    const char *wrong_why = nullptr;

    /// Whether there is a limit to keep at all.
    bool limited() const
    {
        return !disabled &&
               (physical_bytes || virtual_bytes || !instances.empty());
    }
};

/// Reads them. The strings that the result points to are the environment's.
/// @param get  std::getenv, or a test's own
settings read_settings(char *(*get)(const char *name));

} // namespace emuv::cuda

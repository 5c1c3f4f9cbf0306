// SPDX-License-Identifier: GPL-2.0-or-later
// The lines of instances and clients that top lists, in their order.
#pragma once

#include "history.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emuvctl::watch {

/// The orders that lines can have.
enum class order
{
    name,
    pid,
    vram,
    ram,
    resident,
    fetched,
    evicted,
    hits,
    stalled,
};

/// All orders, with their headings.
inline constexpr std::array<std::pair<order, std::string_view>, 9> orders = {{
    {order::name, "NAME"},
    {order::pid, "PID"},
    {order::vram, "VRAM"},
    {order::ram, "RAM"},
    {order::resident, "RESIDENT"},
    {order::fetched, "FETCH/S"},
    {order::evicted, "EVICT/S"},
    {order::hits, "HIT"},
    {order::stalled, "STALL"},
}};

/// How lines are listed.
struct arrangement
{
    order by = order::vram;
    bool rising = false;
    bool tree = true; ///< instances with clients below; else all clients
    /// Only lines with this in their name, PID or instance; any case.
    std::string filter = {};
};

/// A line.
struct line
{
    holder who;
    std::string name; ///< the process, or "emuv0" and its model
    int pid = 0;      ///< 0: none to be seen
    std::uint64_t vram = 0;
    std::uint64_t vram_limit = 0; ///< 0: a client has none
    std::uint64_t ram = 0;
    std::optional<std::uint64_t> resident = {};
    std::optional<rates> moved = {};
    std::optional<double> hits = {};

    [[nodiscard]] bool is_instance() const { return who.client == 0; }
};

/// The lines of the last sample.
std::vector<line> arrange(const history &of, const arrangement &how);

/// True if @p text has @p part in it, any case.
bool contains_text(std::string_view text, std::string_view part);

} // namespace emuvctl::watch

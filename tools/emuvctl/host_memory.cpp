// SPDX-License-Identifier: GPL-2.0-or-later
// The host's RAM, and how much of it instances can be promised.
#include "host_memory.hpp"

#include "environment.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

namespace emuvctl {

namespace {

std::optional<std::uint64_t> number(std::string_view text)
{
    while (text.starts_with(' '))
        text.remove_prefix(1);
    std::uint64_t value = 0;
    const auto [stop, problem] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc())
        return std::nullopt;
    return value;
}

} // namespace

std::optional<host_memory> read_host_memory(const environment &env)
{
    const auto text = emuv::read_line_file(env.proc / "meminfo");
    if (!text)
        return std::nullopt;
    const auto field =
        [&](std::string_view key) -> std::optional<std::uint64_t> {
        const auto at = text->find(key);
        if (at == std::string::npos)
            return std::nullopt;
        const auto kib =
            number(std::string_view(*text).substr(at + key.size()));
        if (!kib)
            return std::nullopt;
        return *kib << 10U;
    };
    const auto total = field("MemTotal:");
    const auto available = field("MemAvailable:");
    if (!total || !available)
        return std::nullopt;
    host_memory host;
    host.total_bytes = *total;
    host.available_bytes = *available;
    // Without the module: the floor that it would keep by default.
    const auto floor = env.sysfs().parameter("host_floor_mb");
    host.floor_bytes =
        floor ? number(*floor).value_or(0) << 20U
              : std::min(host.total_bytes / 16, std::uint64_t{4} << 30U);
    return host;
}

} // namespace emuvctl

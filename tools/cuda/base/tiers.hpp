// SPDX-License-Identifier: LGPL-2.1-or-later
// Places for memory beyond a share, as the user writes them.
#pragma once

#include "base/size.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace emuv::cuda {

/// VRAM of another card: peer:1=40G.
struct tier
{
    int device = 0;          ///< its ordinal
    std::uint64_t bytes = 0; ///< whole chunks, more than none
};

/// Reads tiers between commas, the first one to use first. A card may be named
/// once.
/// @param all  out: what was read
/// @return false if that is no list of them
inline bool read_tiers(std::string_view text, std::vector<tier> &all)
{
    constexpr std::string_view kind = "peer:";
    constexpr std::uint64_t most_bytes = std::uint64_t{1} << 50;
    constexpr int devices = 64;
    for (bool more = true; more;) {
        const std::size_t end = text.find(',');
        std::string_view one = text.substr(0, end);
        more = end != std::string_view::npos;
        text.remove_prefix(more ? end + 1 : text.size());
        const std::size_t sign = one.find('=');
        if (!one.starts_with(kind) || sign == std::string_view::npos)
            return false;
        const std::string_view number =
            one.substr(kind.size(), sign - kind.size());
        if (number.empty() || number.size() > 2)
            return false;
        tier made;
        for (const char c : number) {
            if (c < '0' || c > '9')
                return false;
            made.device = made.device * 10 + (c - '0');
        }
        const size_reading size = read_size(one.substr(sign + 1));
        made.bytes = size.bytes / chunk_bytes * chunk_bytes;
        if (size.problem != size_problem::none || made.device >= devices ||
            made.bytes == 0 || made.bytes > most_bytes)
            return false;
        for (const tier &each : all)
            if (each.device == made.device)
                return false;
        all.push_back(made);
    }
    return true;
}

} // namespace emuv::cuda

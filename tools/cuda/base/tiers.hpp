// SPDX-License-Identifier: LGPL-2.1-or-later
// Places for memory beyond a share, as the user writes them.
#pragma once

#include "base/size.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emuv::cuda {

/// VRAM of another card: peer:1=40G.
struct tier
{
    int device = 0;          ///< its ordinal
    std::uint64_t bytes = 0; ///< whole chunks, more than none
};

/// All places beyond a share. Sizes are in whole chunks, more than none.
struct places
{
    std::vector<tier> cards;                ///< the first one to use first
    std::uint64_t packed_bytes = 0;         ///< packed=8G: of the system RAM
    std::optional<std::uint64_t> ram_bytes; ///< ram=48G
    std::string folder; ///< file:/var/lib/emuv=200G; empty: there is no file
    std::uint64_t file_bytes = 0;

    bool has_file() const { return !folder.empty(); }
    /// True if some of it cannot lie in registered pages.
    bool needs_handles() const
    {
        return !cards.empty() || has_file() || packed_bytes > 0;
    }
    bool empty() const
    {
        return cards.empty() && !ram_bytes.has_value() && !has_file() &&
               packed_bytes == 0;
    }
};

/// Reads places between commas, from the fastest on: cards, coded copies in
/// system RAM, system RAM, a file. A card may be named once.
class places_reader
{
public:
    /// @param all  out: what was read
    /// @return null, or what is wrong with the text, as the end of a sentence
    static const char *read(std::string_view text, places &all)
    {
        places_reader of(all);
        for (bool more = true; more;) {
            const std::size_t end = text.find(',');
            const std::string_view one = text.substr(0, end);
            more = end != std::string_view::npos;
            text.remove_prefix(more ? end + 1 : text.size());
            if (const char *const why = of.read_one(one); why != nullptr)
                return why;
        }
        return nullptr;
    }

    static constexpr char not_a_list[] =
        "is no list of tiers, such as peer:1=40G, packed=8G, ram=48G or "
        "file:/var/lib/emuv=200G";
    static constexpr char not_in_order[] =
        "names tiers twice, or not from the fastest on: cards, then packed, "
        "then ram, then a file";
    static constexpr char no_whole_path[] =
        "has no whole path for the file: write file:/var/lib/emuv=200G, the "
        "folder without a comma in it";

private:
    explicit places_reader(places &all) : all_(all) {}

    const char *read_one(std::string_view one)
    {
        constexpr std::uint64_t most_bytes = std::uint64_t{1} << 50;
        const std::size_t sign = one.rfind('=');
        if (sign == std::string_view::npos)
            return one.starts_with("file:") ? no_whole_path : not_a_list;
        const size_reading size = read_size(one.substr(sign + 1));
        const std::uint64_t bytes = size.bytes / chunk_bytes * chunk_bytes;
        if (size.problem != size_problem::none || bytes == 0 ||
            bytes > most_bytes)
            return not_a_list;
        const std::string_view where = one.substr(0, sign);
        if (where == "packed") {
            if (all_.packed_bytes > 0 || all_.ram_bytes || all_.has_file())
                return not_in_order;
            all_.packed_bytes = bytes;
            return nullptr;
        }
        if (where == "ram") {
            if (all_.ram_bytes || all_.has_file())
                return not_in_order;
            all_.ram_bytes = bytes;
            return nullptr;
        }
        if (where.starts_with("file:"))
            return read_file(where.substr(5), bytes);
        return read_card(where, bytes);
    }

    const char *read_file(std::string_view folder, std::uint64_t bytes)
    {
        if (all_.has_file())
            return not_in_order;
        if (folder.empty() || folder.front() != '/')
            return no_whole_path;
        all_.folder = folder;
        all_.file_bytes = bytes;
        return nullptr;
    }

    const char *read_card(std::string_view where, std::uint64_t bytes)
    {
        constexpr std::string_view kind = "peer:";
        constexpr int devices = 64;
        if (!where.starts_with(kind))
            return not_a_list;
        const std::string_view number = where.substr(kind.size());
        if (number.empty() || number.size() > 2)
            return not_a_list;
        tier made{0, bytes};
        for (const char c : number) {
            if (c < '0' || c > '9')
                return not_a_list;
            made.device = made.device * 10 + (c - '0');
        }
        if (made.device >= devices)
            return not_a_list;
        for (const tier &each : all_.cards)
            if (each.device == made.device)
                return not_in_order;
        if (all_.packed_bytes > 0 || all_.ram_bytes || all_.has_file())
            return not_in_order;
        all_.cards.push_back(made);
        return nullptr;
    }

    places &all_;
};

} // namespace emuv::cuda

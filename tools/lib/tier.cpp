// SPDX-License-Identifier: LGPL-2.1-or-later
// Reads and writes the tiers of an instance.
#include "quoted.hpp"

#include <emuv/name.hpp>
#include <emuv/profile.hpp>
#include <emuv/size.hpp>
#include <emuv/sysfs.hpp>

#include <algorithm>
#include <stdexcept>

namespace emuv {

namespace {

// As text: what a line of a profile has room for.
constexpr std::size_t longest = 160;

// Numbers of the same instance are the same, however they are written.
bool is_same(const std::string &one, const std::string &other)
{
    const auto id = parse_instance(one);
    return id ? id == parse_instance(other) : one == other;
}

// As an instance may be called here, by its number or a name: no path.
bool is_called_so(std::string_view text)
{
    return is_name(text) ||
           (parse_instance(text) && text.find('/') == std::string_view::npos);
}

tier parse_tier(std::string_view text)
{
    const auto sign = text.find('=');
    if (sign == std::string_view::npos || !is_called_so(text.substr(0, sign)))
        throw std::invalid_argument(quoted(text) +
                                    " is no tier; one is an instance and a "
                                    "size, such as emuv1=40G");
    tier made;
    made.instance = text.substr(0, sign);
    made.bytes = parse_size(text.substr(sign + 1));
    if (made.bytes == 0 || made.bytes % EMUV_CHUNK_BYTES != 0 ||
        made.bytes > EMUV_MAX_BYTES)
        throw std::invalid_argument(
            quoted(text) + ": a tier has a multiple of " +
            format_size_exact(EMUV_CHUNK_BYTES) + ", from that to " +
            format_size_exact(EMUV_MAX_BYTES));
    return made;
}

} // namespace

std::vector<tier> parse_tiers(std::string_view text)
{
    if (text == "none")
        return {};
    std::vector<tier> all;
    for (bool more = true; more;) {
        const auto end = text.find(',');
        more = end != std::string_view::npos;
        tier made = parse_tier(text.substr(0, end));
        text.remove_prefix(more ? end + 1 : text.size());
        if (std::any_of(all.begin(), all.end(), [&](const tier &each) {
                return is_same(each.instance, made.instance);
            }))
            throw std::invalid_argument(emuv::quoted(made.instance) +
                                        " stands there twice");
        all.push_back(std::move(made));
    }
    if (format_tiers(all).size() > longest)
        throw std::invalid_argument("these are too many tiers");
    return all;
}

std::string format_tiers(const std::vector<tier> &tiers)
{
    std::string text;
    for (const tier &each : tiers) {
        std::string size = format_size_exact(each.bytes);
        std::erase(size, ' ');
        text += (text.empty() ? "" : ",") + each.instance + "=" + size;
    }
    return text;
}

} // namespace emuv

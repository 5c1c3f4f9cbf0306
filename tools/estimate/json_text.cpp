// SPDX-License-Identifier: GPL-2.0-or-later
// JSON that nobody vouches for.
#include "json_text.hpp"

#include <fmt/format.h>

namespace emuv::estimate {

namespace {

constexpr int deepest = 32;

} // namespace

nlohmann::json parse_json(const std::string &name, std::string_view text)
{
    using event = nlohmann::json::parse_event_t;
    nlohmann::json all;
    try {
        all = nlohmann::json::parse(
            text, [&](int depth, event, nlohmann::json &) {
                if (depth > deepest)
                    throw unreadable(fmt::format(
                        "{}: values nest more than {} deep", name, deepest));
                return true;
            });
    } catch (const nlohmann::json::parse_error &problem) {
        throw unreadable(
            fmt::format("{}: byte {}: no JSON", name, problem.byte));
    } catch (const nlohmann::json::exception &) {
        throw unreadable(fmt::format("{}: a number is too large", name));
    }
    if (!all.is_object())
        throw unreadable(fmt::format("{}: no JSON object", name));
    return all;
}

bool members::has(const char *key) const
{
    return find(key) != nullptr;
}

const nlohmann::json *members::find(const char *key) const
{
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void members::refuse(const char *key, const std::string &why) const
{
    throw unreadable(fmt::format("{}: {}{}: {}", file_, place_, key, why));
}

std::uint64_t members::number(const char *key, std::uint64_t least,
                              std::uint64_t most) const
{
    const auto *const found = find(key);
    if (found == nullptr)
        refuse(key, "is missing");
    if (!found->is_number_unsigned())
        refuse(key, "is no whole number");
    const auto value = found->get<std::uint64_t>();
    if (value < least || value > most)
        refuse(key,
               fmt::format("{} is not within {} and {}", value, least, most));
    return value;
}

std::uint64_t members::number_or(const char *key, std::uint64_t otherwise,
                                 std::uint64_t most) const
{
    return has(key) ? number(key, 0, most) : otherwise;
}

bool members::flag_or(const char *key, bool otherwise) const
{
    const auto *const found = find(key);
    if (found == nullptr)
        return otherwise;
    if (!found->is_boolean())
        refuse(key, "is neither true nor false");
    return found->get<bool>();
}

std::string members::text_or(const char *key, const char *otherwise) const
{
    const auto *const found = find(key);
    if (found == nullptr)
        return otherwise;
    if (!found->is_string())
        refuse(key, "is no text");
    return found->get<std::string>();
}

members members::object(const char *key) const
{
    const auto *const found = find(key);
    if (found == nullptr)
        refuse(key, "is missing");
    if (!found->is_object())
        refuse(key, "is no object");
    return {file_, *found, place_ + key + "."};
}

} // namespace emuv::estimate

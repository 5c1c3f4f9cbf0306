// SPDX-License-Identifier: GPL-2.0-or-later
// JSON that nobody vouches for: bounded in depth, each value asked for by name
// and within limits.
#pragma once

#include "input.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace emuv::estimate {

/// Reads a text. @param name  for messages
/// @throws unreadable  It is no JSON, is no object, or nests more than 32 deep.
nlohmann::json parse_json(const std::string &name, std::string_view text);

/// An object whose members are asked for. It refers to what it was made of.
class members
{
public:
    /// @param place  before a member's name in messages: "text_config."
    members(const std::string &file, const nlohmann::json &object,
            std::string place = "")
        : file_(file), object_(object), place_(std::move(place))
    {}

    /// True if it is there, and not null.
    [[nodiscard]] bool has(const char *key) const;
    /// True if it is there, be it null.
    [[nodiscard]] bool mentions(const char *key) const
    {
        return object_.contains(key);
    }
    /// A whole number from @p least to @p most. @throws unreadable
    [[nodiscard]] std::uint64_t number(const char *key, std::uint64_t least,
                                       std::uint64_t most) const;
    /// The same, or @p otherwise if it is not there.
    [[nodiscard]] std::uint64_t number_or(const char *key,
                                          std::uint64_t otherwise,
                                          std::uint64_t most) const;
    [[nodiscard]] bool flag_or(const char *key, bool otherwise) const;
    [[nodiscard]] std::string text_or(const char *key,
                                      const char *otherwise) const;
    /// A member that is an object. @throws unreadable
    [[nodiscard]] members object(const char *key) const;
    [[nodiscard]] const nlohmann::json *find(const char *key) const;
    /// "FILE: PLACE.KEY: WHY". @throws unreadable
    [[noreturn]] void refuse(const char *key, const std::string &why) const;

private:
    const std::string &file_;
    const nlohmann::json &object_;
    std::string place_;
};

} // namespace emuv::estimate

// SPDX-License-Identifier: GPL-2.0-or-later
// The part of the commands' environment that needs no machine.
#include "environment.hpp"

#include <cstdlib>

namespace emuvctl {

sink::~sink() = default;

std::string environment::node(int id) const
{
    return (dev / emuv::instance_name(id)).string();
}

bool refuses_color()
{
    const auto value_of = [](const char *variable) {
        const char *const value = std::getenv(variable);
        return std::string_view(value != nullptr ? value : "");
    };
    return !value_of("NO_COLOR").empty() || value_of("TERM") == "dumb";
}

void environment::say(std::string_view message) const
{
    // A message of several lines is several messages.
    while (!message.empty()) {
        const auto newline = message.find('\n');
        std::string line = "emuvctl: ";
        if (!verb.empty())
            line += verb + ": ";
        line.append(message.substr(0, newline)).append("\n");
        err.write(line);
        if (newline == std::string_view::npos)
            break;
        message.remove_prefix(newline + 1);
    }
}

} // namespace emuvctl

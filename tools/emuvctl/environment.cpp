// SPDX-License-Identifier: GPL-2.0-or-later
// The part of the commands' environment that needs no machine.
#include "environment.hpp"

namespace emuvctl {

sink::~sink() = default;

std::string environment::node(int id) const
{
    return (dev / emuv::instance_name(id)).string();
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

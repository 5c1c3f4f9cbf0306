// SPDX-License-Identifier: LGPL-2.1-or-later
// Texts of users in messages.
#pragma once

#include <string>
#include <string_view>

namespace emuv {

/// The text in quotes, its first 60 bytes if it is longer. Control characters
/// are replaced, lest they reach a terminal.
inline std::string quoted(std::string_view text)
{
    std::string result = "'";
    for (const char c : text.substr(0, 60)) {
        const auto u = static_cast<unsigned char>(c);
        result += u < 0x20 || u == 0x7f ? '?' : c;
    }
    return result + (text.size() > 60 ? "...'" : "'");
}

} // namespace emuv

// SPDX-License-Identifier: LGPL-2.1-or-later
// UTF-8, for programs that write it into formats which take nothing else.
#pragma once

#include <cstddef>
#include <string_view>

namespace emuvctl {

/// The bytes of the character at the start of a text. 0 if they are no UTF-8:
/// cut short, overlong, a surrogate, or above U+10FFFF.
/// @param text  not empty
inline std::size_t utf8_length(std::string_view text)
{
    const auto byte = [text](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    const auto follows = [&byte](std::size_t i) {
        return (byte(i) & 0xc0U) == 0x80U;
    };
    const unsigned first = byte(0);
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return follows(1) ? 2 : 0;
    if (first >= 0xe0 && first <= 0xef) {
        const bool overlong = first == 0xe0 && byte(1) < 0xa0;
        const bool surrogate = first == 0xed && byte(1) > 0x9f;
        return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        const bool overlong = first == 0xf0 && byte(1) < 0x90;
        const bool above = first == 0xf4 && byte(1) > 0x8f;
        return follows(1) && follows(2) && follows(3) && !overlong && !above
                   ? 4
                   : 0;
    }
    return 0;
}

} // namespace emuvctl

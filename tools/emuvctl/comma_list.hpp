// SPDX-License-Identifier: GPL-2.0-or-later
// Lists of words, as options and files have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace emuvctl {

/// The words of a list such as "a, b,c", without the blanks around them. An
/// empty list has one word, which is empty.
inline std::vector<std::string> split_at_commas(std::string_view list)
{
    std::vector<std::string> words;
    for (;;) {
        const auto comma = list.find(',');
        std::string_view word = list.substr(0, comma);
        while (word.starts_with(' '))
            word.remove_prefix(1);
        while (word.ends_with(' '))
            word.remove_suffix(1);
        words.emplace_back(word);
        if (comma == std::string_view::npos)
            return words;
        list.remove_prefix(comma + 1);
    }
}

} // namespace emuvctl

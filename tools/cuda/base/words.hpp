// SPDX-License-Identifier: LGPL-2.1-or-later
// Words between commas, as in EMUV_TRUST.
#pragma once

#include <cstring>
#include <string_view>

namespace emuv::cuda {

/// True if a word of the list fits. Empty words, and those of 128 characters
/// and more, are none.
/// @param fits  is given the word, with its end, for the call's duration
template <typename Predicate>
bool any_word(const char *list, Predicate fits)
{
    std::string_view rest = list;
    while (!rest.empty()) {
        const auto end = rest.find(',');
        const std::string_view word = rest.substr(0, end);
        char pattern[128];
        if (!word.empty() && word.size() < sizeof pattern) {
            std::memcpy(pattern, word.data(), word.size());
            pattern[word.size()] = '\0';
            if (fits(pattern))
                return true;
        }
        if (end == std::string_view::npos)
            break;
        rest.remove_prefix(end + 1);
    }
    return false;
}

} // namespace emuv::cuda

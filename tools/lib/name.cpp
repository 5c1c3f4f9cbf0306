// SPDX-License-Identifier: LGPL-2.1-or-later
// Names of instances.
#include "quoted.hpp"

#include <emuv/name.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace emuv {

namespace {

constexpr std::size_t longest = 48;

bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_word(std::string_view text)
{
    return !text.empty() && text.size() <= longest && is_letter(text.front()) &&
           std::all_of(text.begin(), text.end(), [](char c) {
               return is_letter(c) || (c >= '0' && c <= '9') || c == '-' ||
                      c == '_' || c == '.';
           });
}

// emuv01 and emuv99999 are no instances, and would be taken for some.
bool is_number(std::string_view text)
{
    return text.starts_with("emuv") && text.size() > 4 &&
           text.find_first_not_of("0123456789", 4) == std::string_view::npos;
}

} // namespace

bool is_name(std::string_view text)
{
    return is_word(text) && !is_number(text);
}

void check_name(std::string_view text)
{
    if (!is_word(text))
        throw std::invalid_argument(
            quoted(text) + " is no name; one has 1 to " +
            std::to_string(longest) +
            " letters, digits, '-', '_' and '.', with a letter first");
    if (is_number(text))
        throw std::invalid_argument(quoted(text) +
                                    " is the number of an instance");
}

} // namespace emuv

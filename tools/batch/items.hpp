// SPDX-License-Identifier: GPL-2.0-or-later
// The items of a batch: what its command is run for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace emuvctl::batch {

struct items
{
    std::vector<std::string> list; ///< each once, in their order
    std::size_t repeated = 0;      ///< that were named again, and are left out
    /// Which one is the first that is no UTF-8, so that no journal can hold it;
    /// counted from 1, 0: none.
    std::size_t not_utf8 = 0;
};

/// Splits a list into items. Empty ones are left out.
/// @param separator  between them
/// @throws std::invalid_argument one has a zero byte in it, which no command's
///   word can have
items split_items(std::string_view text, char separator);

/// Reads items: the regular files of a folder by name, without hidden ones, or
/// a list.
/// @param from  a folder, a file with a list, or "-": the standard input
/// @throws std::invalid_argument as split_items()
/// @throws std::system_error EINTR: a signal came while the list was awaited
items read_items(const std::string &from, char separator);

/// The words of a command for an item: "{}" is replaced wherever it stands;
/// without any, the item is the last word.
std::vector<std::string> command_for(const std::vector<std::string> &command,
                                     const std::string &item);

} // namespace emuvctl::batch

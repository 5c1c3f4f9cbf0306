// SPDX-License-Identifier: GPL-2.0-or-later
// The parts that the completion files of all shells are made from.
#pragma once

#include "verb.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emuvctl {

/// A beginning of a command line, and the verbs that may follow.
struct place
{
    std::string path; ///< "profile show"; empty for emuvctl alone
    std::span<const verb> verbs;
    const verb *what = nullptr; ///< null for emuvctl alone
};

/// emuvctl alone, then each verb, with those below it behind it.
std::vector<place> places_of(std::span<const verb> verbs);

/// The lines that each file begins with.
std::string completion_head(std::string_view shell);

/// The first sentence of a help text, in one line.
std::string first_sentence(std::string text);

/// "-o,--output" as "-o" and "--output".
std::vector<std::string> names_of(const option &what);

std::vector<std::string_view> column_ids(std::span<const column> columns);
std::vector<std::string> texts_of(std::span<const word> words);

/// The name of what is offered: "files".
std::string_view name_of(offered what);

/// @p text with @p by in place of each @p what.
std::string replaced(std::string text, char what, std::string_view by);

/// In single quotes, for bash and zsh.
std::string single_quoted(const std::string &text);

inline bool is_flag(const option &what)
{
    return std::holds_alternative<bool *>(what.value);
}

} // namespace emuvctl

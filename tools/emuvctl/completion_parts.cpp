// SPDX-License-Identifier: GPL-2.0-or-later
// The parts that the completion files of all shells are made from.
#include "completion_parts.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace emuvctl {

namespace {

void add_places(std::vector<place> &to, const std::string &path,
                std::span<const verb> verbs)
{
    for (const auto &each : verbs) {
        const std::string below = path + (path.empty() ? "" : " ") + each.name;
        to.push_back({below, each.verbs, &each});
        add_places(to, below, each.verbs);
    }
}

} // namespace

std::vector<place> places_of(std::span<const verb> verbs)
{
    std::vector<place> places = {{"", verbs}};
    add_places(places, "", verbs);
    return places;
}

std::string completion_head(std::string_view shell)
{
    return fmt::format("# SPDX-License-Identifier: GPL-2.0-or-later\n"
                       "# Completion of emuvctl's command line. Made by "
                       "'emuvctl __complete {}'.\n",
                       shell);
}

std::string first_sentence(std::string text)
{
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text.substr(0, text.find(". "));
}

std::vector<std::string> names_of(const option &what)
{
    const auto comma = what.names.find(',');
    if (comma == std::string::npos)
        return {what.names};
    return {what.names.substr(0, comma), what.names.substr(comma + 1)};
}

std::vector<std::string_view> column_ids(std::span<const column> columns)
{
    std::vector<std::string_view> ids;
    for (const auto &each : columns)
        ids.push_back(each.id);
    return ids;
}

std::vector<std::string> texts_of(std::span<const word> words)
{
    std::vector<std::string> texts;
    for (const auto &each : words)
        texts.push_back(each.text);
    return texts;
}

std::string replaced(std::string text, char what, std::string_view by)
{
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos;
         at += by.size())
        text.replace(at, 1, by);
    return text;
}

std::string_view name_of(offered what)
{
    switch (what) {
    case offered::nothing:
        return "nothing";
    case offered::words:
        return "words";
    case offered::files:
        return "files";
    case offered::folders:
        return "folders";
    case offered::instances:
        return "instances";
    case offered::profiles:
        return "profiles";
    case offered::columns:
        return "columns";
    case offered::parameters:
        return "parameters";
    case offered::command:
        return "command";
    }
    return "";
}

std::string single_quoted(const std::string &text)
{
    return "'" + replaced(text, '\'', "'\\''") + "'";
}

} // namespace emuvctl

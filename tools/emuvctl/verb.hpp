// SPDX-License-Identifier: GPL-2.0-or-later
// A verb as data: its help, its options and its action. The parser, the help
// and the shells' completions are made from it.
#pragma once

#include "output.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace emuvctl {

struct environment;

/// The kinds of words that a shell offers in the place of a value.
enum class offered
{
    nothing,
    words, ///< the option's own
    files,
    folders,
    instances,  ///< emuv0 emuv1 ...
    profiles,   ///< their names
    columns,    ///< the verb's, between commas
    parameters, ///< the module's, each with '=' behind it
    command,    ///< a program and what it takes
};

/// A value that an option may have.
struct word
{
    std::string text;
    std::string help = {};
};

struct option
{
    std::string names; ///< "-o,--output"
    std::string type;  ///< what the help calls its value; empty for a flag
    std::string help;
    std::variant<bool *, std::string *> value;
    offered offers = offered::nothing;
    std::vector<word> words = {};
    /// The value where none is written. A value then follows a '='.
    std::string implied = {};
    std::vector<std::string> excludes = {}; ///< other options, "--physical"
    std::vector<std::string> needs = {};
    std::string more_help = {}; ///< behind the help, but not for completion
    /// It may be given again: the values are one list, with commas.
    bool joins = false;

    /// "--output"
    [[nodiscard]] std::string long_name() const
    {
        return names.substr(names.find("--"));
    }
};

/// The words behind the options.
struct arguments
{
    std::string type;
    std::vector<std::string> *values;
    offered offers = offered::nothing;
    bool required = false;
};

struct verb
{
    std::string name;
    std::string group;   ///< the heading above it; without one it is not shown
    std::string summary; ///< for the list of verbs
    std::string help;    ///< for its own help
    std::vector<option> options = {};
    std::optional<emuvctl::arguments> arguments = {};
    std::span<const column> columns = {}; ///< of what it prints
    std::function<void(environment &)> action = {};
    std::vector<verb> verbs = {}; ///< those that it is the first word of
    std::vector<std::string> aliases = {}; ///< other names that it goes by
};

/// An option without a value.
option flag(const char *name, bool &set, const char *help);

// Options that several verbs take.
option config_option(std::string &config);
option dry_run_flag(bool &dry_run);
option json_flag(output_options &output);
option module_option(std::string &module);
arguments instance_arguments(std::vector<std::string> &instances);

/// Has a verb print @p columns in each form that there is.
void add_output(verb &to, output_options &output,
                std::span<const column> columns);

} // namespace emuvctl

// SPDX-License-Identifier: GPL-2.0-or-later
// Parses the command line, words its mistakes, and prints the help.
// All of CLI11 is here; the verbs are plain structures.
#include "command_line.hpp"

#include "environment.hpp"
#include "failure.hpp"
#include "suggest.hpp"
#include "verbs.hpp"

#include <emuv/version.hpp>

#include <cctype>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace emuvctl {

namespace {

constexpr std::size_t help_column = 26;
constexpr std::size_t help_width = 79;

// CLI11's help, with texts of several lines put below each other.
class formatter final : public CLI::Formatter
{
public:
    formatter() { column_width(help_column); }

    // How it is called comes first, then what it does.
    std::string make_help(const CLI::App *app, std::string name,
                          CLI::AppFormatMode mode) const override
    {
        name = app->get_name();
        for (const auto *up = app->get_parent(); up != nullptr;
             up = up->get_parent())
            name = up->get_name() + " " + name;
        std::string text = make_usage(app, name) + "\n" +
                           app->get_description() + "\n" +
                           make_groups(app, mode) + make_subcommands(app, mode);
        if (const std::string more = app->get_footer(); !more.empty())
            text += "\n" + more;
        while (text.ends_with("\n\n"))
            text.pop_back();
        return text;
    }

    std::string make_option(const CLI::Option *option,
                            bool positional) const override
    {
        return put(make_option_name(option, positional) +
                       make_option_opts(option),
                   make_option_desc(option));
    }

    std::string make_option_opts(const CLI::Option *option) const override
    {
        const std::string type = option->get_type_name();
        return type.empty() ? "" : " " + type;
    }

    std::string make_subcommand(const CLI::App *verb) const override
    {
        std::string names = verb->get_name();
        for (const auto &alias : verb->get_aliases())
            names += ", " + alias;
        return put(names, verb->get_description());
    }

    std::string make_usage(const CLI::App *app, std::string name) const override
    {
        std::string text = "Usage: " + name;
        if (!app->get_subcommands({}).empty())
            return text + " VERB [OPTION]... [ARGUMENT]...\n";
        text += " [OPTION]...";
        for (const auto *option : app->get_options())
            if (option->get_positional()) {
                const std::string word = option->get_type_name();
                const bool many = option->get_items_expected_max() > 1;
                text += option->get_required() ? " " + word : " [" + word + "]";
                text += many ? "..." : "";
            }
        return text + "\n";
    }

    // The usage line names the arguments, and the description explains them.
    std::string make_positionals(const CLI::App * /*app*/) const override
    {
        return {};
    }

private:
    static std::string put(const std::string &name, const std::string &text)
    {
        std::string result = "  " + name;
        if (result.size() + 2 > help_column)
            result.append(1, '\n').append(help_column, ' ');
        else
            result.resize(help_column, ' ');
        // Line breaks of the text's own stay.
        std::string_view rest = text;
        for (;;) {
            const auto end = rest.find('\n');
            result += wrap(rest.substr(0, end), help_column, help_width);
            if (end == std::string_view::npos)
                break;
            result.append(1, '\n').append(help_column, ' ');
            rest.remove_prefix(end + 1);
        }
        return result + '\n';
    }
};

class command_line
{
public:
    explicit command_line(environment &env)
        : env_(env), app_("Makes, shows and checks emuV instances: shares of "
                          "VRAM and system RAM under the\nname of a GPU "
                          "model. See emuvctl(1).",
                          "emuvctl"),
          verbs_(all_verbs())
    {
        app_.formatter(std::make_shared<formatter>());
        app_.require_subcommand(1);
        app_.set_version_flag("-V,--version",
                              std::string("emuvctl ") + emuv::version(),
                              "print the version");
        app_.set_help_flag("-h,--help", "print this help");
        for (const auto &each : verbs_)
            add(app_, each);
    }

    void run(std::span<const std::string> given)
    {
        std::vector<std::string> arguments(given.begin(), given.end());
        // "help create" is "create --help", as of git.
        const bool help = !arguments.empty() && arguments.front() == "help";
        if (help) {
            arguments.erase(arguments.begin());
            arguments.emplace_back("--help");
        }
        const CLI::App *const level = find_verb(arguments);
        if (help && !unknown_verb_.starts_with('-'))
            throw usage_error(unknown_verb(level));
        // CLI11 takes them from the back.
        std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
        for (auto &word : reversed)
            word = mark(std::move(word));
        try {
            app_.parse(reversed);
        } catch (const CLI::CallForHelp &) {
            env_.out.write(app_.help());
            return;
        } catch (const CLI::CallForVersion &) {
            env_.out.write(std::string("emuvctl ") + emuv::version() + "\n");
            return;
        } catch (const CLI::ExtrasError &) {
            throw usage_error(word_extras(arguments));
        } catch (const CLI::ParseError &problem) {
            throw usage_error(word(problem));
        }
        chosen_->action(env_);
    }

private:
    // CLI11 makes several words of one in brackets, as of "[a,b]", unless
    // something stands before them. No word of a command line has a zero.
    static std::string mark(std::string word)
    {
        if (word.starts_with('[') && word.ends_with(']'))
            word.insert(word.begin(), '\0');
        return word;
    }

    static std::string unmark(std::string word)
    {
        if (word.starts_with('\0'))
            word.erase(0, 1);
        return word;
    }

    // The verb, for messages, before the options are even looked at.
    const CLI::App *find_verb(std::span<const std::string> arguments)
    {
        const CLI::App *level = &app_;
        for (const auto &argument : arguments) {
            const CLI::App *const next = find(level, argument);
            if (next == nullptr) {
                unknown_verb_ = argument;
                break;
            }
            env_.verb += (env_.verb.empty() ? "" : " ") + next->get_name();
            level = next;
        }
        return level;
    }

    static const CLI::App *find(const CLI::App *level, const std::string &name)
    {
        for (const auto *one : level->get_subcommands({}))
            if (one->check_name(name))
                return one;
        return nullptr;
    }

    // The verb that the command line got to, or the program.
    const CLI::App *reached() const
    {
        const CLI::App *level = &app_;
        while (!level->get_subcommands().empty())
            level = level->get_subcommands().front();
        return level;
    }

    static std::string suggest_option(const CLI::App *verb,
                                      const std::string &given)
    {
        std::vector<std::string> names;
        for (const auto *option : verb->get_options())
            for (const auto &name : option->get_lnames())
                names.push_back("--" + name);
        return did_you_mean(given.substr(0, given.find('=')), names);
    }

    static std::string suggest_verb(const CLI::App *level,
                                    const std::string &given)
    {
        std::vector<std::string> names;
        for (const auto *one : level->get_subcommands({}))
            if (!one->get_group().empty())
                names.push_back(one->get_name());
        // "version" is a verb of other tools.
        for (const auto *option : level->get_options())
            if (option->check_lname(given))
                return fmt::format("; did you mean '--{}'?", given);
        return did_you_mean(given, names);
    }

    std::string unknown_verb(const CLI::App *level) const
    {
        const bool option = unknown_verb_.starts_with('-');
        return fmt::format("unknown {} '{}'{}", option ? "option" : "verb",
                           printable(unknown_verb_),
                           option ? suggest_option(level, unknown_verb_)
                                  : suggest_verb(level, unknown_verb_));
    }

    std::string word_extras(std::span<const std::string> arguments) const
    {
        const auto extras = app_.remaining(true);
        const std::string first =
            extras.empty() ? arguments.back() : unmark(extras.front());
        const bool option = first.starts_with('-');
        return fmt::format("unknown {} '{}'{}", option ? "option" : "argument",
                           printable(first),
                           option ? suggest_option(reached(), first) : "");
    }

    // The name of the argument that the verb lacks, by its usage.
    std::string missing_argument() const
    {
        for (const auto *option : reached()->get_options())
            if (option->get_positional() && option->get_required() &&
                option->count() == 0) {
                const std::string name = option->get_type_name();
                return name.substr(name.rfind(' ') + 1);
            }
        return "an argument";
    }

    static std::string replaced_once(std::string text, std::string_view what,
                                     std::string_view by)
    {
        const auto at = text.find(what);
        return at == std::string::npos ? text
                                       : text.replace(at, what.size(), by);
    }

    std::string word(const CLI::ParseError &problem) const
    {
        std::string text = problem.what();
        const auto ends_with = [&text](std::string_view end) {
            return text.ends_with(end);
        };
        if (dynamic_cast<const CLI::RequiredError *>(&problem) != nullptr) {
            // CLI11 calls a positional by its name, which nobody typed.
            if (text.find("subcommand") == std::string::npos)
                return ends_with(" is required")
                           ? missing_argument() + " is missing"
                           : text;
            if (unknown_verb_.empty())
                return "a verb is missing";
            return unknown_verb(reached());
        }
        if (dynamic_cast<const CLI::ArgumentMismatch *>(&problem) != nullptr &&
            ends_with(" missing"))
            return text.substr(0, text.find(':')) + ": its value is missing";
        if (dynamic_cast<const CLI::ArgumentMismatch *>(&problem) != nullptr &&
            text.find(": At Most ") != std::string::npos)
            return text.substr(0, text.find(':')) + " is given more than once";
        if (dynamic_cast<const CLI::ArgumentMismatch *>(&problem) != nullptr &&
            ends_with(" was given a disallowed flag override"))
            return "--" + text.substr(0, text.find(' ')) + " takes no value";
        if (dynamic_cast<const CLI::ExcludesError *>(&problem) != nullptr)
            return replaced_once(text, " excludes ", " does not go with ");
        if (dynamic_cast<const CLI::RequiresError *>(&problem) != nullptr)
            return replaced_once(text, " requires ", " needs ");
        if (!text.empty())
            text[0] = static_cast<char>(
                std::tolower(static_cast<unsigned char>(text[0])));
        return printable(text);
    }

    void add(CLI::App &parent, const verb &what)
    {
        CLI::App *const added = parent.add_subcommand(what.name, what.summary);
        added->group(what.group);
        for (const auto &alias : what.aliases)
            added->alias(alias);
        added->set_help_flag("-h,--help", "print this help");
        // The summary serves the list of verbs; a verb's own help says more.
        added->preparse_callback([added, &what](std::size_t /*remaining*/) {
            added->description(what.help);
        });
        if (what.arguments) {
            added->add_option("arguments", *what.arguments->values)
                ->type_name(what.arguments->type)
                ->required(what.arguments->required)
                ->transform(unmark);
            // Options behind a program's name are the program's.
            added->positionals_at_end(what.arguments->offers ==
                                      offered::command);
        }
        for (const auto &each : what.options)
            add(*added, each);
        for (const auto &each : what.options)
            relate(*added, each);
        if (!what.columns.empty())
            added->footer([&what] { return describe_columns(what.columns); });
        if (what.action)
            added->callback([this, &what] { chosen_ = &what; });
        else
            added->require_subcommand(1);
        for (const auto &each : what.verbs)
            add(*added, each);
    }

    static void add(CLI::App &verb, const option &what)
    {
        const std::string help = what.help + what.more_help;
        if (bool *const *const set = std::get_if<bool *>(&what.value)) {
            verb.add_flag(what.names, **set, help)->disable_flag_override();
            return;
        }
        std::string &value = *std::get<std::string *>(what.value);
        if (what.implied.empty()) {
            CLI::Option *const one = verb.add_option(what.names, value, help)
                                         ->type_name(what.type)
                                         ->transform(unmark);
            if (what.joins)
                one->join(',');
        } else // CLI11 gives "true" where nothing is written
            verb.add_flag(what.names, value, help)
                ->transform([implied = what.implied](const std::string &given) {
                    return given == "true" ? implied : given;
                });
    }

    static void relate(CLI::App &verb, const option &what)
    {
        CLI::Option *const option = verb.get_option(what.long_name());
        for (const auto &other : what.excludes)
            option->excludes(verb.get_option(other));
        for (const auto &other : what.needs)
            option->needs(verb.get_option(other));
    }

    environment &env_;
    CLI::App app_;
    std::vector<verb> verbs_; // app_ refers to them
    const verb *chosen_ = nullptr;
    std::string unknown_verb_;
};

} // namespace

void run_command_line(std::span<const std::string> arguments, environment &env)
{
    command_line(env).run(arguments);
}

} // namespace emuvctl

// SPDX-License-Identifier: GPL-2.0-or-later
// The command line: which verb takes which options. All of CLI11 is here; the
// verbs see plain structures.
#include "command_line.hpp"

#include "commands.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"

#include <emuv/version.hpp>

#include <cctype>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace emuvctl {

namespace {

constexpr std::size_t help_column = 26;

const char *const module_help = "its file, or its name for modprobe";
const char *const dry_run_help = "only say what would be done; needs no rights";
const char *const config_help =
    "profile file, '-': standard input; its drop-ins\n"
    "are FILE.d/*.conf. Default: $EMUV_CONFIG or\n"
    "/etc/emuv/vgpu-profiles.conf";

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
        return put(verb->get_name(), verb->get_description());
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
            result += '\n' + std::string(help_column, ' ');
        else
            result.resize(help_column, ' ');
        for (const char c : text) {
            result += c;
            if (c == '\n')
                result.append(help_column, ' ');
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
                          "emuvctl")
    {
        app_.formatter(std::make_shared<formatter>());
        app_.require_subcommand(1);
        app_.set_version_flag("--version",
                              std::string("emuvctl ") + emuv::version(),
                              "print the version");
        app_.set_help_flag("-h,--help", "print this help");
        add_load();
        add_unload();
        add_create();
        add_destroy();
        add_list();
        add_info();
        add_stats();
        add_run();
        add_profile();
        add_apply();
        add_export();
        add_assert();
        add_gpu();
        add_doctor();
    }

    void run(std::span<const std::string> arguments)
    {
        find_verb(arguments);
        // CLI11 takes them from the back.
        std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
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
        action_();
    }

private:
    // The verb, for messages, before the options are even looked at.
    void find_verb(std::span<const std::string> arguments)
    {
        const CLI::App *level = &app_;
        for (const auto &argument : arguments) {
            const CLI::App *const next = find(level, argument);
            if (next == nullptr) {
                unknown_verb_ = argument;
                break;
            }
            env_.verb += (env_.verb.empty() ? "" : " ") + argument;
            level = next;
        }
    }

    static const CLI::App *find(const CLI::App *level, const std::string &name)
    {
        for (const auto *one : level->get_subcommands({}))
            if (one->get_name() == name)
                return one;
        return nullptr;
    }

    std::string word_extras(std::span<const std::string> arguments) const
    {
        const auto extras = app_.remaining(true);
        const std::string first =
            extras.empty() ? arguments.back() : extras.front();
        return fmt::format("unknown {} '{}'",
                           first.starts_with('-') ? "option" : "argument",
                           printable(first));
    }

    // What the usage of the verb calls the argument that it lacks.
    std::string missing_argument() const
    {
        const CLI::App *verb = &app_;
        while (!verb->get_subcommands().empty())
            verb = verb->get_subcommands().front();
        for (const auto *option : verb->get_options())
            if (option->get_positional() && option->get_required() &&
                option->count() == 0) {
                const std::string name = option->get_type_name();
                return name.substr(name.rfind(' ') + 1);
            }
        return "an argument";
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
            return fmt::format("unknown {} '{}'",
                               unknown_verb_.starts_with('-') ? "option"
                                                              : "verb",
                               printable(unknown_verb_));
        }
        if (dynamic_cast<const CLI::ArgumentMismatch *>(&problem) != nullptr &&
            ends_with(" missing"))
            return text.substr(0, text.find(':')) + ": its value is missing";
        if (!text.empty())
            text[0] = static_cast<char>(
                std::tolower(static_cast<unsigned char>(text[0])));
        return printable(text);
    }

    // A verb, and a place for its options that lives as long as this does.
    template <typename Options>
    Options *add(CLI::App *parent, const char *name, const char *summary,
                 const char *more, CLI::App *&verb,
                 void (*command)(const Options &, environment &))
    {
        verb = parent->add_subcommand(name, summary);
        verb->set_help_flag("-h,--help", "print this help");
        auto options = std::make_shared<Options>();
        verb->callback([this, options, command] {
            action_ = [this, options, command] { command(*options, env_); };
        });
        details_[verb] = more;
        // The summary serves the list of verbs; a verb's own help says more.
        verb->preparse_callback([this, verb](std::size_t /*remaining*/) {
            verb->description(details_[verb]);
        });
        return options.get();
    }

    // A verb that is only the first word of others.
    CLI::App *add_parent(const char *name, const char *summary,
                         const char *more, const char *group)
    {
        auto *const parent = app_.add_subcommand(name, summary);
        parent->set_help_flag("-h,--help", "print this help");
        parent->group(group);
        parent->require_subcommand(1);
        parent->preparse_callback([parent, more](std::size_t /*remaining*/) {
            parent->description(more);
        });
        return parent;
    }

    static CLI::Option *add_option(CLI::App *verb, const char *name,
                                   std::string &value, const char *type,
                                   const char *help)
    {
        return verb->add_option(name, value, help)->type_name(type);
    }

    static void add_output(CLI::App *verb, output_options &output,
                           std::span<const column> columns)
    {
        verb->add_flag("--json", output.json, "print JSON");
        add_option(verb, "-o,--output", output.columns, "COLUMNS",
                   "print these columns, comma-separated;\n'+' before them "
                   "adds to the default ones");
        verb->add_flag("--bytes", output.bytes, "print sizes in bytes");
        verb->add_flag("--raw", output.raw,
                       "print no alignment, one blank between columns");
        verb->add_flag("--noheadings", output.noheadings, "print no headings");
        add_option(verb, "--query", output.query, "COLUMNS",
                   "print these columns as CSV, as nvidia-smi does");
        add_option(verb, "--format", output.format, "WORDS",
                   "with --query: csv, noheader, nounits");
        verb->footer([columns] { return describe_columns(columns); });
    }

    static void add_instances(CLI::App *verb,
                              std::vector<std::string> &instances)
    {
        verb->add_option("instances", instances)->type_name("INSTANCE");
    }

    static void add_config(CLI::App *verb, std::string &config)
    {
        add_option(verb, "--config", config, "FILE", config_help);
    }

    void add_load()
    {
        CLI::App *verb = nullptr;
        auto *options = add<load_options>(
            &app_, "load", "load the module",
            "Loads the module, with parameters as for insmod, and prints the "
            "nodes it makes:\n"
            "  emuvctl load gpu_model=4070 physical_vram_gb=12 "
            "virtual_vram_gb=2\n"
            "'modinfo emuv' lists the parameters.",
            verb, cmd_load);
        verb->group("Module");
        verb->add_option("parameters", options->parameters)
            ->type_name("NAME=VALUE");
        add_option(verb, "--module", options->module, "MODULE", module_help);
        verb->add_flag("--dry-run", options->dry_run, dry_run_help);
        verb->add_flag("--json", options->output.json, "print JSON");
    }

    void add_unload()
    {
        CLI::App *verb = nullptr;
        auto *options = add<unload_options>(
            &app_, "unload", "unload the module and its instances",
            "Unloads the module; its instances go with it. It stays, "
            "untouched, while an\ninstance is in use.",
            verb, cmd_unload);
        verb->group("Module");
        verb->add_flag("--dry-run", options->dry_run, dry_run_help);
    }

    void add_create()
    {
        CLI::App *verb = nullptr;
        auto *options = add<create_options>(
            &app_, "create", "make instances",
            "Makes instances, all or none, and prints their nodes. Loads the "
            "module if need\nbe.\n"
            "  emuvctl create --profile vGPU-Profile-1\n"
            "  emuvctl create --gpu-model 4070 --virtual 2G\n"
            "Sizes are written as 12G, 512M or 1.5T (powers of 1024), or in "
            "bytes.",
            verb, cmd_create);
        verb->group("Instances");
        add_option(verb, "--profile", options->profile, "NAME",
                   "make what this profile says");
        add_config(verb, options->config);
        add_option(verb, "--gpu-model", options->gpu_model, "MODEL",
                   "the card: 4070, \"RTX 4070\" or any label");
        add_option(verb, "--physical", options->physical, "SIZE",
                   "share of VRAM. Default: what the card has");
        add_option(verb, "--virtual", options->virtual_size, "SIZE",
                   "share of system RAM, a multiple of 2M");
        add_option(verb, "--id", options->id, "N",
                   "number of the (first) instance. Default:\nthe lowest "
                   "free one");
        add_option(verb, "--count", options->count, "N",
                   "how many to make. Default: 1");
        add_option(verb, "--numa-node", options->numa_node, "N",
                   "where its RAM comes from; -1: any");
        add_option(verb, "--pci-device-id", options->pci_device_id, "0xID",
                   "the card it belongs to, a label");
        verb->add_flag("--overcommit", options->overcommit,
                       "promise more RAM than the host has");
        add_option(verb, "--module", options->module, "MODULE", module_help);
        verb->add_flag("--dry-run", options->dry_run, dry_run_help);
        verb->add_flag("--json", options->output.json, "print JSON");
        for (const char *const name : {"--gpu-model", "--physical", "--virtual",
                                       "--numa-node", "--pci-device-id"})
            verb->get_option("--profile")->excludes(verb->get_option(name));
    }

    void add_destroy()
    {
        CLI::App *verb = nullptr;
        auto *options = add<destroy_options>(
            &app_, "destroy", "remove instances",
            "Removes instances, written as emuv0, 0 or /dev/emuv0. None goes "
            "unless all\ncan go.",
            verb, cmd_destroy);
        verb->group("Instances");
        add_instances(verb, options->instances);
        verb->add_flag("--all", options->all, "remove all instances");
        verb->add_flag("--dry-run", options->dry_run, dry_run_help);
    }

    void add_list()
    {
        CLI::App *verb = nullptr;
        auto *options = add<list_options>(
            &app_, "list", "list instances",
            "Lists instances, all without any named.", verb, cmd_list);
        verb->group("Instances");
        add_instances(verb, options->instances);
        add_output(verb, options->output, instance_columns());
    }

    void add_info()
    {
        CLI::App *verb = nullptr;
        auto *options = add<list_options>(
            &app_, "info", "show all about instances",
            "Shows all there is to know about instances, all without any "
            "named.",
            verb, cmd_info);
        verb->group("Instances");
        add_instances(verb, options->instances);
        add_output(verb, options->output, instance_columns());
    }

    void add_run()
    {
        CLI::App *verb = nullptr;
        auto *options = add<run_options>(
            &app_, "run", "start a program with an instance's memory",
            "Starts a program under the CUDA library: its device memory is "
            "the instance's\nVRAM while that lasts, then system RAM.\n"
            "  emuvctl run --instance 0 -- python train.py\n"
            "  emuvctl run --physical 12G --virtual 48G -- python train.py\n"
            "The second form needs no module; its limits hold for the program "
            "and what it\nstarts. Without --physical that is all of the card, "
            "without --virtual nothing\nspills.",
            verb, cmd_run);
        verb->group("Instances");
        add_option(verb, "--instance", options->instance, "INSTANCE",
                   "whose memory, written as emuv0 or 0; 0,1: for\n"
                   "the first card and for the second");
        add_option(verb, "--physical", options->physical, "SIZE",
                   "without an instance: share of VRAM");
        add_option(verb, "--virtual", options->virtual_size, "SIZE",
                   "without an instance: share of system RAM");
        add_option(verb, "--ledger", options->ledger, "FILE",
                   "without an instance: share the limits with all\n"
                   "that name this file; made where it is missing");
        add_option(verb, "--report", options->report, "WHAT",
                   "what the program is told it has: total\n(default), "
                   "physical or free");
        add_option(verb, "--store", options->store, "STORE",
                   "what spilled memory is: auto (default), numa\nor pages");
        add_option(verb, "--charge", options->charge, "WHAT",
                   "what takes of the share of VRAM: all (default),\n"
                   "CUDA's contexts and code too, or allocations");
        verb->add_flag("--ipc", options->ipc,
                       "let processes share what lies in VRAM");
        verb->add_flag("--reclaim", options->reclaim,
                       "have PyTorch give back what it caches before\n"
                       "memory spills; not with pools or CUDA graphs");
        verb->add_flag("--move", options->move,
                       "move memory into VRAM ahead of its use, where\n"
                       "that is faster. An experiment: a kernel that\n"
                       "follows pointers in memory, of a library that\n"
                       "is trusted, may lose what it writes, or end the\n"
                       "program. --move=always: even where it is not\n"
                       "faster. --move=check: nothing moves, slowly, and\n"
                       "the program ends at the first such kernel, which\n"
                       "is named")
            ->transform([](const std::string &given) {
                return given == "true" ? std::string("1") : given;
            });
        add_option(verb, "--away", options->away, "WHAT",
                   "with --move: what is at the addresses of memory\n"
                   "that has left VRAM: mapped (default), the same\n"
                   "bytes, or unmapped, nothing until it is needed,\n"
                   "which is faster and less safe");
        add_option(verb, "--trust", options->trust, "WHOSE",
                   "with --move: which kernels are trusted to touch\n"
                   "only memory whose address is among their\n"
                   "parameters: known (default), all, none, or file\n"
                   "and kernel names, comma-separated; -NAME: not\n"
                   "that one");
        add_option(verb, "--trace", options->trace, "FILE",
                   "with --move: write what moved, for Perfetto");
        verb->add_flag("--disable", options->disable,
                       "keep the library out of every call");
        add_option(verb, "--library", options->cuda_library_dir, "DIR",
                   "folder of the CUDA library");
        add_option(verb, "--libcuda", options->libcuda, "FILE",
                   "the driver's libcuda, where it is not found");
        add_option(verb, "--libnvml", options->libnvml, "FILE",
                   "the driver's libnvidia-ml, likewise");
        verb->add_flag("--dry-run", options->dry_run,
                       "only print the variables and the command");
        verb->add_option("command", options->command)
            ->type_name("-- COMMAND")
            ->required();
        for (const char *const name : {"--physical", "--virtual", "--ledger"})
            verb->get_option("--instance")->excludes(verb->get_option(name));
        for (const char *const name : {"--away", "--trust", "--trace"})
            verb->get_option(name)->needs(verb->get_option("--move"));
    }

    void add_stats()
    {
        CLI::App *verb = nullptr;
        auto *options = add<stats_options>(
            &app_, "stats", "show who holds and moves how much",
            "Shows what instances and their clients hold and have moved, or "
            "with -i and -c\nhow much they move a second. Clients are shown "
            "where the control node or the\ninstance's may be opened.",
            verb, cmd_stats);
        verb->group("Instances");
        add_instances(verb, options->instances);
        add_option(verb, "-i,--interval", options->interval, "SECONDS",
                   "again every so many seconds. Default: 1");
        add_option(verb, "-c,--count", options->count, "N",
                   "so many times. Default: until interrupted");
        verb->add_flag("--no-clients", options->no_clients,
                       "show instances only");
        add_output(verb, options->output, stats_columns());
    }

    void add_profile()
    {
        CLI::App *verb = nullptr;
        auto *const parent =
            add_parent("profile", "list or show profiles",
                       "Lists or shows the profiles of vgpu-profiles.conf(5).",
                       "Profiles");
        auto *list =
            add<profile_options>(parent, "list", "list profiles",
                                 "Lists the profiles of vgpu-profiles.conf(5).",
                                 verb, cmd_profile_list);
        verb->group("Verbs");
        add_config(verb, list->config);
        add_output(verb, list->output, profile_columns());
        auto *show =
            add<profile_options>(parent, "show", "show profiles",
                                 "Shows profiles as a profile file has them.",
                                 verb, cmd_profile_show);
        verb->group("Verbs");
        verb->add_option("names", show->names)
            ->type_name("PROFILE")
            ->required();
        add_config(verb, show->config);
        verb->add_flag("--json", show->output.json, "print JSON");
    }

    void add_apply()
    {
        CLI::App *verb = nullptr;
        auto *options = add<apply_options>(
            &app_, "apply", "make what the profiles ask for",
            "Makes the instances that the profiles ask for and that are not "
            "there yet, all\nor none. A profile with instance_id is matched "
            "with that instance, another\nwith one that has its values. "
            "Loads the module if need be.",
            verb, cmd_apply);
        verb->group("Profiles");
        add_config(verb, options->config);
        add_option(verb, "--module", options->module, "MODULE", module_help);
        verb->add_flag("--dry-run", options->dry_run, dry_run_help);
        add_output(verb, options->output, apply_columns());
    }

    void add_export()
    {
        CLI::App *verb = nullptr;
        auto *options = add<export_options>(
            &app_, "export", "print instances as a profile file",
            "Prints instances, all without any named, as a profile file that "
            "'emuvctl apply'\nmakes the same ones from.",
            verb, cmd_export);
        verb->group("Profiles");
        add_instances(verb, options->instances);
        verb->add_flag("--json", options->output.json, "print JSON");
    }

    void add_assert()
    {
        CLI::App *verb = nullptr;
        auto *options = add<assert_options>(
            &app_, "assert", "fail unless the machine is as profiled",
            "Prints where the machine differs from its profiles, and exits "
            "with 1 if\nit does.",
            verb, cmd_assert);
        verb->group("Profiles");
        add_config(verb, options->config);
        add_output(verb, options->output, assert_columns());
    }

    void add_gpu()
    {
        CLI::App *verb = nullptr;
        auto *const parent = add_parent(
            "gpu", "list the cards that are known",
            "Lists the GPU models that emuvctl knows by name.", "Machine");
        auto *options = add<gpu_options>(
            parent, "list", "list the cards that are known",
            "Lists the cards that emuvctl knows, or those that the names may "
            "mean.",
            verb, cmd_gpu_list);
        verb->group("Verbs");
        verb->add_option("models", options->names)->type_name("MODEL");
        add_output(verb, options->output, gpu_columns());
    }

    void add_doctor()
    {
        CLI::App *verb = nullptr;
        auto *options = add<doctor_options>(
            &app_, "doctor", "check the machine, with a fix for what fails",
            "Checks what emuV needs here, and says for each failed check what "
            "to do. Exits\nwith 1 if a check failed.",
            verb, cmd_doctor);
        verb->group("Machine");
        add_option(verb, "--module", options->module, "MODULE", module_help);
        add_config(verb, options->config);
        add_output(verb, options->output, doctor_columns());
    }

    environment &env_;
    CLI::App app_;
    std::function<void()> action_;
    std::string unknown_verb_;
    std::map<const CLI::App *, const char *> details_;
};

} // namespace

void run_command_line(std::span<const std::string> arguments, environment &env)
{
    command_line(env).run(arguments);
}

} // namespace emuvctl

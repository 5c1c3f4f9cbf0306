// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl run: starts a program under the CUDA library, with an instance's
// memory or within limits of its own.
#include "comma_list.hpp"
#include "cuda_library.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "frameworks.hpp"
#include "instances.hpp"
#include "lenders.hpp"
#include "remover.hpp"
#include "score_file.hpp"
#include "score_run.hpp"
#include "settings.hpp"
#include "signals.hpp"
#include "verbs.hpp"

#include <emuv/error.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuvctl {

namespace {

struct run_options
{
    asked_settings settings;
    std::string cuda_library_dir; // the folder of the CUDA library
    std::string score;            // the estimate's file; empty: none
    bool json = false;
    bool dry_run = false;
    bool leaves_frameworks = false; // as their own variables have them
    std::vector<std::string> command;
};

using variables = std::vector<std::pair<std::string, std::string>>;

// The instances of "0", "emuv0", "0,1": the first device's, the second's, ...
std::vector<int> instances_of(const std::string &text, const environment &env)
{
    std::vector<int> ids;
    // One by one: several devices may share an instance.
    for (const std::string &word : split_at_commas(text))
        ids.push_back(parse_instances(std::span(&word, 1), env).front());
    return ids;
}

// True if the program has limits of its own.
bool own_limits(const run_options &options)
{
    const auto all = options.settings.all();
    return std::any_of(all.begin(), all.end(), [](const auto &each) {
        return each.what->kind == setting_kind::size && each.given();
    });
}

// Refuses options that are wrong, together or by themselves.
void check(const run_options &options)
{
    const auto &settings = options.settings;
    const bool limited =
        settings.of("EMUV_INSTANCE").given() || own_limits(options);
    const bool records = settings.of("EMUV_RECORD").given();
    if (limited && records)
        throw usage_error("--record goes without a limit: a tape is of a "
                          "program by itself");
    const bool disabled = settings.holds("EMUV_DISABLE");
    if (!limited && !records && !disabled)
        throw usage_error("give --instance, or --physical, --virtual or both");
    if (!options.score.empty() && (records || disabled))
        throw usage_error(fmt::format(
            "--score does not go with {}: nothing is charged then",
            records                               ? "--record"
            : settings.of("EMUV_DISABLE").given() ? "--disable"
                                                  : "EMUV_DISABLE"));
    settings.check();
}

// Makes a file that the library will open, if it is missing; its contents stay.
void touch(const std::string &path)
{
    const emuv::unique_fd fd(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!fd)
        throw std::system_error(errno, std::generic_category(), path);
}

// Empties a tape of before, for the library writes elsewhere if it finds one.
// It does so too if another process records there, which has the file locked.
void empty_tape(const std::string &path)
{
    const emuv::unique_fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat about = {};
    if (!fd || ::fstat(fd.get(), &about) != 0)
        throw std::system_error(errno, std::generic_category(), path);
    if (!S_ISREG(about.st_mode))
        return;
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return;
    if (::ftruncate(fd.get(), 0) != 0)
        throw std::system_error(errno, std::generic_category(), path);
}

// As a shell would have to be given it.
std::string shell_quoted(const std::string &word)
{
    static constexpr std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
        "%+,-./:=@_";
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos)
        return word;
    std::string out = "'";
    for (const char each : word)
        out += each == '\'' ? std::string("'\\''") : std::string(1, each);
    return out + "'";
}

// Settings of the library that hold because the caller's environment has them.
variables inherited(const variables &set)
{
    variables out;
    for (const auto &each : settings()) {
        std::string value = each.of_caller();
        if (!each.goes_with_limits() && !value.empty() &&
            std::none_of(set.begin(), set.end(), [&](const auto &other) {
                return other.first == each.variable;
            }))
            out.emplace_back(each.variable, std::move(value));
    }
    return out;
}

// @param own  the limits are this program's own, in a ledger that is still to
//   be made
std::string describe(const variables &set, const run_options &options, bool own)
{
    std::string text;
    for (const auto &[name, value] : inherited(set))
        text += fmt::format("{}={} # as it is already\n", name,
                            shell_quoted(value));
    for (const auto &[name, value] : set)
        text += fmt::format("{}={}\n", name, shell_quoted(value));
    if (own)
        text += "EMUV_LEDGER=/dev/shm/emuv-ledger-XXXXXX # made for this run\n";
    if (!options.score.empty())
        text += "EMUV_SCORE=/dev/shm/emuv-score-XXXXXX/emuv-statistics # made "
                "for this run\n";
    for (const auto &word : options.command)
        text +=
            (&word == &options.command.front() ? "" : " ") + shell_quoted(word);
    return text + "\n";
}

[[noreturn]] void become(const run_options &options)
{
    std::vector<char *> words;
    for (const auto &word : options.command)
        words.push_back(const_cast<char *>(word.c_str()));
    words.push_back(nullptr);
    give_signals_back();
    ::execvp(words[0], words.data());
    const int number = errno;
    std::signal(SIGPIPE, SIG_IGN); // for this program's own words again
    std::signal(SIGXFSZ, SIG_IGN);
    throw not_started(options.command[0] + ": " + emuv::errno_text(number),
                      number);
}

// Becomes the program; comes back with --dry-run alone. With --score it stays,
// and a child becomes the program.
void cmd_run(const run_options &options, environment &env)
{
    check(options);
    const auto &settings = options.settings;
    variables set = settings.variables();
    const auto folder = cuda_library_folder(options.cuda_library_dir);
    if (const auto &instance = settings.of("EMUV_INSTANCE"); instance.given()) {
        const auto all =
            with_lenders(instances_of(instance.text, env), settings, env);
        if (!options.dry_run && !settings.holds("EMUV_DISABLE"))
            for (const int id : all.ids)
                try_instance(id, env);
        for (auto &each : all.variables())
            set.push_back(std::move(each));
    }
    set.emplace_back("LD_PRELOAD", own_preload(folder));
    if (!options.leaves_frameworks)
        add_for_frameworks(settings, set);
    const bool own = own_limits(options) && !settings.of("EMUV_LEDGER").given();
    if (options.dry_run) {
        env.out.write(describe(set, options, own));
        return;
    }
    std::optional<score_run> score;
    if (!options.score.empty())
        score.emplace(options.score);
    for (const auto &each : settings.all())
        if (each.given() && (each.what->kind == setting_kind::ledger ||
                             each.what->kind == setting_kind::output))
            touch(each.text);
    if (const auto &tape = settings.of("EMUV_RECORD"); tape.given())
        empty_tape(tape.text);
    // Limits that come from outside must not be mixed with those asked for.
    for (const auto &each : variables_beside_limits())
        ::unsetenv(each.c_str());
    std::vector<std::filesystem::path> doomed;
    if (own) {
        set.emplace_back("EMUV_LEDGER", make_ledger());
        doomed.emplace_back(set.back().second);
    }
    if (score) {
        doomed.push_back(score->make_folder());
        set.emplace_back("EMUV_SCORE", score->stem());
    }
    if (!doomed.empty())
        remove_at_end(doomed, end_of_this_process());
    for (const auto &[name, value] : set)
        ::setenv(name.c_str(), value.c_str(), 1);
    if (score && score->start() == score_run::side::parent)
        score->finish(
            options.json ? score_run::form::json : score_run::form::table, env);
    become(options);
}

} // namespace

verb run_verb()
{
    const auto options = std::make_shared<run_options>();
    verb run{"run", "Instances", "start a program with an instance's memory",
             "Starts a program under the CUDA library: its device memory is "
             "the instance's\nVRAM while that lasts, then system RAM.\n"
             "  emuvctl run --instance 0 -- python train.py\n"
             "  emuvctl run --physical 12G --virtual 48G -- python train.py\n"
             "The second form needs no module; its limits hold for the program "
             "and what it\nstarts. Without --physical that is all of the card, "
             "without --virtual nothing\nspills."};
    run.options = options->settings.options();
    option score{"--score", "FILE",
                 "say at the end what came, beside an estimate;\n"
                 "without =FILE the one that 'estimate --save' kept",
                 &options->score, offered::files};
    score.implied = usual_score_file();
    option json = flag("--json", options->json,
                       "with --score: say it as JSON on standard output");
    json.needs = {"--score"};
    for (auto &each :
         std::vector<option>{{"--library", "DIR", "folder of the CUDA library",
                              &options->cuda_library_dir, offered::folders},
                             std::move(score),
                             std::move(json),
                             leave_frameworks_flag(options->leaves_frameworks),
                             flag("--dry-run", options->dry_run,
                                  "only print the variables and the command")})
        run.options.push_back(std::move(each));
    run.arguments = {"-- COMMAND", &options->command, offered::command, true};
    run.action = [options](environment &env) { cmd_run(*options, env); };
    return run;
}

} // namespace emuvctl

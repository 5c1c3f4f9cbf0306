// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl run: starts a program under the CUDA library, with an instance's
// memory or within limits of its own.
#include "cuda_library.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "verbs.hpp"

#include <emuv/client.hpp>
#include <emuv/error.hpp>
#include <emuv/size.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/emuv.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace emuvctl {

namespace {

struct run_options
{
    std::string instance; // or several, by device
    std::string physical;
    std::string virtual_size;
    std::string ledger;
    std::string report;
    std::string store;
    std::string charge;
    bool reclaim = false;
    bool ipc = false;
    std::string move; // empty, 1, always or check
    std::string away;
    std::string trust;
    std::string trace;
    bool disable = false;
    std::string cuda_library_dir; // the folder of the CUDA library
    std::string libcuda;          // the driver's own, as is the next
    std::string libnvml;
    bool dry_run = false;
    std::vector<std::string> command;
};

using variables = std::vector<std::pair<std::string, std::string>>;

std::filesystem::path library_folder(const run_options &options)
{
    // The dynamic linker only warns of what it cannot preload, and the program
    // would run without any limit.
    if (!options.cuda_library_dir.empty()) {
        const auto folder = std::filesystem::absolute(options.cuda_library_dir);
        if (!std::filesystem::is_regular_file(folder / "libcuda.so.1"))
            throw failure(fmt::format("--library: {}: no libcuda.so.1 in it",
                                      folder.string()));
        return folder;
    }
    if (const auto found = find_cuda_library())
        return *found;
    throw failure(no_cuda_library() +
                  "; it is built where CMake finds CUDA's toolkit, 13.0 or "
                  "later, and --library names its folder elsewhere");
}

std::string preload(const std::filesystem::path &folder)
{
    std::string list = (folder / "libcuda.so.1").string();
    if (std::filesystem::exists(folder / "libnvidia-ml.so.1"))
        list += ":" + (folder / "libnvidia-ml.so.1").string();
    if (list.find(' ') != std::string::npos)
        throw failure(fmt::format("{}: LD_PRELOAD takes no path with a blank "
                                  "in it",
                                  folder.string()));
    const char *const others = std::getenv("LD_PRELOAD");
    return others == nullptr || *others == '\0' ? list : list + ":" + others;
}

// Finds out now, in words, what the program would only be told as a number.
void check_instance(int id, environment &env)
{
    const emuv::client client(env.dev / fmt::format("emuv{}", id),
                              O_RDWR | O_CLOEXEC, env.kernel);
}

// A size as the library is to be told it.
std::string bytes_of(const char *option, const std::string &text)
{
    const std::uint64_t bytes =
        parse_option(option, [&] { return emuv::parse_size(text); });
    if (bytes > EMUV_MAX_BYTES)
        throw usage_error(fmt::format("{}: {} is more than {}", option, text,
                                      emuv::format_size_exact(EMUV_MAX_BYTES)));
    return std::to_string(bytes);
}

void check_one_of(const char *option, const std::string &value,
                  std::initializer_list<const char *> allowed)
{
    if (!value.empty() &&
        std::find(allowed.begin(), allowed.end(), value) == allowed.end())
        throw usage_error(fmt::format("{}: '{}' is none of {}", option, value,
                                      fmt::join(allowed, ", ")));
}

// The instances of "0", "emuv0", "0,1": the first device's, the second's, ...
std::vector<int> instances_of(const std::string &text)
{
    std::vector<int> ids;
    for (std::size_t start = 0; start <= text.size();) {
        const std::size_t end = std::min(text.find(',', start), text.size());
        // One by one: several devices may share an instance.
        const std::string word = text.substr(start, end - start);
        ids.push_back(parse_instances(std::span(&word, 1)).front());
        start = end + 1;
    }
    return ids;
}

// The program may go elsewhere before the library opens it.
std::string whole_path(const std::string &path)
{
    return std::filesystem::absolute(path).lexically_normal().string();
}

// A name of nothing between two commas would be taken for one that is meant.
void check_names(const char *option, const std::string &list)
{
    if (list.empty() || list.front() == ',' || list.back() == ',' ||
        list.find(",,") != std::string::npos)
        throw usage_error(
            fmt::format("{}: '{}' has an empty name in it", option, list));
}

// What was given on the command line, wrong together or by itself.
void check(const run_options &options)
{
    const bool own = !options.physical.empty() || !options.virtual_size.empty();
    if (options.instance.empty() && !own && !options.disable)
        throw usage_error("give --instance, or --physical, --virtual or both");
    check_one_of("--report", options.report, {"total", "physical", "free"});
    check_one_of("--store", options.store, {"auto", "numa", "pages"});
    check_one_of("--charge", options.charge, {"all", "allocations"});
    check_one_of("--move", options.move, {"1", "always", "check"});
    check_one_of("--away", options.away, {"mapped", "unmapped"});
    if (!options.move.empty() && options.store == "pages")
        throw usage_error("--move needs the numa store: pages do not move");
    if (!options.trust.empty())
        check_names("--trust", options.trust);
}

// A library that is named must be there: the program would only be told that
// there is no driver.
std::string named_library(const char *option, const std::string &path)
{
    if (!std::filesystem::is_regular_file(path))
        throw failure(fmt::format("{}: {}: no such file", option, path));
    return whole_path(path);
}

variables settings_of(const run_options &options)
{
    variables set;
    const auto add = [&set](const char *name, const std::string &value) {
        if (!value.empty())
            set.emplace_back(name, value);
    };
    if (!options.physical.empty())
        add("EMUV_PHYSICAL", bytes_of("--physical", options.physical));
    if (!options.virtual_size.empty())
        add("EMUV_VIRTUAL", bytes_of("--virtual", options.virtual_size));
    if (!options.ledger.empty())
        add("EMUV_LEDGER", whole_path(options.ledger));
    add("EMUV_REPORT", options.report);
    add("EMUV_STORE", options.store);
    add("EMUV_CHARGE", options.charge);
    if (options.ipc)
        add("EMUV_IPC", "1");
    if (options.reclaim)
        add("EMUV_RECLAIM", "1");
    add("EMUV_MOVE", options.move);
    add("EMUV_AWAY", options.away);
    add("EMUV_TRUST", options.trust);
    if (!options.trace.empty())
        add("EMUV_TRACE", whole_path(options.trace));
    if (options.disable)
        add("EMUV_DISABLE", "1");
    if (!options.libcuda.empty())
        add("EMUV_LIBCUDA", named_library("--libcuda", options.libcuda));
    if (!options.libnvml.empty())
        add("EMUV_LIBNVML", named_library("--libnvml", options.libnvml));
    return set;
}

// Makes a file that the library will open, where it is missing; what is in it
// stays.
void touch(const std::string &path)
{
    const emuv::unique_fd fd(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!fd)
        throw std::system_error(errno, std::generic_category(), path);
}

// The file in which the program and its children keep their accounts.
std::string make_ledger()
{
    std::string path = "/dev/shm/emuv-ledger-XXXXXX";
    const emuv::unique_fd fd(::mkostemp(path.data(), O_CLOEXEC));
    if (!fd)
        throw std::system_error(errno, std::generic_category(), path);
    return path;
}

// Leaves a process behind that removes the ledger when this one, which is about
// to become the program, has ended. It is nobody's child, so that a program
// that waits for any of its own never meets it.
void remove_at_end(const std::string &ledger)
{
    const emuv::unique_fd self(
        static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    if (!self)
        throw std::system_error(errno, std::generic_category(), "pidfd_open");
    const pid_t first = ::fork();
    if (first < 0)
        throw std::system_error(errno, std::generic_category(), "fork");
    if (first > 0) {
        ::waitpid(first, nullptr, 0);
        return;
    }
    if (::fork() != 0)
        ::_exit(0);
    ::setsid();
    // Nothing of the program's may stay open here: who reads its output waits
    // for the end of it.
    ::close_range(0, static_cast<unsigned>(self.get()) - 1, 0);
    ::close_range(static_cast<unsigned>(self.get()) + 1, ~0U, 0);
    pollfd ended{self.get(), POLLIN, 0};
    while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
    }
    ::unlink(ledger.c_str());
    ::_exit(0);
}

// As a shell would have to be given it.
std::string quoted(const std::string &word)
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
    for (const char *const name :
         {"EMUV_REPORT", "EMUV_STORE", "EMUV_CHARGE", "EMUV_IPC",
          "EMUV_RECLAIM", "EMUV_MOVE", "EMUV_AWAY", "EMUV_TRUST", "EMUV_TRACE",
          "EMUV_DISABLE", "EMUV_LIBCUDA", "EMUV_LIBNVML"}) {
        const char *const value = std::getenv(name);
        if (value != nullptr && *value != '\0' &&
            std::none_of(set.begin(), set.end(),
                         [&](const auto &each) { return each.first == name; }))
            out.emplace_back(name, value);
    }
    return out;
}

// @param own  the limits are this program's own, in a ledger that is still to
//   be made
std::string describe(const variables &set, const run_options &options, bool own)
{
    std::string text;
    for (const auto &[name, value] : inherited(set))
        text += fmt::format("{}={} # as it is already\n", name, quoted(value));
    for (const auto &[name, value] : set)
        text += fmt::format("{}={}\n", name, quoted(value));
    if (own)
        text += "EMUV_LEDGER=/dev/shm/emuv-ledger-XXXXXX # made for this run\n";
    for (const auto &word : options.command)
        text += (&word == &options.command.front() ? "" : " ") + quoted(word);
    return text + "\n";
}

[[noreturn]] void become(const run_options &options)
{
    std::vector<char *> words;
    for (const auto &word : options.command)
        words.push_back(const_cast<char *>(word.c_str()));
    words.push_back(nullptr);
    std::signal(SIGPIPE, SIG_DFL); // this program ignores it; others do not
    ::execvp(words[0], words.data());
    const int number = errno;
    throw not_started(options.command[0] + ": " + emuv::errno_text(number),
                      number);
}

// Becomes the program; comes back with --dry-run alone.
void cmd_run(const run_options &options, environment &env)
{
    check(options);
    variables set = settings_of(options);
    const auto folder = library_folder(options);
    if (!options.instance.empty()) {
        const auto ids = instances_of(options.instance);
        if (!options.dry_run && !options.disable)
            for (const int id : ids)
                check_instance(id, env);
        set.emplace_back("EMUV_INSTANCE",
                         fmt::format("{}", fmt::join(ids, ",")));
    }
    set.emplace_back("LD_PRELOAD", preload(folder));
    const bool own =
        (!options.physical.empty() || !options.virtual_size.empty()) &&
        options.ledger.empty();
    if (options.dry_run) {
        env.out.write(describe(set, options, own));
        return;
    }
    for (const auto *path : {&options.ledger, &options.trace})
        if (!path->empty())
            touch(*path);
    // Limits that come from outside must not be mixed with those asked for.
    for (const char *const name :
         {"EMUV_INSTANCE", "EMUV_PHYSICAL", "EMUV_VIRTUAL", "EMUV_LEDGER"})
        ::unsetenv(name);
    if (own) {
        const std::string ledger = make_ledger();
        remove_at_end(ledger);
        set.emplace_back("EMUV_LEDGER", ledger);
    }
    for (const auto &[name, value] : set)
        ::setenv(name.c_str(), value.c_str(), 1);
    become(options);
}

// What only makes sense where memory moves.
option with_move(option what)
{
    what.needs = {"--move"};
    return what;
}

std::vector<option> run_options_of(run_options &options)
{
    option instance{"--instance", "INSTANCE",
                    "whose memory, written as emuv0 or 0; 0,1: for\n"
                    "the first card and for the second",
                    &options.instance, offered::instances};
    instance.excludes = {"--physical", "--virtual", "--ledger"};
    return {instance,
            {"--physical", "SIZE", "without an instance: share of VRAM",
             &options.physical},
            {"--virtual", "SIZE", "without an instance: share of system RAM",
             &options.virtual_size},
            {"--ledger", "FILE",
             "without an instance: share the limits with all\n"
             "that name this file; made where it is missing",
             &options.ledger, offered::files},
            {"--report",
             "WHAT",
             "what the program is told it has: total\n"
             "(default), physical or free",
             &options.report,
             offered::words,
             {{"total"}, {"physical"}, {"free"}}},
            {"--store",
             "STORE",
             "what spilled memory is: auto (default), numa\nor pages",
             &options.store,
             offered::words,
             {{"auto"}, {"numa"}, {"pages"}}},
            {"--charge",
             "WHAT",
             "what takes of the share of VRAM: all (default),\n"
             "CUDA's contexts and code too, or allocations",
             &options.charge,
             offered::words,
             {{"all"}, {"allocations"}}},
            flag("--ipc", options.ipc, "let processes share what lies in VRAM"),
            flag("--reclaim", options.reclaim,
                 "have PyTorch give back what it caches before\n"
                 "memory spills; not with pools or CUDA graphs"),
            {"--move",
             "",
             "move memory into VRAM ahead of its use, where\n"
             "that is faster. An experiment: a kernel that\n"
             "follows pointers in memory, of a library that\n"
             "is trusted, may lose what it writes, or end the\n"
             "program. --move=always: even where it is not\n"
             "faster. --move=check: nothing moves, slowly, and\n"
             "the program ends at the first such kernel, which\n"
             "is named",
             &options.move,
             offered::words,
             {{"always"}, {"check"}},
             "1"},
            with_move({"--away",
                       "WHAT",
                       "with --move: what is at the addresses of memory\n"
                       "that has left VRAM: mapped (default), the same\n"
                       "bytes, or unmapped, nothing until it is needed,\n"
                       "which is faster and less safe",
                       &options.away,
                       offered::words,
                       {{"mapped"}, {"unmapped"}}}),
            with_move({"--trust",
                       "WHOSE",
                       "with --move: which kernels are trusted to touch\n"
                       "only memory whose address is among their\n"
                       "parameters: known (default), all, none, or file\n"
                       "and kernel names, comma-separated; -NAME: not\n"
                       "that one",
                       &options.trust,
                       offered::words,
                       {{"known"}, {"all"}, {"none"}}}),
            with_move({"--trace", "FILE",
                       "with --move: write what moved, for Perfetto",
                       &options.trace, offered::files}),
            flag("--disable", options.disable,
                 "keep the library out of every call"),
            {"--library", "DIR", "folder of the CUDA library",
             &options.cuda_library_dir, offered::folders},
            {"--libcuda", "FILE", "the driver's libcuda, where it is not found",
             &options.libcuda, offered::files},
            {"--libnvml", "FILE", "the driver's libnvidia-ml, likewise",
             &options.libnvml, offered::files},
            flag("--dry-run", options.dry_run,
                 "only print the variables and the command")};
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
    run.options = run_options_of(*options);
    run.arguments = {"-- COMMAND", &options->command, offered::command, true};
    run.action = [options](environment &env) { cmd_run(*options, env); };
    return run;
}

} // namespace emuvctl

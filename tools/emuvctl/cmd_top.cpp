// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl top: shows instances and their processes on the whole terminal.
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "lib/entries.hpp"
#include "sampling.hpp"
#include "verbs.hpp"
#include "watch/terminal.hpp"
#include "watch/view.hpp"

#include <emuv/error.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emuvctl {

namespace {

// A signal is seen, and a new size of the terminal drawn, after so long.
constexpr double longest_wait = 0.25; // seconds

struct top_options
{
    std::vector<std::string> instances;
    std::string interval;
    bool no_color = false;
};

volatile std::sig_atomic_t ended = 0;

// These would end it with the terminal still drawn on.
void catch_more_signals()
{
    for (const int number : {SIGHUP, SIGQUIT}) {
        struct sigaction action
        {};
        if (::sigaction(number, nullptr, &action) != 0 ||
            action.sa_handler == SIG_IGN)
            continue;
        action = {};
        action.sa_handler = [](int /*number*/) { ended = 1; };
        ::sigaction(number, &action, nullptr);
    }
}

std::string clock_text()
{
    const std::time_t now = std::time(nullptr);
    std::tm split{};
    ::localtime_r(&now, &split);
    return fmt::format("{:02}:{:02}:{:02}", split.tm_hour, split.tm_min,
                       split.tm_sec);
}

// Looks at what a path leads to. Another process's file may be of a file system
// that does not answer; so none is asked.
std::optional<struct statx> look_at(const std::filesystem::path &path)
{
    struct statx found
    {};
    if (::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC,
                STATX_TYPE | STATX_INO, &found) != 0)
        return std::nullopt;
    return found;
}

bool same_file(const struct statx &a, const struct statx &b)
{
    if (a.stx_ino == b.stx_ino && a.stx_dev_major == b.stx_dev_major &&
        a.stx_dev_minor == b.stx_dev_minor)
        return true;
    // In a container the node may be another file of the same device.
    return S_ISCHR(a.stx_mode) && S_ISCHR(b.stx_mode) &&
           a.stx_rdev_major == b.stx_rdev_major &&
           a.stx_rdev_minor == b.stx_rdev_minor;
}

// True if the process has the node open.
bool holds(int pid, const std::string &node, const environment &env)
{
    const auto wanted = look_at(node);
    if (!wanted)
        return false;
    // The process may end meanwhile, and its folder with it.
    for (const auto &entry :
         emuv::entries(env.proc / std::to_string(pid) / "fd")) {
        const auto held = look_at(entry.path());
        if (held && same_file(*held, *wanted))
            return true;
    }
    return false;
}

// Ends the process of a client that was chosen a while ago.
// @return a message
std::string kill_client(const watch::action &what, const environment &env)
{
    const std::string name = emuv::instance_name(what.who.instance);
    const emuv::unique_fd process(
        static_cast<int>(::syscall(SYS_pidfd_open, what.pid, 0)));
    if (!process)
        return fmt::format("{}: {}", what.pid, emuv::errno_text(errno));
    // From here on the number cannot become another process's. It may have
    // before: the client has to be there still, and to be this process's.
    const auto clients = read_clients(what.who.instance, env);
    const bool there =
        clients && std::any_of(clients->begin(), clients->end(),
                               [&what](const emuv::client_info &one) {
                                   return one.client == what.who.client &&
                                          one.pid == what.pid;
                               });
    if (!there || !holds(what.pid, env.node(what.who.instance), env))
        return fmt::format("{} is not seen to use {}; nothing was sent",
                           what.pid, name);
    if (::syscall(SYS_pidfd_send_signal, process.get(), what.signal, nullptr,
                  0) != 0)
        return fmt::format("{}: {}", what.pid, emuv::errno_text(errno));
    return fmt::format("sent {} to {}",
                       what.signal == SIGKILL ? "SIGKILL" : "SIGTERM",
                       what.pid);
}

void show(watch::terminal &on, watch::view &what)
{
    on.show(what.draw(on.width(), on.height(), clock_text()));
}

void watch_instances(const sampling &what, double interval, bool colour,
                     environment &env)
{
    std::optional<watch::terminal> on;
    catch_more_signals();
    try {
        on.emplace(colour);
    } catch (const std::runtime_error &problem) {
        throw failure(problem.what());
    }
    watch::view view({watch::terminal::unicode(), interval});
    double next = env.clock();
    while (env.wait(0) && ended == 0 && !watch::terminal::gone()) {
        if (!view.paused() && env.clock() >= next) {
            view.add(take_sample(what, env));
            // Keeps the rhythm, but never tries to catch up.
            next = std::max(next + interval, env.clock());
        }
        show(*on, view);
        const double rest = std::clamp(next - env.clock(), 0.0, longest_wait);
        const int key = on->read_key(
            static_cast<int>((view.paused() ? longest_wait : rest) * 1000));
        const watch::action action = view.press(key);
        if (action.what == watch::action::type::quit)
            return;
        if (action.what == watch::action::type::kill)
            view.say(kill_client(action, env));
    }
}

void cmd_top(const top_options &options, environment &env)
{
    const double interval =
        options.interval.empty() ? 1 : parse_option("-i", [&] {
            return parse_seconds(options.interval);
        });
    const auto ids = parse_instances(options.instances, env);
    if (!env.out.terminal() || ::isatty(STDIN_FILENO) != 1)
        throw failure("this needs a terminal; 'emuvctl stats -i 1' prints the "
                      "same into a pipe");
    require_module(env);
    watch_instances({ids, true, ids.empty()}, interval,
                    !options.no_color && !env.no_color, env);
}

} // namespace

verb top_verb()
{
    const auto options = std::make_shared<top_options>();
    verb top{
        "top", "Instances", "watch instances and their processes",
        "Shows instances and their processes on the whole terminal: what "
        "they hold, what\nmoves, how long work waits, and when an instance "
        "will be full.\nF1 lists the keys."};
    top.arguments = instance_arguments(options->instances);
    top.options = {{"-i,--interval", "SECONDS",
                    "look every so many seconds. Default: 1",
                    &options->interval},
                   flag("-C,--no-color", options->no_color, "use no colours")};
    top.action = [options](environment &env) { cmd_top(*options, env); };
    return top;
}

} // namespace emuvctl

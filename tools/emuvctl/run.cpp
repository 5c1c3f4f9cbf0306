// SPDX-License-Identifier: GPL-2.0-or-later
// Runs one command line. Only here failures become messages.
#include "command_line.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "kernel_log.hpp"

#include <emuv/error.hpp>
#include <emuv/profile.hpp>

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

namespace emuvctl {

namespace {

constexpr int exit_done = 0;
constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr int exit_not_recognised = 3;
// Of 'run', whose other exit statuses are the program's, as those of env(1).
constexpr int exit_run_failed = 125;
constexpr int exit_run_cannot_start = 126;
constexpr int exit_run_not_found = 127;

int report(environment &env, kernel_log &log)
{
    try {
        throw;
    } catch (const closed_pipe &) {
        return exit_done; // "| head" has seen enough
    } catch (const usage_error &problem) {
        env.say(problem.what());
        env.err.write("Try 'emuvctl " + env.verb +
                      (env.verb.empty() ? "" : " ") + "--help'.\n");
        return exit_usage;
    } catch (const emuv::profile_error &problem) {
        for (const auto &message : problem.messages())
            env.say(message);
    } catch (const emuv::error &problem) {
        env.say(explain(problem, env));
        // The driver says more to the kernel's log than an errno can hold.
        for (const auto &line : log.lines())
            env.say("the kernel's log says: " + line);
    } catch (const not_recognised &problem) {
        env.say(problem.what());
        return exit_not_recognised;
    } catch (const ended_with &problem) {
        env.say(problem.what());
        return problem.status();
    } catch (const not_started &problem) {
        env.say(problem.what());
        return problem.number() == ENOENT ? exit_run_not_found
                                          : exit_run_cannot_start;
    } catch (const std::system_error &problem) {
        const std::string what = problem.what();
        const auto colon = what.find(": ");
        env.say(what.substr(0, colon) + ": " +
                emuv::errno_text(problem.code().value()));
    } catch (const std::bad_alloc &) {
        env.say("out of memory");
    } catch (const std::exception &problem) {
        env.say(problem.what());
    }
    return exit_failed;
}

} // namespace

int run(std::span<const std::string> arguments, environment &env)
{
    kernel_log log(env.dev / "kmsg");
    try {
        run_command_line(arguments, env);
        return exit_done;
    } catch (...) {
        try {
            const int status = report(env, log);
            const bool own = status == exit_failed || status == exit_usage;
            return env.verb == "run" && own ? exit_run_failed : status;
        } catch (...) {
            return exit_failed; // no memory for the words
        }
    }
}

} // namespace emuvctl

// SPDX-License-Identifier: GPL-2.0-or-later
// A worker: a process that runs one item's program.
#include "batch/worker.hpp"

#include "batch/relay.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace emuvctl::batch {

namespace {

constexpr int signalled = 128; // as shells say it
constexpr int not_started = 127;

[[noreturn]] void fail(const char *what)
{
    throw std::system_error(errno, std::generic_category(), what);
}

struct pipe_ends
{
    emuv::unique_fd read;
    emuv::unique_fd write;
};

pipe_ends make_pipe()
{
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        fail("pipe");
    return {emuv::unique_fd(ends[0]), emuv::unique_fd(ends[1])};
}

double now()
{
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_nsec) * 1e-9;
}

// Tells why there is no program, in the process that was to become it.
[[noreturn]] void give_up(int problems, int number)
{
    [[maybe_unused]] const ssize_t told =
        ::write(problems, &number, sizeof(number));
    ::_exit(not_started);
}

[[noreturn]] void become(const job &what, int out, int err, int problems,
                         pid_t worker)
{
    // A worker that is killed takes its program along.
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != worker)
        ::_exit(not_started);
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0 ||
        ::dup2(out, STDOUT_FILENO) < 0 || ::dup2(err, STDERR_FILENO) < 0)
        give_up(problems, errno);
    for (const auto &name : what.unset)
        ::unsetenv(name.c_str());
    for (const auto &[name, value] : what.set)
        ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char *> words;
    for (const auto &word : what.command)
        words.push_back(const_cast<char *>(word.c_str()));
    words.push_back(nullptr);
    // Ignored by emuvctl and by its worker; others do not.
    for (const int number : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM})
        std::signal(number, SIG_DFL);
    ::execvp(words[0], words.data());
    give_up(problems, errno);
}

// The program of a worker, and the ends of its pipes.
struct program
{
    pid_t pid = -1;
    emuv::unique_fd out;
    emuv::unique_fd err;
    int problem = 0; // errno, if it could not be started
};

program start_program(const job &what)
{
    pipe_ends out = make_pipe();
    pipe_ends err = make_pipe();
    pipe_ends problems = make_pipe();
    const pid_t self = ::getpid();
    program made;
    made.pid = ::fork();
    if (made.pid < 0)
        fail("fork");
    if (made.pid == 0)
        become(what, out.write.get(), err.write.get(), problems.write.get(),
               self);
    problems.write.reset();
    while (::read(problems.read.get(), &made.problem, sizeof(made.problem)) <
               0 &&
           errno == EINTR) {
    }
    made.out = std::move(out.read);
    made.err = std::move(err.read);
    return made;
}

// Passes on a part of what there is. @return how much; 0 at the end
std::size_t pass_on(int from, relay &to)
{
    char block[16384];
    ssize_t got = 0;
    do
        got = ::read(from, block, sizeof(block));
    while (got < 0 && errno == EINTR);
    if (got < 0)
        fail("read");
    to.add({block, static_cast<std::size_t>(got)});
    return static_cast<std::size_t>(got);
}

// Passes on what a pipe holds now, and not what comes into it meanwhile.
void empty(int from, relay &to)
{
    int held = 0;
    if (::ioctl(from, FIONREAD, &held) != 0)
        fail("ioctl");
    for (auto left = static_cast<std::size_t>(held); left > 0;) {
        const std::size_t passed = pass_on(from, to);
        left = passed == 0 ? 0 : left - std::min(left, passed);
    }
}

// Passes its words on until it ends. Processes that it leaves behind may hold
// its pipes for longer; nobody waits for these.
void relay_until_end(const program &run, relay &out, relay &err)
{
    const emuv::unique_fd ended(
        static_cast<int>(::syscall(SYS_pidfd_open, run.pid, 0)));
    if (!ended)
        fail("pidfd_open");
    pollfd all[3] = {{run.out.get(), POLLIN, 0},
                     {run.err.get(), POLLIN, 0},
                     {ended.get(), POLLIN, 0}};
    relay *const relays[] = {&out, &err};
    while (all[2].revents == 0) {
        if (::poll(all, 3, -1) < 0) {
            if (errno == EINTR)
                continue;
            fail("poll");
        }
        for (int i = 0; i < 2; i++)
            if (all[i].revents != 0 && pass_on(all[i].fd, *relays[i]) == 0)
                all[i].fd = -1;
    }
    for (int i = 0; i < 2; i++) {
        if (all[i].fd >= 0)
            empty(all[i].fd, *relays[i]);
        relays[i]->end();
    }
}

ending judge(int status, bool refused, const job &what)
{
    // C++ aborts where nobody catches the refusal.
    if (WIFSIGNALED(status))
        return refused && WTERMSIG(status) == SIGABRT ? ending::no_memory
                                                      : ending::lost;
    const int number = WEXITSTATUS(status);
    const auto &statuses = what.memory_statuses;
    if (std::find(statuses.begin(), statuses.end(), number) != statuses.end())
        return ending::no_memory;
    if (number == 0)
        return ending::done;
    return refused ? ending::no_memory : ending::failed;
}

outcome run_job(const job &what)
{
    emuv::unique_fd log;
    if (!what.log.empty()) {
        log.reset(::open(what.log.c_str(),
                         O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC,
                         0666));
        if (!log)
            fail(what.log.c_str());
    }
    relay out(log ? log.get() : what.out, log ? "" : what.before_out);
    relay err(log ? log.get() : what.err, log ? "" : what.before_err);
    const double begin = now();
    const program run = start_program(what);
    relay_until_end(run, out, err);
    int status = 0;
    while (::waitpid(run.pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid");
    outcome result;
    result.problem = run.problem;
    result.seconds = now() - begin;
    result.how = judge(status, err.refused(), what);
    result.status = WIFSIGNALED(status) ? signalled + WTERMSIG(status)
                                        : WEXITSTATUS(status);
    return result;
}

// A group of its own is in the terminal's background. There a terminal may stop
// those that write to it, and stops programs that ask it for a password.
void leave_terminal()
{
    const emuv::unique_fd terminal(
        ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (terminal)
        ::ioctl(terminal.get(), TIOCNOTTY);
}

[[noreturn]] void work(const job &what, const journal &book, int results)
{
    ::setpgid(0, 0);
    leave_terminal();
    // Or the program's end is forgotten, where the caller ignores it.
    std::signal(SIGCHLD, SIG_DFL);
    // A signal to its group means the program.
    for (const int number : {SIGINT, SIGTERM})
        std::signal(number, SIG_IGN);
    outcome result;
    try {
        result = run_job(what);
        if (result.problem == 0) {
            entry made = what.about;
            made.how = result.how;
            made.status = result.status;
            made.seconds = result.seconds;
            book.append(made);
        }
    } catch (const std::system_error &problem) {
        result.failure = problem.code().value();
    }
    [[maybe_unused]] const ssize_t told =
        ::write(results, &result, sizeof(result));
    ::_exit(0);
}

} // namespace

worker::worker(const job &what, const journal &book)
{
    pipe_ends ends = make_pipe();
    pid_ = ::fork();
    if (pid_ < 0)
        fail("fork");
    if (pid_ == 0)
        work(what, book, ends.write.get());
    ::setpgid(pid_, pid_); // before anybody ends the group
    results_ = std::move(ends.read);
}

outcome worker::finish()
{
    outcome result;
    ssize_t got = 0;
    do
        got = ::read(results_.get(), &result, sizeof(result));
    while (got < 0 && errno == EINTR);
    const bool told = got == static_cast<ssize_t>(sizeof(result));
    if (!told) {
        // It was killed. Its group still bears its number until it is waited
        // for, so this meets nobody else.
        result = outcome();
        ::kill(-pid_, SIGKILL);
    }
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    if (!told)
        result.status =
            signalled + (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return result;
}

void worker::ask_to_end() const
{
    ::kill(-pid_, SIGTERM);
}

void worker::end() const
{
    ::kill(-pid_, SIGKILL);
}

} // namespace emuvctl::batch

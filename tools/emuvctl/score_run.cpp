// SPDX-License-Identifier: GPL-2.0-or-later
// A run that is held against an estimate.
#include "score_run.hpp"

#include "base/summary.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "lib/entries.hpp"
#include "output.hpp"
#include "report/page.hpp"
#include "report/run.hpp"
#include "report/score.hpp"
#include "score_file.hpp"
#include "signals.hpp"
#include "statistics_file.hpp"

#include <emuv/error.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace emuvctl {

namespace {

// The signals that one sends to a program. Left out are those that stop or end
// it for certain, that tell of its own faults, and that this program needs.
std::vector<int> handed_on()
{
    std::vector<int> all = {SIGTERM, SIGHUP,  SIGINT,  SIGQUIT,   SIGUSR1,
                            SIGUSR2, SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF,
                            SIGPWR,  SIGIO,   SIGURG,  SIGWINCH,  SIGTSTP,
                            SIGTTIN, SIGTTOU};
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        all.push_back(number);
    return all;
}

// The program, for the handler; 0 while there is none.
volatile pid_t receiver = 0;

// How it has ended, as waitpid() tells.
volatile int last_status = 0;

// Ends as the program has ended: the shell is told the same as without --score.
[[noreturn]] void end_as(int status)
{
    if (WIFSIGNALED(status)) {
        const int number = WTERMSIG(status);
        ::prctl(PR_SET_DUMPABLE, 0); // one core is enough
        std::signal(number, SIG_DFL);
        sigset_t own;
        sigemptyset(&own);
        sigaddset(&own, number);
        ::sigprocmask(SIG_UNBLOCK, &own, nullptr);
        ::raise(number);
        ::_exit(128 + number);
    }
    ::_exit(WEXITSTATUS(status));
}

void end_as_program(int /*number*/)
{
    end_as(last_status);
}

// True if it ends a program that does nothing about it.
bool is_fatal(int number)
{
    switch (number) {
    case SIGURG:
    case SIGWINCH:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
        return false;
    default:
        return true;
    }
}

// True if the program is sent it as well. A terminal's signals go to all of its
// foreground's processes, its end first to the leader of the session alone.
bool is_of_terminal(int number, const siginfo_t &from)
{
    if (from.si_code <= 0)
        return false;
    switch (number) {
    case SIGINT:
    case SIGQUIT:
    case SIGWINCH:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
        return true;
    case SIGHUP:
        return ::getsid(0) != ::getpid();
    default:
        return false;
    }
}

void send(pid_t program, int number, const siginfo_t &from)
{
    if (from.si_code == SI_QUEUE)
        ::sigqueue(program, number, from.si_value);
    else
        ::kill(program, number);
}

void hand_on(int number, siginfo_t *from, void * /*context*/)
{
    const int kept = errno;
    if (receiver > 0 && !is_of_terminal(number, *from))
        send(receiver, number, *from);
    errno = kept;
}

// Hands signals on as long as it lives, and keeps them waiting at first.
class handing_on
{
public:
    handing_on() : numbers_(handed_on())
    {
        sigemptyset(&ours_);
        for (const int each : numbers_)
            sigaddset(&ours_, each);
        ::sigprocmask(SIG_BLOCK, &ours_, &mask_);
    }
    handing_on(const handing_on &) = delete;
    handing_on &operator=(const handing_on &) = delete;
    // From now on a signal that would end this process has it end at once, as
    // the program has ended: its status is not lost.
    ~handing_on()
    {
        ::sigprocmask(SIG_BLOCK, &ours_, nullptr);
        receiver = 0;
        for (std::size_t i = 0; i < before_.size(); i++) {
            if (is_fatal(numbers_[i]) && before_[i].sa_handler == SIG_DFL)
                before_[i].sa_handler = end_as_program;
            ::sigaction(numbers_[i], &before_[i], nullptr);
        }
        ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
    }

    // Hands on what waits. A terminal has sent it to this process alone, if the
    // program was not there yet: it gets that, too, and once all the same.
    // @param program  has them wait
    void hand_on_waiting(pid_t program) const
    {
        const timespec none = {};
        siginfo_t from = {};
        while (::sigtimedwait(&ours_, &from, &none) > 0)
            send(program, from.si_signo, from);
    }

    void to(pid_t program)
    {
        receiver = program;
        struct sigaction passes = {};
        passes.sa_sigaction = hand_on;
        passes.sa_flags = SA_RESTART | SA_SIGINFO;
        for (const int each : numbers_) {
            before_.push_back(inherited_action(each));
            ::sigaction(each, &passes, nullptr);
        }
        // Also those that the caller keeps waiting: the program may ask for
        // them.
        ::sigprocmask(SIG_UNBLOCK, &ours_, nullptr);
    }

private:
    std::vector<int> numbers_;
    std::vector<struct sigaction> before_;
    sigset_t ours_ = {};
    sigset_t mask_ = {}; // of before
};

// Stops this process as a signal has stopped the program. Once somebody has
// this process go on, the program does, too.
void stop_with(pid_t program, int number)
{
    struct sigaction stops = {};
    struct sigaction before = {};
    stops.sa_handler = SIG_DFL;
    ::sigaction(number, &stops, &before); // not of SIGSTOP, which has no other
    ::raise(number);
    // The terminal may stop both again, so this comes first.
    ::kill(program, SIGCONT);
    if (number != SIGSTOP)
        ::sigaction(number, &before, nullptr);
}

emuv::report::score parsed(const std::string &path, std::string_view text)
{
    try {
        return emuv::report::read_score(path, text);
    } catch (const emuv::report::unreadable &problem) {
        throw failure(fmt::format("--score: {}", problem.what()));
    }
}

// One process's peaks, and the time of its step.
struct process_figures
{
    double vram = 0;
    double ram = 0;
    double step_ns = 0; // 0: it has no rhythm
};

process_figures figures_of(const process_statistics &page)
{
    process_figures out;
    for (const auto &device : page.devices) {
        out.vram += static_cast<double>(device.charged.most_vram);
        // Memory on another card is VRAM of that one.
        out.ram += static_cast<double>(device.charged.most_ram);
        const auto means = emuv::cuda::summarize(device, page.memory);
        if (means.steps > 0 && means.round > 0)
            out.step_ns = std::max(out.step_ns, means.took_ns);
    }
    return out;
}

// Reads what the processes of a run published. Of several the one counts that
// held most: their peaks may have come at different times.
emuv::report::came read_pages(const std::filesystem::path &folder,
                              const environment &env)
{
    emuv::report::came out;
    for (const auto &entry : emuv::entries(folder)) {
        // The program's user may have put anything here.
        const emuv::unique_fd file(
            ::open(entry.path().c_str(),
                   O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
        struct stat about = {};
        if (!file || ::fstat(file.get(), &about) != 0 ||
            !S_ISREG(about.st_mode))
            continue;
        process_figures one;
        try {
            one = figures_of(read_statistics(file.get(), env, writer::ended));
        } catch (const failure &why) {
            env.say(
                fmt::format("--score: a process is left out: {}", why.what()));
            continue;
        }
        if (one.vram + one.ram == 0)
            continue;
        out.processes++;
        if (one.vram + one.ram <= out.peak_vram + out.peak_ram)
            continue;
        out.peak_vram = one.vram;
        out.peak_ram = one.ram;
        out.step_ms =
            one.step_ns > 0 ? std::optional(one.step_ns / 1e6) : std::nullopt;
    }
    return out;
}

// Columns that a text takes, which is UTF-8.
std::size_t columns_of(std::string_view text)
{
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char each) {
            return (static_cast<unsigned char>(each) & 0xc0U) != 0x80;
        }));
}

std::string table_of(const emuv::report::score &of)
{
    std::vector<std::array<std::string, 6>> rows = {
        {"", "LOW", "LIKELY", "HIGH", "CAME", "OF LIKELY"}};
    for (const auto &each : emuv::report::lines_of(of)) {
        // The heading has the last word: a terminal has 80 columns.
        std::string verdict = each.verdict;
        if (!verdict.ends_with("as likely"))
            verdict.resize(std::min(verdict.size(), verdict.rfind(" likely")));
        rows.push_back({each.what, each.low, each.likely, each.high, each.came,
                        std::move(verdict)});
    }
    std::array<std::size_t, 6> widths{};
    for (const auto &row : rows)
        for (std::size_t i = 0; i < row.size(); i++)
            widths[i] = std::max(widths[i], columns_of(row[i]));
    std::string out;
    for (const auto &row : rows) {
        std::string line = "  ";
        for (std::size_t i = 0; i < row.size(); i++) {
            const std::string pad(widths[i] - columns_of(row[i]), ' ');
            const bool left = i == 0 || i + 1 == row.size();
            line += (i == 0 ? "" : "  ") + (left ? row[i] + pad : pad + row[i]);
        }
        line.resize(line.find_last_not_of(' ') + 1);
        out += line + "\n";
    }
    return out;
}

// The end of the program counts, whatever becomes of the words about it.
template <typename Action>
void try_to(Action &&action, environment &env) noexcept
{
    try {
        try {
            std::forward<Action>(action)();
        } catch (const std::exception &problem) {
            env.say(fmt::format("--score: {}", problem.what()));
        }
    } catch (...) {
        return; // nobody reads it any more
    }
}

std::string heading(const emuv::report::score &of)
{
    std::string out;
    for (const std::string &each : {of.model, of.job, of.gpu})
        if (!each.empty())
            out += (out.empty() ? "" : ", ") + each;
    return out;
}

} // namespace

score_run::score_run(std::string path) : path_(std::move(path))
{
    text_ = read_estimate(path_);
    parsed(path_, text_);
}

score_run::~score_run()
{
    std::error_code ignored;
    if (!folder_.empty())
        std::filesystem::remove_all(folder_, ignored);
}

const std::filesystem::path &score_run::make_folder()
{
    std::string made = "/dev/shm/emuv-score-XXXXXX";
    if (::mkdtemp(made.data()) == nullptr)
        throw std::system_error(errno, std::generic_category(), made);
    return folder_ = made;
}

std::string score_run::stem() const
{
    return (folder_ / emuv::cuda::statistics_name).string();
}

score_run::side score_run::start()
{
    // Until both know what to do with them, signals wait.
    handing_on signals;
    // Ignored, it would have a child leave no status behind.
    const auto of_children = std::signal(SIGCHLD, SIG_DFL);
    const pid_t self = ::getpid();
    // The child goes on once the other end is closed: it has what came before.
    std::array<int, 2> both{};
    if (::pipe2(both.data(), O_CLOEXEC) != 0)
        throw std::system_error(errno, std::generic_category(), "pipe");
    emuv::unique_fd told(both[0]);
    emuv::unique_fd tells(both[1]);
    child_ = ::fork();
    if (child_ < 0)
        throw std::system_error(errno, std::generic_category(), "fork");
    if (child_ == 0) {
        folder_.clear();
        tells.reset();
        // A command that is killed takes the program with it.
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != self)
            ::raise(SIGKILL);
        char none = 0;
        while (::read(told.get(), &none, 1) < 0 && errno == EINTR) {
        }
        std::signal(SIGCHLD, of_children);
        give_signals_back();
        return side::child;
    }
    signals.hand_on_waiting(child_);
    tells.reset();
    signals.to(child_);
    wait();
    return side::parent;
}

void score_run::wait() const
{
    const auto id = static_cast<id_t>(child_);
    for (;;) {
        siginfo_t news = {};
        // Its number is its own as long as nobody has asked for its status:
        // until then a signal can go nowhere else.
        if (::waitid(P_PID, id, &news, WEXITED | WSTOPPED | WNOWAIT) != 0) {
            if (errno == EINTR)
                continue;
            return;
        }
        if (news.si_code != CLD_STOPPED) {
            last_status = news.si_code == CLD_EXITED ? news.si_status << 8U
                                                     : news.si_status;
            return;
        }
        // The caller is to see this process stop as the program did, which may
        // go on by now.
        news = {};
        if (::waitid(P_PID, id, &news, WSTOPPED | WNOHANG) == 0 &&
            news.si_pid == child_)
            stop_with(child_, news.si_status);
    }
}

std::string score_run::ending() const
{
    return WIFSIGNALED(status_) ? fmt::format("signal {}", WTERMSIG(status_))
                                : fmt::format("{}", WEXITSTATUS(status_));
}

void score_run::show(const emuv::report::came &came, form as,
                     environment &env) const
{
    auto score = parsed(path_, text_);
    score.came = came;
    if (as == form::json)
        return env.out.write(emuv::report::score_json(score));
    env.say(fmt::format(
        "the estimate, and what came{}",
        came.processes > 1
            ? fmt::format(" in the largest of {} processes", came.processes)
            : ""));
    env.err.write("  " + heading(score) + "\n" + table_of(score));
    if (!came.step_ms && (score.pass_ms || score.token_ms))
        env.err.write("  A step's time is known where memory moves, once the "
                      "program repeats itself.\n");
}

void score_run::keep(const emuv::report::came &came) const
{
    // Another estimate may be kept there by now; what came of it is nobody's.
    const estimate_lock lock(path_);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path_, ignored) &&
        !emuv::report::same_estimate(read_estimate(path_), text_))
        throw failure(fmt::format("{} has changed meanwhile: nothing was added "
                                  "to it",
                                  printable(path_)));
    save_estimate(lock, path_, emuv::report::with_came(path_, text_, came));
}

void score_run::tell(form as, environment &env) const
{
    auto came = read_pages(folder_, env);
    came.ended = ending();
    if (came.processes == 0)
        return env.say("--score: no process of the program held memory of a "
                       "card under a limit; the estimate's file is as it was");
    // It is kept even where it cannot be shown, and shown where it cannot be
    // kept.
    try_to([&] { show(came, as, env); }, env);
    try_to([&] { keep(came); }, env);
}

void score_run::finish(form as, environment &env)
{
    while (::waitpid(child_, &status_, 0) < 0 && errno == EINTR) {
    }
    try_to([&] { tell(as, env); }, env);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    end_as(status_);
}

} // namespace emuvctl

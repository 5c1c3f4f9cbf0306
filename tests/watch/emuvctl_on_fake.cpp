// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl on a driver in memory, for tests on a terminal. An instance has two
// processes, which hold and move more each time that they are looked at.
#include "environment.hpp"
#include "fake_kernel.hpp"

#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <fcntl.h>
#include <linux/emuv.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

volatile std::sig_atomic_t asked_to_end = 0;

class terminal_sink final : public emuvctl::sink
{
public:
    explicit terminal_sink(int fd) : fd_(fd) {}
    void write(std::string_view text) override
    {
        if (::write(fd_, text.data(), text.size()) < 0)
            throw emuvctl::closed_pipe();
    }
    bool terminal() const override { return ::isatty(fd_) == 1; }
    unsigned width() const override
    {
        winsize size{};
        return ::ioctl(fd_, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
    }

private:
    int fd_;
};

// A process that has the node open until it is ended.
class process
{
public:
    process(emuv_test::fake_kernel &kernel, const char *name)
        : kernel_(kernel), pid_(::fork())
    {
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            std::signal(SIGTERM, SIG_DFL);
            if (::open((kernel.dev() / "emuv0").c_str(), O_RDONLY) < 0)
                ::_exit(1);
            for (;;)
                ::pause();
        }
        fd_ = kernel.open_as(0, pid_, name);
    }
    process(const process &) = delete;
    process &operator=(const process &) = delete;
    ~process()
    {
        if (fd_ >= 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
    }

    void grow()
    {
        if (fd_ >= 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) {
            kernel_.close(fd_);
            fd_ = -1;
        }
        if (fd_ < 0)
            return;
        emuv_charge charge{};
        charge.size = sizeof(charge);
        charge.bytes = 1 << 20;
        kernel_.ioctl(fd_, EMUV_IOC_CHARGE, &charge);
        emuv_report report{};
        report.size = sizeof(report);
        report.fetched_bytes = 2 << 20;
        report.evicted_bytes = 1 << 20;
        report.hit_bytes = 3;
        report.miss_bytes = 1;
        kernel_.ioctl(fd_, EMUV_IOC_REPORT, &report);
    }

private:
    emuv_test::fake_kernel &kernel_;
    int pid_;
    int fd_ = -1;
};

double now()
{
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_nsec) * 1e-9;
}

} // namespace

int main(int argc, char **argv)
{
    std::setlocale(LC_CTYPE, "");
    std::signal(SIGTERM, [](int) { asked_to_end = 1; });
    emuv_test::fake_kernel kernel;
    kernel.insert();
    terminal_sink out(STDOUT_FILENO);
    terminal_sink err(STDERR_FILENO);
    std::vector<process *> grown;
    emuvctl::environment env{out,
                             err,
                             kernel,
                             kernel,
                             kernel.sys(),
                             kernel.proc(),
                             kernel.dev(),
                             kernel.root() / "run",
                             [&grown](double seconds) {
                                 ::usleep(
                                     static_cast<useconds_t>(seconds * 1e6));
                                 for (auto *const one : grown)
                                     one->grow();
                                 return asked_to_end == 0;
                             },
                             now,
                             [] { return emuvctl::cuda_state(); },
                             {}};
    env.no_color = emuvctl::refuses_color();
    env.etc = kernel.root() / "etc";
    const std::vector<std::string> create = {
        "create",    "--gpu-model", "4070", "--physical", "8G",
        "--virtual", "8G",          "--id", "0",          "--json"};
    terminal_sink null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    emuvctl::environment quiet{null,         err,           kernel,   kernel,
                               kernel.sys(), kernel.proc(), env.dev,  env.run,
                               env.wait,     env.clock,     env.cuda, {}};
    quiet.etc = env.etc;
    if (emuvctl::run(create, quiet) != 0)
        return 1;
    process first(kernel, "python");
    process second(kernel, "train");
    grown = {&first, &second};
    // The processes are real ones.
    env.proc = "/proc";
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    return emuvctl::run(arguments, env);
}

// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl: makes, shows and checks emuV instances. This file ties it to the
// running system.
#include "environment.hpp"

#include <emuv/kernel_api.hpp>
#include <emuv/module.hpp>

#include <cerrno>
#include <clocale>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace {

volatile std::sig_atomic_t asked_to_end = 0;

void on_signal(int /*number*/)
{
    asked_to_end = 1;
}

// SIGINT and SIGTERM end a wait, not a change that is half done.
void catch_signals()
{
    struct sigaction action
    {};
    action.sa_handler = on_signal;
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    // A reader that goes away is seen as EPIPE, a file that may not grow as
    // EFBIG.
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, nullptr);
    ::sigaction(SIGXFSZ, &action, nullptr);
}

// Lets no file that is opened later become the standard input or output. One
// that was closed still cannot be read or written, and is closed in programs.
void fill_standard_files()
{
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) [[maybe_unused]]
            const int filled =
                ::open("/dev/null",
                       (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

class descriptor_sink final : public emuvctl::sink
{
public:
    explicit descriptor_sink(int fd) : fd_(fd) {}

    void write(std::string_view text) override
    {
        while (!text.empty()) {
            const ssize_t done = ::write(fd_, text.data(), text.size());
            if (done >= 0)
                text.remove_prefix(static_cast<std::size_t>(done));
            else if (errno == EPIPE)
                throw emuvctl::closed_pipe();
            else if (errno != EINTR)
                throw std::system_error(errno, std::generic_category(),
                                        "write error");
        }
    }

    bool terminal() const override { return ::isatty(fd_) == 1; }

    unsigned width() const override
    {
        winsize size{};
        if (!terminal() || ::ioctl(fd_, TIOCGWINSZ, &size) != 0)
            return 0;
        return size.ws_col;
    }

private:
    int fd_;
};

bool wait(double seconds)
{
    double whole = 0;
    const double rest = std::modf(seconds, &whole);
    timespec left{static_cast<time_t>(whole), static_cast<long>(rest * 1e9)};
    while (asked_to_end == 0 &&
           ::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
    return asked_to_end == 0;
}

double now()
{
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_nsec) * 1e-9;
}

std::filesystem::path root(const char *variable, const char *otherwise)
{
    const char *const value = std::getenv(variable);
    return value != nullptr && *value != '\0' ? value : otherwise;
}

} // namespace

int main(int argc, char **argv)
{
    std::setlocale(LC_CTYPE, ""); // for the lines of a tree
    catch_signals();
    fill_standard_files();
    descriptor_sink out(STDOUT_FILENO);
    descriptor_sink err(STDERR_FILENO);
    emuvctl::environment env{out,
                             err,
                             emuv::kernel_api::system(),
                             emuv::module_api::system(),
                             emuv::sysfs::default_root(),
                             root("EMUV_PROC_ROOT", "/proc"),
                             root("EMUV_DEV_ROOT", "/dev"),
                             root("EMUV_RUN_ROOT", "/run"),
                             wait,
                             now,
                             [] { return emuvctl::probe_cuda(); },
                             {}};
    // NVML knows this machine alone, not one that was recorded.
    if (std::getenv("EMUV_SYSFS_ROOT") == nullptr)
        env.nvml = [told = std::optional<emuvctl::nvml_state>()]() mutable {
            if (!told) // asking takes a second, and each profile may ask
                told = emuvctl::probe_nvml();
            return *told;
        };
    env.no_color = emuvctl::refuses_color();
    env.etc = root("EMUV_ETC_ROOT", "/etc");
    const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0),
                                             argv + argc);
    return emuvctl::run(arguments, env);
}

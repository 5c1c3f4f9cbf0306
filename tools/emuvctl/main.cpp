// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl: makes, shows and checks emuV instances. This file ties it to the
// running system.
#include "environment.hpp"
#include "signals.hpp"

#include <emuv/kernel_api.hpp>
#include <emuv/module.hpp>

#include <cerrno>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace {

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

// Writes as much as the file takes. @return 0, or errno
int write_whole(int fd, std::string_view text)
{
    while (!text.empty()) {
        const ssize_t done = ::write(fd, text.data(), text.size());
        if (done >= 0) {
            text.remove_prefix(static_cast<std::size_t>(done));
        } else if (errno == EAGAIN) {
            // Another program that shares it may have told it not to wait.
            pollfd one = {fd, POLLOUT, 0};
            ::poll(&one, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

class descriptor_sink : public emuvctl::sink
{
public:
    explicit descriptor_sink(int fd) : fd_(fd) {}

    void write(std::string_view text) override
    {
        const int number = write_whole(fd_, text);
        if (number == EPIPE)
            throw emuvctl::closed_pipe();
        if (number != 0)
            throw std::system_error(number, std::generic_category(),
                                    "write error");
    }

    bool terminal() const final { return ::isatty(fd_) == 1; }

    unsigned width() const final
    {
        winsize size{};
        if (!terminal() || ::ioctl(fd_, TIOCGWINSZ, &size) != 0)
            return 0;
        return size.ws_col;
    }

protected:
    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_;
};

// A message that nobody gets makes no failure of a thing that is done.
class message_sink final : public descriptor_sink
{
public:
    using descriptor_sink::descriptor_sink;

    void write(std::string_view text) override { write_whole(fd(), text); }
};

bool wait(double seconds)
{
    double whole = 0;
    const double rest = std::modf(seconds, &whole);
    timespec left{static_cast<time_t>(whole), static_cast<long>(rest * 1e9)};
    while (!emuvctl::asked_to_end() &&
           ::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
    return !emuvctl::asked_to_end();
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
    emuvctl::take_signals();
    fill_standard_files();
    descriptor_sink out(STDOUT_FILENO);
    message_sink err(STDERR_FILENO);
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

// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl over a driver in memory, for tests with programs that are to get
// memory of an instance. There is one, emuv0: guaranteed, of 160 MiB.
#include "environment.hpp"
#include "fake_kernel.hpp"

#include <emuv/control.hpp>

#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

namespace {

volatile std::sig_atomic_t interrupted = 0;

void note(int)
{
    interrupted = 1;
}

class descriptor_sink final : public emuvctl::sink
{
public:
    explicit descriptor_sink(int fd) : fd_(fd) {}
    void write(std::string_view text) override
    {
        if (::write(fd_, text.data(), text.size()) !=
            static_cast<ssize_t>(text.size()))
            throw std::system_error(errno, std::generic_category(), "write");
    }

private:
    int fd_;
};

} // namespace

int main(int argc, char **argv)
{
    struct sigaction action
    {};
    action.sa_handler = note;
    ::sigaction(SIGTERM, &action, nullptr);
    emuv_test::fake_kernel kernel;
    kernel.insert();
    emuv::instance_spec spec;
    spec.gpu_model = "lab";
    spec.virtual_bytes = 160ULL << 20;
    spec.guaranteed = true;
    emuv::control(kernel.dev(), kernel).create(spec);

    descriptor_sink out(STDOUT_FILENO);
    descriptor_sink err(STDERR_FILENO);
    emuvctl::environment env{out,
                             err,
                             kernel,
                             kernel,
                             kernel.sys(),
                             kernel.proc(),
                             kernel.dev(),
                             kernel.root() / "run",
                             [](double) { return interrupted == 0; },
                             [] { return 0.0; },
                             [] { return emuvctl::cuda_state(); },
                             {}};
    return emuvctl::run(std::vector<std::string>(argv + 1, argv + argc), env);
}

// SPDX-License-Identifier: LGPL-2.1-or-later
// The running kernel behind kernel_api, and nodes that are open.
#include <emuv/error.hpp>
#include <emuv/kernel_api.hpp>
#include <emuv/unique_fd.hpp>

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace emuv {

namespace {

class running_kernel final : public kernel_api
{
public:
    int open(const std::string &path, int flags) override
    {
        const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
    }

    int ioctl(int fd, unsigned long request, void *argument) override
    {
        for (;;) {
            if (::ioctl(fd, request, argument) >= 0)
                return 0;
            if (errno != EINTR)
                return -errno;
        }
    }

    void close(int fd) noexcept override { ::close(fd); }
};

} // namespace

kernel_api::~kernel_api() = default;

kernel_api &kernel_api::system()
{
    static running_kernel kernel;
    return kernel;
}

node_file::node_file(kernel_api &kernel, std::string path, int flags)
    : kernel_(&kernel), path_(std::move(path)), fd_(kernel.open(path_, flags))
{
    if (fd_ < 0)
        throw error(-fd_, path_, "open");
}

node_file::~node_file()
{
    kernel_->close(fd_);
}

void node_file::check(int result, const char *name, int id) const
{
    if (result < 0)
        throw error(-result, path_, name, id);
}

void unique_fd::reset(int fd) noexcept
{
    const int old = std::exchange(fd_, fd);
    if (old >= 0)
        ::close(old);
}

} // namespace emuv

// SPDX-License-Identifier: LGPL-2.1-or-later
// The library's interface to the kernel, which tests can replace.
#pragma once

#include <memory>
#include <string>

namespace emuv {

/// The calls that open and drive emuV's nodes. A replacement must open real
/// descriptors too: the library calls mmap(), pread() and the like on them
/// directly.
class kernel_api
{
public:
    kernel_api() = default;
    kernel_api(const kernel_api &) = delete;
    kernel_api &operator=(const kernel_api &) = delete;
    virtual ~kernel_api();

    /// open(2), close-on-exec. @return a descriptor, or -errno
    virtual int open(const std::string &path, int flags) = 0;
    /// ioctl(2), repeated after EINTR. @return 0, or -errno
    virtual int ioctl(int fd, unsigned long request, void *argument) = 0;
    /// close(2) of a descriptor from open().
    virtual void close(int fd) noexcept = 0;

    /// The running kernel.
    static kernel_api &system();
};

/// An open node, shared by the handles that depend on it. The last one closes
/// it.
class node_file
{
public:
    /// @throws emuv::error if the node cannot be opened
    node_file(kernel_api &kernel, std::string path, int flags);
    node_file(const node_file &) = delete;
    node_file &operator=(const node_file &) = delete;
    ~node_file();

    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] const std::string &path() const noexcept { return path_; }

    /// Runs an ioctl and throws emuv::error if it fails.
    /// @param name  the request's name, for the message
    /// @param id  the instance that the ioctl is about, or -1
    template <typename T>
    void call(unsigned long request, const char *name, T &argument,
              int id = -1) const
    {
        check(try_call(request, argument), name, id);
    }

    /// Runs an ioctl. @return 0, or -errno
    template <typename T>
    [[nodiscard]] int try_call(unsigned long request, T &argument) const
    {
        argument.size = sizeof(T);
        return kernel_->ioctl(fd_, request, &argument);
    }

    /// Throws emuv::error if @p result is a negative errno.
    void check(int result, const char *name, int id = -1) const;

private:
    kernel_api *kernel_;
    std::string path_;
    int fd_;
};

} // namespace emuv

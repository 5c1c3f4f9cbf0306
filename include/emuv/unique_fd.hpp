// SPDX-License-Identifier: LGPL-2.1-or-later
// A file descriptor that is closed when its owner goes.
#pragma once

#include <utility>

namespace emuv {

/// Owns a file descriptor; move-only.
class unique_fd
{
public:
    unique_fd() noexcept = default;
    /// Takes @p fd over; a negative number means none.
    explicit unique_fd(int fd) noexcept : fd_(fd) {}
    unique_fd(unique_fd &&other) noexcept : fd_(other.release()) {}
    unique_fd &operator=(unique_fd &&other) noexcept
    {
        if (this != &other)
            reset(other.release());
        return *this;
    }
    unique_fd(const unique_fd &) = delete;
    unique_fd &operator=(const unique_fd &) = delete;
    ~unique_fd() { reset(); }

    [[nodiscard]] int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    /// Gives the descriptor away; the caller closes it.
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
    /// Closes the held descriptor and holds @p fd instead.
    void reset(int fd = -1) noexcept;

private:
    int fd_ = -1;
};

} // namespace emuv

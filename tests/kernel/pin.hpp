// SPDX-License-Identifier: GPL-2.0-or-later
// Long-term pins, as a GPU driver takes them to register memory. They come from
// io_uring's registered buffers and from the memory of an AF_XDP socket.
#pragma once

#include "support.hpp"

#include <cerrno>
#include <system_error>

#include <liburing.h>
#include <linux/if_xdp.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace guest {

/// A ring whose registered buffer pins a range of memory until the ring goes.
class pin
{
public:
    pin(void *at, u64 bytes)
    {
        const int error = io_uring_queue_init(4, &ring_, 0);
        if (error < 0)
            throw std::system_error(-error, std::generic_category(),
                                    "io_uring_queue_init");
        const iovec range{at, bytes};
        error_ = -io_uring_register_buffers(&ring_, &range, 1);
    }
    ~pin() { io_uring_queue_exit(&ring_); }
    pin(const pin &) = delete;
    pin &operator=(const pin &) = delete;

    /// The errno of the registration, or 0.
    int error() const { return error_; }

    /// Writes the pinned pages' bytes to a file, even if the mapping has
    /// changed since.
    int to_file(int fd, const void *at, unsigned bytes, u64 offset)
    {
        auto *entry = io_uring_get_sqe(&ring_);
        io_uring_prep_write_fixed(entry, fd, at, bytes, offset, 0);
        return finish();
    }

    /// Reads a file into pinned bytes, as a device would write into them.
    int from_file(int fd, void *at, unsigned bytes, u64 offset)
    {
        auto *entry = io_uring_get_sqe(&ring_);
        io_uring_prep_read_fixed(entry, fd, at, bytes, offset, 0);
        return finish();
    }

private:
    int finish()
    {
        io_uring_submit(&ring_);
        io_uring_cqe *answer = nullptr;
        const int error = io_uring_wait_cqe(&ring_, &answer);
        if (error < 0)
            return error;
        const int result = answer->res;
        io_uring_cqe_seen(&ring_, answer);
        return result;
    }

    io_uring ring_{};
    int error_ = 0;
};

/// Pins a range of memory as that of an AF_XDP socket, until the object goes.
/// Such a pin cannot be read or written. It works before 6.5 too, where
/// io_uring registers no memory of device files.
class socket_pin
{
public:
    socket_pin(const void *at, u64 bytes)
        : socket_(static_cast<int>(checked(
              socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0), "socket(AF_XDP)")))
    {
        xdp_umem_reg range{};
        range.addr = reinterpret_cast<std::uintptr_t>(at);
        range.len = bytes;
        range.chunk_size = 4096;
        error_ = error_of(setsockopt(socket_.get(), SOL_XDP, XDP_UMEM_REG,
                                     &range, sizeof range));
    }

    /// The errno of the registration, or 0.
    int error() const { return error_; }

private:
    descriptor socket_;
    int error_ = 0;
};

} // namespace guest

// SPDX-License-Identifier: GPL-2.0-or-later
// Hands memory to virtual machines by QEMU's protocol of ivshmem servers. A
// machine that connects gets a descriptor, and has the memory until it ends.
#pragma once

#include <emuv/client.hpp>
#include <emuv/unique_fd.hpp>

#include <filesystem>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <string_view>

#include <poll.h>

namespace emuvctl {

/// A socket that QEMU's ivshmem-doorbell devices connect to. One thread; a
/// machine that is slow holds up nobody.
class ivshmem_server
{
public:
    /// Listens. A socket that nobody serves any more is replaced.
    /// @param path  of the socket, in a folder that is there. Nobody but root
    ///   and the caller may be able to replace what lies in that folder, or in
    ///   one above it. None of these may be a symbolic link
    /// @param like  a file: whoever may open it may connect, as far as the
    ///   caller may give others rights
    /// @throws failure  the path is too long, others may change its folders, or
    ///   another server listens there
    /// @throws std::system_error
    ivshmem_server(const std::filesystem::path &path,
                   const std::filesystem::path &like);
    ivshmem_server(const ivshmem_server &) = delete;
    ivshmem_server &operator=(const ivshmem_server &) = delete;
    /// Takes the socket away. Machines keep the memory that they have. Those
    /// that wait are turned away.
    ~ivshmem_server();

    /// Serves until @p goes_on says no; it is asked several times a second.
    /// @param allocate  makes the region of one machine, and may throw
    ///   emuv::error
    /// @param say  told of machines that come, go or are refused
    /// @throws std::system_error
    void run(const std::function<bool()> &goes_on,
             const std::function<emuv::region()> &allocate,
             const std::function<void(std::string_view)> &say);

private:
    struct machine
    {
        emuv::unique_fd socket;
        emuv::region memory;
        std::string name; ///< "process 1234"
    };

    // False if more wait than there are descriptors for.
    bool accept_all(const std::function<emuv::region()> &allocate,
                    const std::function<void(std::string_view)> &say);
    void serve(machine one, const std::function<emuv::region()> &allocate,
               const std::function<void(std::string_view)> &say);
    void
    forget_those_that_went(std::span<const pollfd> polled,
                           const std::function<void(std::string_view)> &say);

    std::string name_;       // of the socket, in its folder
    emuv::unique_fd folder_; // that nobody else may change
    emuv::unique_fd listener_;
    emuv::unique_fd place_; // the socket in the file system
    std::list<machine> machines_;
};

} // namespace emuvctl

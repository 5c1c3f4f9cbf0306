// SPDX-License-Identifier: LGPL-2.1-or-later
// /dev/emuv-control: creates, destroys and describes instances.
#pragma once

#include <emuv/kernel_api.hpp>
#include <emuv/types.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

namespace emuv {

/// The control node, held open. Move-only. All calls throw emuv::error.
class control
{
public:
    /// Opens the node; that takes root's rights.
    /// @throws emuv::abi_mismatch the module is not for this library
    /// @param dev  the folder of the nodes
    explicit control(const std::filesystem::path &dev = "/dev",
                     kernel_api &kernel = kernel_api::system());

    [[nodiscard]] driver_version version() const;

    /// Creates an instance; its node and attributes exist on return.
    /// @return its id
    /// @throws emuv::error EEXIST the id is in use. ENOSPC no id is free.
    ///   ENOMEM the host could not back the instance. EINVAL a value is out of
    ///   its range
    int create(const instance_spec &spec);

    /// Removes an instance.
    /// @throws emuv::error ENODEV there is none, EBUSY the instance is in use
    void destroy(int id);
    /// Removes an instance and takes it from its holders. Their calls fail
    /// with ENODEV, and touches of their mappings raise SIGBUS.
    /// @throws emuv::error ENODEV there is none
    void revoke(int id);
    /// Removes an instance while another failure is handled.
    /// @return 0 or -errno
    [[nodiscard]] int try_destroy(int id) const noexcept;

    /// Changes an instance's sizes, in use or not: all that is asked for, or
    /// nothing.
    /// @param physical_bytes  its new share of VRAM; nothing: as it is
    /// @param virtual_bytes  its new share of system RAM, in whole chunks;
    /// nothing: as it is
    /// @throws emuv::error ENODEV there is none. EBUSY more is in use. ENOMEM
    ///   the host could not back it. EINVAL a value is out of its range, or the
    ///   swap file too small
    void resize(int id, std::optional<std::uint64_t> physical_bytes,
                std::optional<std::uint64_t> virtual_bytes);

    /// @throws emuv::error ENODEV there is no such instance
    [[nodiscard]] instance_info query(int id) const;

    /// The instance with the smallest id that is at least @p id, if any.
    [[nodiscard]] std::optional<instance_info> query_next(int id) const;

    /// All instances, by id.
    [[nodiscard]] std::vector<instance_info> instances() const;

    /// The clients of an instance, by number.
    /// @param memory ask about the memory behind their regions, too; this takes
    /// as long as they have chunks
    /// @throws emuv::error ENODEV there is no such instance
    [[nodiscard]] std::vector<client_info> clients(int id,
                                                   bool memory = false) const;

private:
    std::shared_ptr<const node_file> file_;
};

} // namespace emuv

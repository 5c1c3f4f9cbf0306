// SPDX-License-Identifier: LGPL-2.1-or-later
// /dev/emuvN: a client, the regions it holds, and mappings of them.
#pragma once

#include <emuv/kernel_api.hpp>
#include <emuv/types.hpp>
#include <emuv/unique_fd.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace emuv {

/// A shared mapping of a range of virtual VRAM, unmapped when it goes.
/// Move-only. It keeps the memory alive, not the client.
class mapping
{
public:
    mapping() noexcept = default;
    /// The part of a descriptor to map.
    struct part
    {
        std::uint64_t offset = 0;
        std::size_t bytes = 0;
        bool writable = true; ///< for reading and writing, not reading alone
    };
    /// Maps a part of @p fd. @param node  the node's name in an error
    /// @throws emuv::error
    mapping(int fd, const part &which, const std::string &node);
    mapping(mapping &&other) noexcept;
    mapping &operator=(mapping &&other) noexcept;
    mapping(const mapping &) = delete;
    mapping &operator=(const mapping &) = delete;
    ~mapping();

    [[nodiscard]] std::byte *data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept
    {
        return {data_, size_};
    }
    explicit operator bool() const noexcept { return data_ != nullptr; }

private:
    std::byte *data_ = nullptr;
    std::size_t size_ = 0;
};

/// A region of virtual VRAM that a client holds; let go of when it goes.
/// Move-only. It keeps the client's file open.
class region
{
public:
    region() noexcept = default;
    region(region &&other) noexcept = default;
    region &operator=(region &&other) noexcept;
    region(const region &) = delete;
    region &operator=(const region &) = delete;
    ~region();

    /// Its place in the node's offset space, in bytes.
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    /// Its size in bytes, whole chunks.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    explicit operator bool() const noexcept { return file_ != nullptr; }

    /// Maps all of it. @throws emuv::error
    [[nodiscard]] mapping map(bool writable = true) const;
    /// Maps a part of it. @param offset  from the region's start, in bytes
    /// @throws emuv::error
    [[nodiscard]] mapping map(std::uint64_t offset, std::size_t bytes,
                              bool writable = true) const;

    /// Gives a range's memory back; it then reads as zeros.
    /// @param offset  from the region's start, in bytes
    /// @throws emuv::error EBUSY a device has it mapped, EINVAL
    void discard(std::uint64_t offset, std::uint64_t bytes) const;

    /// A descriptor that another process can import. @throws emuv::error
    [[nodiscard]] unique_fd export_region() const;
    /// A dma-buf of it. @throws emuv::error
    [[nodiscard]] unique_fd export_dmabuf() const;

    /// Lets go of it now and says so if that fails.
    /// @throws emuv::error ENOENT
    void free();
    /// Leaves it to the client: it lives until the client's file is closed.
    /// @return its offset
    std::uint64_t release() noexcept;

private:
    friend class client;
    region(std::shared_ptr<const node_file> file, std::uint64_t offset,
           std::uint64_t bytes) noexcept;
    [[nodiscard]] unique_fd export_as(std::uint32_t flags) const;
    int let_go() noexcept;

    std::shared_ptr<const node_file> file_;
    std::uint64_t offset_ = 0;
    std::uint64_t bytes_ = 0;
};

/// An open file of /dev/emuvN. Move-only. Its allocations and charges return
/// to the instance when it and its regions are gone. All calls throw
/// emuv::error.
class client
{
public:
    /// Opens /dev/emuv@p id for reading and writing.
    /// @param dev  the folder of the nodes
    explicit client(int id, const std::filesystem::path &dev = "/dev",
                    kernel_api &kernel = kernel_api::system());
    /// Opens the node at @p path with open(2)'s @p flags.
    client(const std::filesystem::path &path, int flags,
           kernel_api &kernel = kernel_api::system());

    /// The descriptor, for calls that have no wrapper; the client owns it.
    [[nodiscard]] int fd() const noexcept { return file_->fd(); }

    /// Allocates at least @p bytes, rounded up to whole chunks.
    /// @param populate  back it now: ENOMEM here instead of SIGBUS later
    /// @throws emuv::error ENOSPC the instance has not so much left, ENOMEM
    [[nodiscard]] region alloc(std::uint64_t bytes, bool populate = false);

    /// Holds the region behind a descriptor that region::export_region() gave.
    /// @throws emuv::error EXDEV another instance's, EEXIST held already,
    ///   EBADF, EINVAL not a region's descriptor
    [[nodiscard]] region import(int fd);

    /// Enters physical bytes into the ledger.
    /// @return the bytes that the instance has left
    /// @throws emuv::error ENOSPC it has not so much; nothing changed then
    std::uint64_t charge(std::uint64_t bytes);
    /// Takes physical bytes out of the ledger.
    /// @return the bytes that the instance has left
    /// @throws emuv::error EINVAL the client has not charged so much
    std::uint64_t uncharge(std::uint64_t bytes);

    /// Adds to the client's and the instance's counters.
    void report(const counters &since_last_report);

    /// Gives a range of the node's offset space back to the host.
    /// @throws emuv::error EACCES not the client's, EINVAL beyond the node
    void discard(std::uint64_t offset, std::uint64_t bytes);

    /// The instance this is a client of.
    [[nodiscard]] instance_info query() const;
    /// All clients of the instance, this one among them, by number.
    [[nodiscard]] std::vector<client_info> clients() const;
    [[nodiscard]] driver_version version() const;

private:
    std::shared_ptr<const node_file> file_;
};

} // namespace emuv

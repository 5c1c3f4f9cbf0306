// SPDX-License-Identifier: LGPL-2.1-or-later
// /dev/emuvN: a client, its regions, and mappings of them.
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

/// A shared mapping of a range of virtual VRAM, unmapped by the destructor.
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
        bool writable = true; ///< false: for reading only
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

/// A region of virtual VRAM that a client holds, freed by the destructor.
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

    /// Place in the node's offset space, in bytes.
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    /// Size in bytes, whole chunks.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    explicit operator bool() const noexcept { return file_ != nullptr; }

    /// Maps the whole region. @throws emuv::error
    [[nodiscard]] mapping map(bool writable = true) const;
    /// Maps a part of the region.
    /// @param offset  from the region's start, in bytes
    /// @throws emuv::error
    [[nodiscard]] mapping map(std::uint64_t offset, std::size_t bytes,
                              bool writable = true) const;

    /// Gives a range's memory back; the range then reads as zeros.
    /// @param offset  from the region's start, in bytes
    /// @throws emuv::error EBUSY a device has the range mapped, EINVAL
    void discard(std::uint64_t offset, std::uint64_t bytes) const;

    /// A descriptor that another process can import. @throws emuv::error
    [[nodiscard]] unique_fd export_region() const;
    /// A dma-buf of the region. @throws emuv::error
    [[nodiscard]] unique_fd export_dmabuf() const;

    /// Frees the region now, and reports a failure.
    /// @throws emuv::error ENOENT
    void free();
    /// Leaves the region to the client, until the client's file is closed.
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

/// An open file of /dev/emuvN. Move-only. Its allocations and charges return to
/// the instance once the client and its regions are gone. All calls throw
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
    /// @throws emuv::error ENOSPC the instance has less left, ENOMEM
    [[nodiscard]] region alloc(std::uint64_t bytes, bool populate = false);

    /// Holds the region behind a descriptor from region::export_region().
    /// @throws emuv::error EXDEV of another instance, EEXIST held already,
    ///   EBADF, EINVAL not a region's descriptor
    [[nodiscard]] region import(int fd);

    /// Charges physical bytes in the ledger.
    /// @return the bytes that the instance has left
    /// @throws emuv::error ENOSPC the instance has less left; nothing has
    ///   changed
    std::uint64_t charge(std::uint64_t bytes);
    /// Uncharges physical bytes in the ledger.
    /// @return the bytes that the instance has left
    /// @throws emuv::error EINVAL the client has charged less
    std::uint64_t uncharge(std::uint64_t bytes);

    /// Adds to the client's and the instance's counters.
    void report(const counters &since_last_report);

    /// Gives a range of the node's offset space back to the host.
    /// @throws emuv::error EACCES not the client's, EINVAL beyond the node
    void discard(std::uint64_t offset, std::uint64_t bytes);

    /// The client's instance.
    [[nodiscard]] instance_info query() const;
    /// All clients of the instance, this one included, by number.
    /// @param memory ask about the memory behind their regions, too; this takes
    /// as long as they have chunks
    [[nodiscard]] std::vector<client_info> clients(bool memory = false) const;
    [[nodiscard]] driver_version version() const;

private:
    std::shared_ptr<const node_file> file_;
};

} // namespace emuv

// SPDX-License-Identifier: LGPL-2.1-or-later
// /dev/emuvN: a client, the regions it holds, and mappings of them.
#include "convert.hpp"

#include <emuv/client.hpp>
#include <emuv/error.hpp>

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>

namespace emuv {

mapping::mapping(int fd, const part &which, const std::string &node)
{
    const int protection = which.writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *const at = ::mmap(nullptr, which.bytes, protection, MAP_SHARED, fd,
                            static_cast<off_t>(which.offset));
    if (at == MAP_FAILED)
        throw error(errno, node, "mmap");
    data_ = static_cast<std::byte *>(at);
    size_ = which.bytes;
}

mapping::mapping(mapping &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0))
{}

mapping &mapping::operator=(mapping &&other) noexcept
{
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

mapping::~mapping()
{
    if (data_ != nullptr)
        ::munmap(data_, size_);
}

region::region(std::shared_ptr<const node_file> file, std::uint64_t offset,
               std::uint64_t bytes) noexcept
    : file_(std::move(file)), offset_(offset), bytes_(bytes)
{}

region &region::operator=(region &&other) noexcept
{
    if (this != &other) {
        let_go();
        file_ = std::move(other.file_);
        offset_ = other.offset_;
        bytes_ = other.bytes_;
    }
    return *this;
}

region::~region()
{
    let_go();
}

int region::let_go() noexcept
{
    if (!file_)
        return 0;
    emuv_free arg{};
    arg.offset = offset_;
    const int result = file_->try_call(EMUV_IOC_FREE, arg);
    file_.reset();
    return result;
}

void region::free()
{
    const auto file = file_; // outlives let_go(), for the message
    const int result = let_go();
    if (file)
        file->check(result, "EMUV_IOC_FREE");
}

std::uint64_t region::release() noexcept
{
    file_.reset();
    return offset_;
}

mapping region::map(bool writable) const
{
    return map(0, bytes_, writable);
}

mapping region::map(std::uint64_t offset, std::size_t bytes,
                    bool writable) const
{
    // The kernel would let a mapping begin in one's next region.
    if (offset > bytes_ || bytes > bytes_ - offset)
        throw error(EINVAL, file_->path(), "mmap");
    return {file_->fd(), {offset_ + offset, bytes, writable}, file_->path()};
}

void region::discard(std::uint64_t offset, std::uint64_t bytes) const
{
    if (offset > bytes_ || bytes > bytes_ - offset)
        throw error(EINVAL, file_->path(), "EMUV_IOC_DISCARD");
    emuv_discard arg{};
    arg.offset = offset_ + offset;
    arg.bytes = bytes;
    file_->call(EMUV_IOC_DISCARD, "EMUV_IOC_DISCARD", arg);
}

unique_fd region::export_as(std::uint32_t flags) const
{
    emuv_export arg{};
    arg.flags = flags;
    arg.offset = offset_;
    file_->call(EMUV_IOC_EXPORT, "EMUV_IOC_EXPORT", arg);
    return unique_fd(arg.fd);
}

unique_fd region::export_region() const
{
    return export_as(0);
}

unique_fd region::export_dmabuf() const
{
    return export_as(EMUV_EXPORT_DMABUF);
}

client::client(int id, const std::filesystem::path &dev, kernel_api &kernel)
    : client(dev / instance_name(id), O_RDWR, kernel)
{}

client::client(const std::filesystem::path &path, int flags, kernel_api &kernel)
    : file_(std::make_shared<const node_file>(kernel, path.string(), flags))
{
    check_abi(*file_);
}

region client::alloc(std::uint64_t bytes, bool populate)
{
    emuv_alloc arg{};
    arg.flags = populate ? EMUV_ALLOC_POPULATE : 0;
    arg.bytes = bytes;
    file_->call(EMUV_IOC_ALLOC, "EMUV_IOC_ALLOC", arg);
    return {file_, arg.offset, arg.bytes};
}

region client::import(int fd)
{
    emuv_import arg{};
    arg.fd = fd;
    file_->call(EMUV_IOC_IMPORT, "EMUV_IOC_IMPORT", arg);
    return {file_, arg.offset, arg.bytes};
}

std::uint64_t client::charge(std::uint64_t bytes)
{
    emuv_charge arg{};
    arg.bytes = bytes;
    file_->call(EMUV_IOC_CHARGE, "EMUV_IOC_CHARGE", arg);
    return arg.free_bytes;
}

std::uint64_t client::uncharge(std::uint64_t bytes)
{
    emuv_charge arg{};
    arg.bytes = bytes;
    file_->call(EMUV_IOC_UNCHARGE, "EMUV_IOC_UNCHARGE", arg);
    return arg.free_bytes;
}

void client::report(const counters &since_last_report)
{
    emuv_report arg{};
    arg.fetched_bytes = since_last_report.fetched_bytes;
    arg.evicted_bytes = since_last_report.evicted_bytes;
    arg.spills = since_last_report.spills;
    arg.faults = since_last_report.faults;
    arg.hit_bytes = since_last_report.hit_bytes;
    arg.miss_bytes = since_last_report.miss_bytes;
    arg.stalled_ns = since_last_report.stalled_ns;
    file_->call(EMUV_IOC_REPORT, "EMUV_IOC_REPORT", arg);
}

void client::discard(std::uint64_t offset, std::uint64_t bytes)
{
    emuv_discard arg{};
    arg.offset = offset;
    arg.bytes = bytes;
    file_->call(EMUV_IOC_DISCARD, "EMUV_IOC_DISCARD", arg);
}

instance_info client::query() const
{
    emuv_query_instance arg{};
    file_->call(EMUV_IOC_QUERY_INSTANCE, "EMUV_IOC_QUERY_INSTANCE", arg);
    return to_info(arg);
}

std::vector<client_info> client::clients(bool memory) const
{
    return query_clients(*file_, 0, memory);
}

driver_version client::version() const
{
    return query_version(*file_);
}

} // namespace emuv

// SPDX-License-Identifier: LGPL-2.1-or-later
// /dev/emuv-control: creates, destroys and describes instances.
#include "convert.hpp"

#include <emuv/control.hpp>
#include <emuv/error.hpp>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuv {

namespace {

/// A swap file, open until the driver has it.
class swap_file
{
public:
    swap_file(const std::string &path, std::uint64_t bytes)
    {
        constexpr int flags = O_RDWR | O_DIRECT | O_CLOEXEC;
        struct stat is = {};
        if (::stat(path.c_str(), &is) != 0)
            throw error(errno, path, "stat");
        if (S_ISDIR(is.st_mode))
            fd_ = ::open(path.c_str(), flags | O_TMPFILE, 0600);
        else // with O_EXCL nobody else can use a block device meanwhile
            fd_ = ::open(path.c_str(),
                         S_ISBLK(is.st_mode) ? flags | O_EXCL : flags);
        if (fd_ < 0)
            throw error(errno, path, "open");
        if (S_ISDIR(is.st_mode) &&
            ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
            const int number = errno;
            ::close(fd_);
            throw error(number, path, "ftruncate");
        }
    }
    ~swap_file() { ::close(fd_); }
    swap_file(const swap_file &) = delete;
    swap_file &operator=(const swap_file &) = delete;

    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_ = -1;
};

} // namespace

control::control(const std::filesystem::path &dev, kernel_api &kernel)
    : file_(std::make_shared<const node_file>(
          kernel, (dev / "emuv-control").string(), O_RDWR))
{
    check_abi(*file_);
}

driver_version control::version() const
{
    return query_version(*file_);
}

int control::create(const instance_spec &spec)
{
    emuv_create arg{};
    if (spec.gpu_model.size() >= sizeof(arg.gpu_model))
        throw error(EINVAL, file_->path(), "EMUV_IOC_CREATE", spec.id);
    arg.flags = (spec.overcommit ? EMUV_CREATE_OVERCOMMIT : 0) |
                (spec.guaranteed ? EMUV_CREATE_GUARANTEED : 0) |
                (spec.numa_bind ? EMUV_CREATE_BIND : 0);
    arg.id = spec.id;
    arg.numa_node = spec.numa_node;
    arg.physical_bytes = spec.physical_bytes;
    arg.virtual_bytes = spec.virtual_bytes;
    arg.client_virtual_bytes = spec.client_virtual_bytes;
    arg.pci_device_id = spec.pci_device_id;
    std::memcpy(arg.gpu_model, spec.gpu_model.data(), spec.gpu_model.size());
    std::optional<swap_file> swap;
    if (!spec.swap.empty()) {
        swap.emplace(spec.swap, spec.virtual_bytes);
        arg.flags |= EMUV_CREATE_SWAP;
        arg.swap_fd = swap->fd();
    }
    file_->call(EMUV_IOC_CREATE, "EMUV_IOC_CREATE", arg, spec.id);
    return arg.id;
}

void control::destroy(int id)
{
    file_->check(try_destroy(id), "EMUV_IOC_DESTROY", id);
}

void control::revoke(int id)
{
    emuv_destroy arg{};
    arg.flags = EMUV_DESTROY_FORCE;
    arg.id = id;
    file_->call(EMUV_IOC_DESTROY, "EMUV_IOC_DESTROY", arg, id);
}

int control::try_destroy(int id) const noexcept
{
    emuv_destroy arg{};
    arg.id = id;
    return file_->try_call(EMUV_IOC_DESTROY, arg);
}

void control::resize(int id, std::optional<std::uint64_t> physical_bytes,
                     std::optional<std::uint64_t> virtual_bytes)
{
    emuv_resize arg{};
    arg.flags = (physical_bytes ? EMUV_RESIZE_PHYSICAL : 0) |
                (virtual_bytes ? EMUV_RESIZE_VIRTUAL : 0);
    arg.id = id;
    arg.physical_bytes = physical_bytes.value_or(0);
    arg.virtual_bytes = virtual_bytes.value_or(0);
    file_->call(EMUV_IOC_RESIZE, "EMUV_IOC_RESIZE", arg, id);
}

instance_info control::query(int id) const
{
    emuv_query_instance arg{};
    arg.id = id;
    file_->call(EMUV_IOC_QUERY_INSTANCE, "EMUV_IOC_QUERY_INSTANCE", arg, id);
    return to_info(arg);
}

std::optional<instance_info> control::query_next(int id) const
{
    emuv_query_instance arg{};
    arg.flags = EMUV_QUERY_NEXT;
    arg.id = id;
    const int result = file_->try_call(EMUV_IOC_QUERY_INSTANCE, arg);
    if (result == -ENODEV)
        return std::nullopt;
    file_->check(result, "EMUV_IOC_QUERY_INSTANCE", id);
    return to_info(arg);
}

std::vector<instance_info> control::instances() const
{
    std::vector<instance_info> all;
    for (int id = 0; id < EMUV_MAX_INSTANCES; id++) {
        auto next = query_next(id);
        if (!next)
            break;
        id = next->id;
        all.push_back(std::move(*next));
    }
    return all;
}

std::vector<client_info> control::clients(int id, bool memory) const
{
    return query_clients(*file_, id, memory);
}

} // namespace emuv

// SPDX-License-Identifier: GPL-2.0-or-later
// A driver in memory, behind the library's edge.
#include "fake_kernel.hpp"

#include <emuv/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <linux/emuv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuv_test {

namespace {

// The checks that every call of the ABI begins with. @return 0 or -errno
template <typename T>
int take(void *argument, T &copy, std::uint32_t known_flags = 0)
{
    std::memcpy(&copy, argument, sizeof(copy));
    if (copy.size != sizeof(T) || (copy.flags & ~known_flags) != 0)
        return -EINVAL;
    return 0;
}

template <typename T>
int give(void *argument, const T &copy)
{
    std::memcpy(argument, &copy, sizeof(copy));
    return 0;
}

std::uint64_t whole_chunks(std::uint64_t bytes)
{
    return (bytes + EMUV_CHUNK_BYTES - 1) / EMUV_CHUNK_BYTES * EMUV_CHUNK_BYTES;
}

template <std::size_t N>
void copy_text(char (&to)[N], const std::string &from)
{
    std::memset(to, 0, N);
    std::memcpy(to, from.data(), std::min(from.size(), N - 1));
}

std::string comm()
{
    std::ifstream file("/proc/self/comm");
    std::string name;
    std::getline(file, name);
    return name;
}

} // namespace

temporary_folder::temporary_folder()
{
    std::string name =
        (std::filesystem::temp_directory_path() / "emuv-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
        throw std::runtime_error("mkdtemp");
    path_ = name;
}

temporary_folder::~temporary_folder()
{
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::filesystem::path &path, const std::string &text)
{
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush())
        throw std::runtime_error(path.string() + ": cannot be written");
}

std::string read_whole(const std::filesystem::path &path)
{
    std::ifstream file(path, std::ios::binary);
    if (!file)
        throw std::runtime_error(path.string() + ": cannot be read");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

fake_kernel::fake_kernel()
{
    std::filesystem::create_directories(sys() / "class");
    std::filesystem::create_directories(sys() / "module");
    std::filesystem::create_directories(dev());
    std::filesystem::create_directories(root() / "run");
    write_file(proc() / "modules", "");
    write_file(proc() / "sys/kernel/osrelease", "6.1.0-test\n");
    write_file(proc() / "meminfo", "MemTotal:       33554432 kB\n"
                                   "MemFree:         1048576 kB\n"
                                   "MemAvailable:   16777216 kB\n");
    emuv::module_file found;
    found.path = "/lib/modules/6.1.0-test/extra/emuv.ko";
    found.version = "0.1.0";
    found.vermagic = "6.1.0-test SMP preempt mod_unload modversions ";
    found.parameters = {{"gpu_model", "names"},
                        {"physical_vram_gb", "GiB"},
                        {"virtual_vram_gb", "GiB"}};
    file = std::move(found);
}

fake_kernel::~fake_kernel()
{
    for (const auto &[id, one] : instances_)
        ::close(one.memory);
    for (const auto &[fd, one] : files_)
        ::close(fd);
}

void fake_kernel::insert()
{
    std::filesystem::create_directories(sys() / "class/emuv");
    write_file(sys() / "module/emuv/version", "0.1.0\n");
    write_file(sys() / "module/emuv/parameters/host_floor_mb", "1024\n");
    write_file(sys() / "module/emuv/parameters/overcommit", "N\n");
    write_file(dev() / "emuv-control", "");
    ::chmod((dev() / "emuv-control").c_str(), 0600);
}

void fake_kernel::remove()
{
    for (const auto &[id, one] : instances_) {
        ::close(one.memory);
        std::filesystem::remove(dev() / emuv::instance_name(id));
    }
    instances_.clear();
    std::filesystem::remove_all(sys() / "class/emuv");
    std::filesystem::remove_all(sys() / "module/emuv");
    std::filesystem::remove(dev() / "emuv-control");
}

void fake_kernel::fail(unsigned long request, int errnum, int after)
{
    failures_[request] = {errnum, after};
}

int fake_kernel::open(const std::string &path, int /*flags*/)
{
    const std::filesystem::path node(path);
    if (!std::filesystem::exists(node))
        return -ENOENT;
    if (node.filename() == "emuv-control") {
        const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        files_[fd] = {};
        return fd;
    }
    const std::string name = node.filename().string();
    return open_as(std::stoi(name.substr(4)), ::getpid(), comm());
}

void fake_kernel::set_memory(int id, std::uint64_t resident,
                             std::uint64_t pinned, std::uint64_t lingering)
{
    auto &first = instances_.at(id).clients.begin()->second;
    first.resident_bytes = resident;
    first.pinned_bytes = pinned;
    first.lingering_bytes = lingering;
}

int fake_kernel::open_as(int id, int pid, const std::string &process)
{
    const auto found = instances_.find(id);
    if (found == instances_.end())
        return -ENODEV;
    auto &one = found->second;
    // Through /proc, for an open file of its own.
    const int fd =
        ::open(("/proc/self/fd/" + std::to_string(one.memory)).c_str(),
               O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    emuv::client_info client;
    client.client = next_client_++;
    client.pid = pid;
    client.comm = process;
    files_[fd] = {id, client.client};
    one.clients[client.client] = client;
    account(one);
    return fd;
}

void fake_kernel::close(int fd) noexcept
{
    try {
        forget(fd);
    } catch (const std::exception &problem) {
        std::fputs(problem.what(), stderr);
        std::abort();
    }
    ::close(fd);
}

// Drops all that a client held, with its last descriptor.
void fake_kernel::forget(int fd)
{
    const auto found = files_.find(fd);
    if (found == files_.end())
        return;
    const open_file file_closed = found->second;
    files_.erase(found);
    const auto at = instances_.find(file_closed.id);
    if (at == instances_.end())
        return;
    auto &one = at->second;
    std::vector<std::uint64_t> held;
    for (const auto &[offset, what] : one.regions)
        if (what.holders.contains(file_closed.client))
            held.push_back(offset);
    for (const auto offset : held)
        let_go(one, file_closed.client, offset);
    one.clients.erase(file_closed.client);
    account(one);
}

int fake_kernel::ioctl(int fd, unsigned long request, void *argument)
{
    const auto found = files_.find(fd);
    if (found == files_.end())
        return -EBADF;
    if (const auto planned = failures_.find(request);
        planned != failures_.end() && planned->second.after-- == 0) {
        const int errnum = planned->second.errnum;
        failures_.erase(planned);
        if (!log_on_failure.empty())
            std::ofstream(dev() / "kmsg", std::ios::app) << log_on_failure;
        return -errnum;
    }
    return do_ioctl(found->second, request, argument);
}

int fake_kernel::do_ioctl(const open_file &of, unsigned long request,
                          void *argument)
{
    switch (request) {
    case EMUV_IOC_VERSION:
        return version(argument);
    case EMUV_IOC_QUERY_INSTANCE:
        return query_instance(of, argument);
    case EMUV_IOC_QUERY_CLIENT:
        return query_client(of, argument);
    default:
        break;
    }
    if (of.id < 0) {
        if (request == EMUV_IOC_CREATE)
            return create(argument);
        if (request == EMUV_IOC_DESTROY)
            return destroy(argument);
        if (request == EMUV_IOC_RESIZE)
            return resize(argument);
        return -ENOTTY;
    }
    if (!instances_.contains(of.id))
        return -ENODEV; // taken from its holders
    auto &one = instances_.at(of.id);
    int result = -ENOTTY;
    switch (request) {
    case EMUV_IOC_ALLOC:
        result = alloc(one, of.client, argument);
        break;
    case EMUV_IOC_FREE:
        result = free(one, of.client, argument);
        break;
    case EMUV_IOC_EXPORT:
        result = export_region(one, of.client, argument);
        break;
    case EMUV_IOC_IMPORT:
        result = import(one, of.client, argument);
        break;
    case EMUV_IOC_DISCARD:
        result = discard(one, of.client, argument);
        break;
    case EMUV_IOC_CHARGE:
    case EMUV_IOC_UNCHARGE:
        result = charge(one, of.client, argument, request == EMUV_IOC_UNCHARGE);
        break;
    case EMUV_IOC_REPORT:
        result = report(one, of.client, argument);
        break;
    default:
        break;
    }
    account(one);
    return result;
}

int fake_kernel::version(void *argument) const
{
    emuv_version copy{};
    if (const int bad = take(argument, copy); bad != 0)
        return bad;
    copy.abi = abi;
    copy.chunk_bytes = chunk_bytes;
    copy_text(copy.module_version, "0.1.0");
    return give(argument, copy);
}

int fake_kernel::query_instance(const open_file &of, void *argument)
{
    emuv_query_instance copy{};
    if (const int bad = take(argument, copy, of.id < 0 ? EMUV_QUERY_NEXT : 0);
        bad != 0)
        return bad;
    const bool next = (copy.flags & EMUV_QUERY_NEXT) != 0;
    const int id = of.id < 0 ? copy.id : of.id;
    const auto found = next ? instances_.lower_bound(id) : instances_.find(id);
    if (found == instances_.end())
        return -ENODEV;
    const auto &info = found->second.info;
    copy.id = info.id;
    copy.clients = info.clients;
    copy.physical_bytes = info.physical_bytes;
    copy.virtual_bytes = info.virtual_bytes;
    copy.client_virtual_bytes = info.client_virtual_bytes;
    copy.physical_used_bytes = info.physical_used_bytes;
    copy.virtual_used_bytes = info.virtual_used_bytes;
    copy.unowned_bytes = info.unowned_bytes;
    copy.resident_bytes = info.resident_bytes;
    copy.reserve_bytes = info.reserve_bytes;
    copy.created = (info.guaranteed ? EMUV_CREATE_GUARANTEED : 0) |
                   (info.swaps ? EMUV_CREATE_SWAP : 0) |
                   (info.numa_bind ? EMUV_CREATE_BIND : 0);
    copy.swapped_bytes = info.swapped_bytes;
    copy.fetched_bytes = info.moved.fetched_bytes;
    copy.evicted_bytes = info.moved.evicted_bytes;
    copy.spills = info.moved.spills;
    copy.faults = info.moved.faults;
    copy.hit_bytes = info.moved.hit_bytes;
    copy.miss_bytes = info.moved.miss_bytes;
    copy.stalled_ns = info.moved.stalled_ns;
    copy.numa_node = info.numa_node;
    copy.pci_device_id = info.pci_device_id;
    for (std::size_t i = 0; i < sizeof(copy.uuid); i++)
        copy.uuid[i] = static_cast<std::uint8_t>(i * 16 + i);
    copy.uuid[15] = static_cast<std::uint8_t>(
        std::stoul(info.uuid.substr(info.uuid.size() - 2), nullptr, 16));
    copy_text(copy.gpu_model, info.gpu_model);
    return give(argument, copy);
}

int fake_kernel::query_client(const open_file &of, void *argument)
{
    emuv_query_client copy{};
    if (const int bad = take(argument, copy, EMUV_QUERY_MEMORY); bad != 0)
        return bad;
    const auto found = instances_.find(of.id < 0 ? copy.id : of.id);
    if (found == instances_.end())
        return -ENODEV;
    const auto client = found->second.clients.lower_bound(copy.client);
    if (client == found->second.clients.end())
        return -ENOENT;
    const auto &info = client->second;
    copy.client = info.client;
    copy.pid = info.pid;
    copy.physical_bytes = info.physical_bytes;
    copy.virtual_bytes = info.virtual_bytes;
    copy.imported_bytes = info.imported_bytes;
    copy.fetched_bytes = info.moved.fetched_bytes;
    copy.evicted_bytes = info.moved.evicted_bytes;
    copy.spills = info.moved.spills;
    copy.faults = info.moved.faults;
    copy.hit_bytes = info.moved.hit_bytes;
    copy.miss_bytes = info.moved.miss_bytes;
    copy.stalled_ns = info.moved.stalled_ns;
    if ((copy.flags & EMUV_QUERY_MEMORY) != 0) {
        copy.resident_bytes = info.resident_bytes;
        copy.pinned_bytes = info.pinned_bytes;
        copy.lingering_bytes = info.lingering_bytes;
    }
    copy_text(copy.comm, info.comm);
    return give(argument, copy);
}

int fake_kernel::create(void *argument)
{
    emuv_create copy{};
    if (const int bad = take(argument, copy,
                             EMUV_CREATE_OVERCOMMIT | EMUV_CREATE_GUARANTEED |
                                 EMUV_CREATE_SWAP | EMUV_CREATE_BIND);
        bad != 0)
        return bad;
    if ((copy.flags & EMUV_CREATE_OVERCOMMIT) != 0 &&
        (copy.flags & EMUV_CREATE_GUARANTEED) != 0)
        return -EINVAL;
    if ((copy.flags & EMUV_CREATE_SWAP) != 0 &&
        (copy.flags & EMUV_CREATE_GUARANTEED) != 0)
        return -EINVAL;
    const bool swaps = (copy.flags & EMUV_CREATE_SWAP) != 0;
    if (swaps && ::fcntl(copy.swap_fd, F_GETFL) == -1)
        return -EBADF;
    if ((copy.flags & EMUV_CREATE_BIND) != 0 && copy.numa_node == EMUV_ANY)
        return -EINVAL;
    if (copy.reserved2 != 0 || (!swaps && copy.swap_fd != 0))
        return -EINVAL;
    const std::uint64_t sum = copy.physical_bytes + copy.virtual_bytes;
    if (copy.reserved != 0 || copy.id < EMUV_ANY ||
        copy.id >= EMUV_MAX_INSTANCES || copy.physical_bytes > EMUV_MAX_BYTES ||
        copy.virtual_bytes > EMUV_MAX_BYTES || sum > EMUV_MAX_BYTES ||
        sum == 0 || copy.virtual_bytes % EMUV_CHUNK_BYTES != 0 ||
        copy.client_virtual_bytes % EMUV_CHUNK_BYTES != 0 ||
        copy.pci_device_id > 0xffff || copy.gpu_model[0] == '\0' ||
        copy.gpu_model[EMUV_MODEL_LEN - 1] != '\0')
        return -EINVAL;
    if (copy.id == EMUV_ANY) {
        copy.id = 0;
        while (instances_.contains(copy.id))
            copy.id++;
        if (copy.id >= EMUV_MAX_INSTANCES)
            return -ENOSPC;
    } else if (instances_.contains(copy.id)) {
        return -EEXIST;
    }
    std::uint64_t promised = copy.virtual_bytes;
    for (const auto &[id, one] : instances_)
        promised += one.info.virtual_bytes;
    if (promised > promisable && (copy.flags & EMUV_CREATE_OVERCOMMIT) == 0)
        return -ENOMEM;

    instance one;
    one.info.id = copy.id;
    one.info.gpu_model = copy.gpu_model;
    one.info.physical_bytes = copy.physical_bytes;
    one.info.virtual_bytes = copy.virtual_bytes;
    one.info.client_virtual_bytes = copy.virtual_bytes;
    if (copy.client_virtual_bytes != 0)
        one.info.client_virtual_bytes =
            std::min(copy.client_virtual_bytes, copy.virtual_bytes);
    one.info.numa_node = copy.numa_node;
    one.info.numa_bind = (copy.flags & EMUV_CREATE_BIND) != 0;
    one.info.guaranteed = (copy.flags & EMUV_CREATE_GUARANTEED) != 0;
    one.info.swaps = swaps;
    one.info.reserve_bytes = one.info.guaranteed ? copy.virtual_bytes : 0;
    one.info.pci_device_id = static_cast<std::uint16_t>(copy.pci_device_id);
    // No two have the same, even one behind the other under one number.
    std::array<char, 3> last{};
    std::snprintf(last.data(), last.size(), "%02x", made_++ & 0xffU);
    one.info.uuid =
        std::string("00112233-4455-6677-8899-aabbccddee") + last.data();
    one.memory = ::memfd_create("emuv", MFD_CLOEXEC);
    if (::ftruncate(one.memory, static_cast<off_t>(copy.virtual_bytes)) != 0)
        return -ENOMEM;
    if (make_nodes) {
        const auto node = dev() / emuv::instance_name(copy.id);
        write_file(node, "");
        ::chmod(node.c_str(), 0660);
    }
    show(one);
    instances_[copy.id] = std::move(one);
    return give(argument, copy);
}

int fake_kernel::destroy(void *argument)
{
    emuv_destroy copy{};
    if (const int bad = take(argument, copy, EMUV_DESTROY_FORCE); bad != 0)
        return bad;
    const auto found = instances_.find(copy.id);
    if (found == instances_.end())
        return -ENODEV;
    const bool force = (copy.flags & EMUV_DESTROY_FORCE) != 0;
    if (!force &&
        (!found->second.clients.empty() || !found->second.regions.empty()))
        return -EBUSY;
    ::close(found->second.memory);
    instances_.erase(found);
    std::filesystem::remove(dev() / emuv::instance_name(copy.id));
    std::filesystem::remove_all(sys() / "class/emuv" /
                                emuv::instance_name(copy.id));
    return 0;
}

int fake_kernel::resize(void *argument)
{
    emuv_resize copy{};
    if (const int bad =
            take(argument, copy, EMUV_RESIZE_PHYSICAL | EMUV_RESIZE_VIRTUAL);
        bad != 0)
        return bad;
    const bool physical = (copy.flags & EMUV_RESIZE_PHYSICAL) != 0;
    const bool virtual_ = (copy.flags & EMUV_RESIZE_VIRTUAL) != 0;
    if (copy.reserved != 0 || copy.flags == 0 ||
        (!physical && copy.physical_bytes != 0) ||
        (!virtual_ && copy.virtual_bytes != 0) ||
        copy.virtual_bytes % EMUV_CHUNK_BYTES != 0)
        return -EINVAL;
    const auto found = instances_.find(copy.id);
    if (found == instances_.end())
        return -ENODEV;
    auto &info = found->second.info;
    const auto &regions = found->second.regions;
    const auto end = regions.empty() ? 0
                                     : regions.rbegin()->first +
                                           regions.rbegin()->second.bytes;
    if ((physical && copy.physical_bytes < info.physical_used_bytes) ||
        (virtual_ && copy.virtual_bytes < end))
        return -EBUSY;
    std::uint64_t promised = copy.virtual_bytes;
    for (const auto &[id, one] : instances_)
        promised += id == copy.id ? 0 : one.info.virtual_bytes;
    if (virtual_ && copy.virtual_bytes > info.virtual_bytes &&
        promised > promisable)
        return -ENOMEM;
    if (physical)
        info.physical_bytes = copy.physical_bytes;
    if (virtual_) {
        info.virtual_bytes = info.client_virtual_bytes = copy.virtual_bytes;
        if (::ftruncate(found->second.memory,
                        static_cast<off_t>(copy.virtual_bytes)) != 0)
            return -ENOMEM;
    }
    show(found->second);
    return 0;
}

int fake_kernel::alloc(instance &of, std::uint64_t client, void *argument)
{
    emuv_alloc copy{};
    if (const int bad = take(argument, copy, EMUV_ALLOC_POPULATE); bad != 0)
        return bad;
    if (copy.bytes == 0)
        return -EINVAL;
    if (copy.bytes > of.info.virtual_bytes)
        return -ENOSPC;
    copy.bytes = whole_chunks(copy.bytes);
    std::uint64_t offset = 0;
    for (const auto &[begin, region] : of.regions) {
        if (begin - offset >= copy.bytes)
            break;
        offset = begin + region.bytes;
    }
    if (copy.bytes > of.info.virtual_bytes - offset)
        return -ENOSPC;
    of.regions[offset] = {copy.bytes, client, {client}};
    if ((copy.flags & EMUV_ALLOC_POPULATE) != 0)
        ::fallocate(of.memory, 0, static_cast<off_t>(offset),
                    static_cast<off_t>(copy.bytes));
    copy.offset = offset;
    return give(argument, copy);
}

void fake_kernel::let_go(instance &of, std::uint64_t client,
                         std::uint64_t offset)
{
    const auto found = of.regions.find(offset);
    found->second.holders.erase(client);
    if (!found->second.holders.empty())
        return;
    ::fallocate(of.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset),
                static_cast<off_t>(found->second.bytes));
    of.regions.erase(found);
}

int fake_kernel::free(instance &of, std::uint64_t client, void *argument)
{
    emuv_free copy{};
    if (const int bad = take(argument, copy); bad != 0)
        return bad;
    const auto found = of.regions.find(copy.offset);
    if (found == of.regions.end() || !found->second.holders.contains(client))
        return -ENOENT;
    let_go(of, client, copy.offset);
    return 0;
}

int fake_kernel::export_region(instance &of, std::uint64_t client,
                               void *argument)
{
    emuv_export copy{};
    if (const int bad = take(argument, copy, EMUV_EXPORT_DMABUF); bad != 0)
        return bad;
    const auto found = of.regions.find(copy.offset);
    if (found == of.regions.end() || !found->second.holders.contains(client))
        return -ENOENT;
    copy.fd = ::memfd_create("emuv-region", MFD_CLOEXEC);
    struct stat state
    {};
    if (::ftruncate(copy.fd, static_cast<off_t>(found->second.bytes)) != 0 ||
        ::fstat(copy.fd, &state) != 0)
        return -errno;
    exports_[state.st_ino] = {of.info.id, copy.offset};
    return give(argument, copy);
}

int fake_kernel::import(instance &of, std::uint64_t client, void *argument)
{
    emuv_import copy{};
    if (const int bad = take(argument, copy); bad != 0)
        return bad;
    struct stat state
    {};
    if (::fstat(copy.fd, &state) != 0)
        return -EBADF;
    const auto found = exports_.find(state.st_ino);
    if (found == exports_.end())
        return -EINVAL;
    if (found->second.first != of.info.id)
        return -EXDEV;
    const auto region = of.regions.find(found->second.second);
    if (region == of.regions.end())
        return -EINVAL;
    if (!region->second.holders.insert(client).second)
        return -EEXIST;
    copy.offset = region->first;
    copy.bytes = region->second.bytes;
    return give(argument, copy);
}

int fake_kernel::discard(instance &of, std::uint64_t client, void *argument)
{
    emuv_discard copy{};
    if (const int bad = take(argument, copy); bad != 0)
        return bad;
    if (copy.bytes == 0 || copy.offset > of.info.virtual_bytes ||
        copy.bytes > of.info.virtual_bytes - copy.offset)
        return -EINVAL;
    auto found = of.regions.upper_bound(copy.offset);
    if (found == of.regions.begin())
        return -EACCES;
    --found;
    if (!found->second.holders.contains(client) ||
        copy.offset + copy.bytes > found->first + found->second.bytes)
        return -EACCES;
    ::fallocate(of.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(copy.offset),
                static_cast<off_t>(copy.bytes));
    return 0;
}

int fake_kernel::charge(instance &of, std::uint64_t client, void *argument,
                        bool back)
{
    emuv_charge copy{};
    if (const int bad = take(argument, copy); bad != 0)
        return bad;
    auto &own = of.clients.at(client).physical_bytes;
    const std::uint64_t free_bytes =
        of.info.physical_bytes - of.info.physical_used_bytes;
    if (back ? copy.bytes > own : copy.bytes > free_bytes)
        return back ? -EINVAL : -ENOSPC;
    own = back ? own - copy.bytes : own + copy.bytes;
    copy.free_bytes = back ? free_bytes + copy.bytes : free_bytes - copy.bytes;
    return give(argument, copy);
}

int fake_kernel::report(instance &of, std::uint64_t client, void *argument)
{
    emuv_report copy{};
    if (const int bad = take(argument, copy); bad != 0)
        return bad;
    for (auto *to : {&of.info.moved, &of.clients.at(client).moved}) {
        to->fetched_bytes += copy.fetched_bytes;
        to->evicted_bytes += copy.evicted_bytes;
        to->spills += copy.spills;
        to->faults += copy.faults;
        to->hit_bytes += copy.hit_bytes;
        to->miss_bytes += copy.miss_bytes;
        to->stalled_ns += copy.stalled_ns;
    }
    return 0;
}

// Works the sums out anew, and shows them.
void fake_kernel::account(instance &of) const
{
    of.info.clients = static_cast<std::uint32_t>(of.clients.size());
    of.info.physical_used_bytes = 0;
    for (auto &[number, client] : of.clients) {
        of.info.physical_used_bytes += client.physical_bytes;
        client.virtual_bytes = 0;
        client.imported_bytes = 0;
        for (const auto &[offset, region] : of.regions) {
            if (!region.holders.contains(number))
                continue;
            (region.owner == number ? client.virtual_bytes
                                    : client.imported_bytes) += region.bytes;
        }
    }
    of.info.virtual_used_bytes = 0;
    of.info.unowned_bytes = 0;
    for (const auto &[offset, region] : of.regions) {
        of.info.virtual_used_bytes += region.bytes;
        if (!region.holders.contains(region.owner))
            of.info.unowned_bytes += region.bytes;
    }
    struct stat state
    {};
    ::fstat(of.memory, &state);
    of.info.resident_bytes =
        whole_chunks(static_cast<std::uint64_t>(state.st_blocks) * 512);
    show(of);
}

void fake_kernel::show(const instance &of) const
{
    const auto &info = of.info;
    const auto folder = sys() / "class/emuv" / info.name();
    const auto put = [&](const char *name, const std::string &value) {
        write_file(folder / name, value + "\n");
    };
    put("gpu_model", info.gpu_model);
    put("physical_bytes", std::to_string(info.physical_bytes));
    put("virtual_bytes", std::to_string(info.virtual_bytes));
    put("client_virtual_bytes", std::to_string(info.client_virtual_bytes));
    put("total_bytes", std::to_string(info.total_bytes()));
    put("physical_used_bytes", std::to_string(info.physical_used_bytes));
    put("virtual_used_bytes", std::to_string(info.virtual_used_bytes));
    put("unowned_bytes", std::to_string(info.unowned_bytes));
    put("lingering_bytes", "0");
    put("resident_bytes", std::to_string(info.resident_bytes));
    put("reserve_bytes", std::to_string(info.reserve_bytes));
    put("guaranteed", info.guaranteed ? "1" : "0");
    put("numa_bind", info.numa_bind ? "1" : "0");
    put("swap", info.swaps ? "1" : "0");
    put("swapped_bytes", std::to_string(info.swapped_bytes));
    put("clients", std::to_string(info.clients));
    put("chunk_bytes", std::to_string(info.chunk_bytes));
    put("uuid", info.uuid);
    put("numa_node", std::to_string(info.numa_node));
    std::array<char, 8> id{};
    std::snprintf(id.data(), id.size(), "0x%04x", info.pci_device_id);
    put("pci_device_id", id.data());
    put("fetched_bytes", std::to_string(info.moved.fetched_bytes));
    put("evicted_bytes", std::to_string(info.moved.evicted_bytes));
    put("spills", std::to_string(info.moved.spills));
    put("faults", std::to_string(info.moved.faults));
    put("hit_bytes", std::to_string(info.moved.hit_bytes));
    put("miss_bytes", std::to_string(info.moved.miss_bytes));
    put("stalled_ns", std::to_string(info.moved.stalled_ns));
    put("vram_info", "GPU: " + info.gpu_model);
}

void fake_kernel::load(const std::string &module, const std::string &parameters)
{
    if (load_error_ != 0)
        throw emuv::error(std::exchange(load_error_, 0), module, "init_module");
    if (!file)
        throw emuv::error(ENOENT, module, "lookup");
    if (std::filesystem::exists(sys() / "module/emuv"))
        throw emuv::error(EEXIST, module, "init_module");
    loaded_with = parameters;
    insert();
    // As much of the parameters as the tests use: one instance.
    std::istringstream words(parameters);
    emuv_create copy{};
    copy.size = sizeof(copy);
    copy.numa_node = EMUV_ANY;
    for (std::string word; words >> word;) {
        const auto equals = word.find('=');
        const std::string name = word.substr(0, equals);
        const std::string value = word.substr(equals + 1);
        if (name == "gpu_model")
            copy_text(copy.gpu_model, value);
        else if (name == "physical_vram_gb")
            copy.physical_bytes = std::stoull(value) << 30U;
        else if (name == "virtual_vram_gb")
            copy.virtual_bytes = std::stoull(value) << 30U;
    }
    if (copy.gpu_model[0] == '\0')
        return;
    if (const int result = create(&copy); result != 0) {
        remove();
        throw emuv::error(-result, module, "init_module");
    }
}

void fake_kernel::unload(const std::string &name)
{
    for (const auto &[id, one] : instances_)
        if (!one.clients.empty())
            throw emuv::error(EWOULDBLOCK, name, "delete_module");
    remove();
}

std::optional<emuv::module_file> fake_kernel::info(const std::string &module)
{
    if (file && module.find('/') != std::string::npos)
        file->path = module;
    return file;
}

} // namespace emuv_test

// SPDX-License-Identifier: GPL-2.0-or-later
// Shared by the guest tests: see support.hpp.
#include "support.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace guest {

namespace {

constexpr int silence_ms = 120 * 1000;
constexpr const char *control_path = "/dev/emuv-control";

[[noreturn]] void fail(const std::string &what)
{
    throw std::system_error(errno, std::generic_category(), what);
}

} // namespace

int error_of(long result)
{
    return result < 0 ? errno : 0;
}

long checked(long result, const char *what)
{
    if (result < 0)
        fail(what);
    return result;
}

descriptor &descriptor::operator=(descriptor &&other) noexcept
{
    if (this != &other) {
        reset();
        number_ = std::exchange(other.number_, -1);
    }
    return *this;
}

void descriptor::reset()
{
    if (number_ >= 0)
        close(std::exchange(number_, -1));
}

mapping::mapping(int fd, u64 bytes, u64 offset, int protection) : size_(bytes)
{
    void *at = mmap(nullptr, bytes, protection, MAP_SHARED, fd,
                    static_cast<off_t>(offset));
    if (at == MAP_FAILED)
        fail("mmap");
    data_ = static_cast<unsigned char *>(at);
}

mapping::mapping(mapping &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0))
{}

mapping &mapping::operator=(mapping &&other) noexcept
{
    if (this != &other) {
        reset();
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

void mapping::reset()
{
    if (data_)
        munmap(std::exchange(data_, nullptr), size_);
}

int map_error(int fd, u64 bytes, u64 offset, int protection, int flags)
{
    void *at =
        mmap(nullptr, bytes, protection, flags, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED)
        return errno;
    munmap(at, bytes);
    return 0;
}

int call(int fd, unsigned long request, void *argument)
{
    return error_of(ioctl(fd, request, argument));
}

emuv_create creation(u64 physical_bytes, u64 virtual_bytes, int id,
                     unsigned flags)
{
    auto argument = fresh<emuv_create>();
    argument.flags = flags;
    argument.id = id;
    argument.numa_node = EMUV_ANY;
    argument.physical_bytes = physical_bytes;
    argument.virtual_bytes = virtual_bytes;
    std::strcpy(argument.gpu_model, "4070");
    return argument;
}

descriptor open_control()
{
    return descriptor(static_cast<int>(
        checked(open(control_path, O_RDWR | O_CLOEXEC), control_path)));
}

int create(const descriptor &control, emuv_create argument)
{
    errno = call(control, EMUV_IOC_CREATE, argument);
    if (errno)
        fail("EMUV_IOC_CREATE");
    return argument.id;
}

int create(const descriptor &control, u64 physical_bytes, u64 virtual_bytes)
{
    return create(control, creation(physical_bytes, virtual_bytes));
}

int destroy(const descriptor &control, int id, unsigned flags)
{
    auto argument = fresh<emuv_destroy>();
    argument.flags = flags;
    argument.id = id;
    return call(control, EMUV_IOC_DESTROY, argument);
}

emuv_resize resizing(int id, u64 physical_bytes, u64 virtual_bytes)
{
    auto argument = fresh<emuv_resize>();
    argument.id = id;
    argument.flags = EMUV_RESIZE_PHYSICAL | EMUV_RESIZE_VIRTUAL;
    argument.physical_bytes = physical_bytes;
    argument.virtual_bytes = virtual_bytes;
    return argument;
}

u64 promisable(const descriptor &control)
{
    u64 most = 0;
    for (u64 step = u64{1} << 40; step >= chunk; step /= 2) {
        auto argument = creation(0, most + step);
        if (call(control, EMUV_IOC_CREATE, argument) != 0)
            continue;
        EXPECT_EQ(destroy(control, argument.id), 0);
        most += step;
    }
    return most;
}

int destroy_eventually(const descriptor &control, int id)
{
    int error = 0;
    wait_until([&] { return (error = destroy(control, id)) != EBUSY; });
    return error;
}

std::string node_path(int id)
{
    return "/dev/emuv" + std::to_string(id);
}

descriptor open_client(int id, int flags)
{
    without_capability dropped(CAP_SYS_RAWIO);
    return open_raw(id, flags);
}

descriptor open_raw(int id, int flags)
{
    const auto path = node_path(id);
    return descriptor(static_cast<int>(
        checked(open(path.c_str(), flags | O_CLOEXEC), path.c_str())));
}

emuv_query_instance query(const descriptor &node, int id)
{
    auto argument = fresh<emuv_query_instance>();
    argument.id = id;
    errno = call(node, EMUV_IOC_QUERY_INSTANCE, argument);
    if (errno)
        fail("EMUV_IOC_QUERY_INSTANCE");
    return argument;
}

std::vector<emuv_query_client> list_clients(const descriptor &node, int id,
                                            unsigned flags)
{
    std::vector<emuv_query_client> list;
    for (u64 next = 0;;) {
        auto argument = fresh<emuv_query_client>();
        argument.flags = flags;
        argument.id = id;
        argument.client = next;
        errno = call(node, EMUV_IOC_QUERY_CLIENT, argument);
        if (errno == ENOENT)
            return list;
        if (errno)
            fail("EMUV_IOC_QUERY_CLIENT");
        next = argument.client + 1;
        list.push_back(argument);
    }
}

int try_allocate(const descriptor &client, u64 bytes, region &out,
                 unsigned flags)
{
    auto argument = fresh<emuv_alloc>();
    argument.flags = flags;
    argument.bytes = bytes;
    const int error = call(client, EMUV_IOC_ALLOC, argument);
    if (!error)
        out = {argument.offset, argument.bytes};
    return error;
}

region allocate(const descriptor &client, u64 bytes, unsigned flags)
{
    region out;
    errno = try_allocate(client, bytes, out, flags);
    if (errno)
        fail("EMUV_IOC_ALLOC");
    return out;
}

int release(const descriptor &client, u64 offset)
{
    auto argument = fresh<emuv_free>();
    argument.offset = offset;
    return call(client, EMUV_IOC_FREE, argument);
}

int charge(const descriptor &client, u64 bytes)
{
    auto argument = fresh<emuv_charge>();
    argument.bytes = bytes;
    return call(client, EMUV_IOC_CHARGE, argument);
}

int charge_wait(const descriptor &client, u64 bytes, u64 deadline_ns)
{
    auto argument = fresh<emuv_charge>();
    argument.flags = EMUV_CHARGE_WAIT;
    argument.bytes = bytes;
    argument.deadline_ns = deadline_ns;
    return call(client, EMUV_IOC_CHARGE, argument);
}

int uncharge(const descriptor &client, u64 bytes)
{
    auto argument = fresh<emuv_charge>();
    argument.bytes = bytes;
    return call(client, EMUV_IOC_UNCHARGE, argument);
}

int discard(const descriptor &client, u64 offset, u64 bytes)
{
    auto argument = fresh<emuv_discard>();
    argument.offset = offset;
    argument.bytes = bytes;
    return call(client, EMUV_IOC_DISCARD, argument);
}

descriptor export_region(const descriptor &client, u64 offset, unsigned flags)
{
    auto argument = fresh<emuv_export>();
    argument.flags = flags;
    argument.offset = offset;
    errno = call(client, EMUV_IOC_EXPORT, argument);
    if (errno)
        fail("EMUV_IOC_EXPORT");
    return descriptor(argument.fd);
}

int import_region(const descriptor &client, const descriptor &exported,
                  region &out)
{
    auto argument = fresh<emuv_import>();
    argument.fd = exported.get();
    const int error = call(client, EMUV_IOC_IMPORT, argument);
    if (!error)
        out = {argument.offset, argument.bytes};
    return error;
}

// --- the module ---

std::string module_file()
{
    const char *path = std::getenv("EMUV_KO");
    return path ? path : "";
}

int load(const std::string &parameters)
{
    const descriptor file(open(module_file().c_str(), O_RDONLY | O_CLOEXEC));
    if (!file)
        fail(module_file());
    return error_of(
        syscall(SYS_finit_module, file.get(), parameters.c_str(), 0));
}

int unload()
{
    return error_of(syscall(SYS_delete_module, "emuv", O_NONBLOCK));
}

int unload_eventually()
{
    int error = 0;
    wait_until([&] { return (error = unload()) != EWOULDBLOCK; });
    return error;
}

bool loaded()
{
    return exists("/sys/module/emuv");
}

std::string leftovers()
{
    std::string found;
    for (const char *path : {"/sys/module/emuv", "/sys/class/emuv",
                             "/sys/devices/virtual/emuv", control_path})
        if (exists(path))
            found += std::string(path) + "\n";
    for (const auto &name : names_in("/dev"))
        if (name.starts_with("emuv"))
            found += "/dev/" + name + "\n";
    for (const char *path : {"/proc/devices", "/proc/misc", "/proc/modules",
                             "/proc/slabinfo", "/proc/vmallocinfo"}) {
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);)
            if (line.find("emuv") != std::string::npos)
                found += std::string(path) + ": " + line + "\n";
    }
    return found;
}

kernel_log::kernel_log()
    : device_(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC))
{
    if (!device_)
        fail("/dev/kmsg");
    checked(lseek(device_.get(), 0, SEEK_END), "/dev/kmsg");
}

std::vector<std::string> kernel_log::lines()
{
    std::vector<std::string> messages;
    std::array<char, 8192> record{};
    for (;;) {
        const ssize_t got = read(device_.get(), record.data(), record.size());
        if (got < 0 && errno == EPIPE)
            continue;
        if (got <= 0)
            return messages;
        // "priority,sequence,time,flags;message\n" and then lines of keys.
        const std::string_view text(record.data(),
                                    static_cast<std::size_t>(got));
        const auto start = text.find(';') + 1;
        messages.emplace_back(
            text.substr(start, text.find('\n', start) - start));
    }
}

u64 from_environment(const char *name, u64 otherwise)
{
    const char *const text = std::getenv(name);
    return text != nullptr ? std::stoull(text) : otherwise;
}

std::string read_text(const std::string &path)
{
    std::ifstream file(path);
    if (!file)
        throw std::runtime_error(path + " cannot be opened");
    std::ostringstream text;
    text << file.rdbuf();
    auto content = text.str();
    if (content.ends_with('\n'))
        content.pop_back();
    return content;
}

u64 read_number(const std::string &path)
{
    return std::stoull(read_text(path));
}

bool make_failures_silent()
{
    const std::string debugfs = "/sys/kernel/debug/";
    for (const auto &[kind, setting, value] :
         {std::array{"failslab", "ignore-gfp-wait", "N"},
          {"failslab", "verbose", "0"},
          {"fail_page_alloc", "ignore-gfp-wait", "N"},
          {"fail_page_alloc", "ignore-gfp-highmem", "N"},
          {"fail_page_alloc", "min-order", "0"},
          {"fail_page_alloc", "verbose", "0"},
          {"fail_usercopy", "verbose", "0"}})
        if (!write_text(debugfs + kind + "/" + setting, value))
            return false;
    return true;
}

bool write_text(const std::string &path, std::string_view text)
{
    const descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    return file && write(file.get(), text.data(), text.size()) ==
                       static_cast<ssize_t>(text.size());
}

bool exists(const std::string &path)
{
    return access(path.c_str(), F_OK) == 0;
}

std::string attribute_path(int id, const std::string &name)
{
    return "/sys/class/emuv/emuv" + std::to_string(id) + "/" + name;
}

std::string attribute(int id, const std::string &name)
{
    return read_text(attribute_path(id, name));
}

std::vector<std::string> names_in(const std::string &folder)
{
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR *)> handle(opendir(folder.c_str()),
                                                      closedir);
    if (!handle)
        return names;
    while (const dirent *entry = readdir(handle.get()))
        if (entry->d_name[0] != '.')
            names.emplace_back(entry->d_name);
    std::sort(names.begin(), names.end());
    return names;
}

u64 meminfo(const std::string &name)
{
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(name + ":"))
            return std::stoull(line.substr(name.size() + 1)) * kib;
    throw std::runtime_error("/proc/meminfo has no " + name);
}

namespace {

/// Free pages that processors keep at hand, in bytes. No count of free pages
/// has them; since 6.7 they are a good part of memory.
u64 at_hand()
{
    u64 all = 0;
    std::ifstream zones("/proc/zoneinfo");
    for (std::string line; std::getline(zones, line);) {
        unsigned long pages = 0;
        if (std::sscanf(line.c_str(), " count: %lu", &pages) == 1)
            all += pages;
    }
    return all * static_cast<u64>(sysconf(_SC_PAGESIZE));
}

} // namespace

u64 settled_available()
{
    sync();
    write_text("/proc/sys/vm/drop_caches", "3");
    // A processor gives back tens of megabytes at once. Between the two
    // readings they would be counted twice (17.8 MiB were seen on 6.1).
    u64 before = at_hand();
    for (int left = 100;; left--) {
        const u64 available = meminfo("MemAvailable");
        const u64 after = at_hand();
        const auto [less, more] = std::minmax(before, after);
        if (more - less <= mib || left == 0)
            return available + less;
        before = after;
    }
}

bool holds_back_freed()
{
    return exists("/sys/kernel/debug/kmemleak");
}

long minor_faults()
{
    rusage usage{};
    checked(getrusage(RUSAGE_THREAD, &usage), "getrusage");
    return usage.ru_minflt;
}

bool wait_until(const std::function<bool()> &condition,
                std::chrono::milliseconds limit)
{
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
}

bool load_stock_module(const std::string &name_and_parameters)
{
    const auto command = "modprobe " + name_and_parameters + " 2>/dev/null";
    return std::system(command.c_str()) == 0;
}

// --- memory ---

namespace {

thread_local sigjmp_buf *fault_target = nullptr;

std::atomic<bool> faults_caught{false};

void on_fault(int number)
{
    if (fault_target)
        siglongjmp(*fault_target, number);
    // An unexpected signal ends the program. A momentary fault does not repeat,
    // as when an injected failure hit the program's own pages.
    signal(number, SIG_DFL);
    faults_caught = false;
}

void catch_faults()
{
    if (faults_caught)
        return;
    struct sigaction action
    {};
    action.sa_handler = on_fault;
    sigaction(SIGBUS, &action, nullptr);
    sigaction(SIGSEGV, &action, nullptr);
    faults_caught = true;
}

} // namespace

int signal_of(const std::function<void()> &access)
{
    catch_faults();
    sigjmp_buf target;
    const int number = sigsetjmp(target, 1);
    if (number == 0) {
        fault_target = &target;
        access();
    }
    fault_target = nullptr;
    return number;
}

int signal_of_read(const volatile unsigned char *at)
{
    return signal_of([at] { static_cast<void>(*at); });
}

int signal_of_write(volatile unsigned char *at)
{
    return signal_of([at] { *at = 1; });
}

std::optional<u64> first_other(const unsigned char *data, u64 bytes,
                               unsigned char value)
{
    // memcmp() of the range with itself, shifted by a byte, is far faster than
    // a loop under emulation.
    if (bytes == 0 ||
        (data[0] == value && std::memcmp(data, data + 1, bytes - 1) == 0))
        return std::nullopt;
    return static_cast<u64>(
        std::find_if(data, data + bytes,
                     [=](auto byte) { return byte != value; }) -
        data);
}

namespace {

u64 pattern_word(u64 place, u64 seed)
{
    return (place + 1) * 0x9e3779b97f4a7c15ULL + seed * 0xbf58476d1ce4e5b9ULL;
}

} // namespace

void fill_pattern(unsigned char *data, u64 bytes, u64 seed)
{
    for (u64 at = 0; at < bytes; at += sizeof(u64)) {
        const u64 word = pattern_word(at, seed);
        std::memcpy(data + at, &word, std::min<u64>(sizeof word, bytes - at));
    }
}

std::optional<u64> first_pattern_error(const unsigned char *data, u64 bytes,
                                       u64 seed)
{
    for (u64 at = 0; at < bytes; at += sizeof(u64)) {
        const u64 word = pattern_word(at, seed);
        if (std::memcmp(data + at, &word,
                        std::min<u64>(sizeof word, bytes - at)) != 0)
            return at;
    }
    return std::nullopt;
}

bool reads_zero(int fd, u64 offset, u64 bytes)
{
    std::vector<unsigned char> buffer(std::min(bytes, mib), 0xff);
    while (bytes > 0) {
        const auto want = std::min<u64>(bytes, buffer.size());
        std::memset(buffer.data(), 0xff, want);
        if (pread(fd, buffer.data(), want, static_cast<off_t>(offset)) !=
            static_cast<ssize_t>(want))
            return false;
        if (first_other(buffer.data(), want))
            return false;
        offset += want;
        bytes -= want;
    }
    return true;
}

memory_cgroup::memory_cgroup(const std::string &name)
{
    const std::string root = "/sys/fs/cgroup";
    folder_ = root + "/emuv-" + name;
    if (!exists(root + "/cgroup.controllers")) {
        mkdir(root.c_str(), 0755);
        if (mount("cgroup2", root.c_str(), "cgroup2", 0, nullptr) != 0)
            return;
    }
    if (read_text(root + "/cgroup.controllers").find("memory") ==
        std::string::npos)
        return;
    write_text(root + "/cgroup.subtree_control", "+memory");
    usable = mkdir(folder_.c_str(), 0755) == 0 &&
             exists(folder_ + "/memory.current");
}

memory_cgroup::~memory_cgroup()
{
    wait_until([this] { return rmdir(folder_.c_str()) == 0; });
}

u64 memory_cgroup::current() const
{
    return read_number(folder_ + "/memory.current");
}

bool memory_cgroup::enter() const
{
    return write_text(folder_ + "/cgroup.procs", "0");
}

bool memory_cgroup::limit(u64 bytes) const
{
    return write_text(folder_ + "/memory.max", std::to_string(bytes));
}

u64 memory_cgroup::event(const std::string &name) const
{
    std::istringstream events(read_text(folder_ + "/memory.events"));
    std::string key;
    for (u64 value = 0; events >> key >> value;)
        if (key == name)
            return value;
    return 0;
}

// --- capabilities and processes ---

namespace {

using capability_sets = std::array<__user_cap_data_struct, 2>;

capability_sets capabilities()
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    capability_sets sets{};
    checked(syscall(SYS_capget, &header, sets.data()), "capget");
    return sets;
}

/// @return true on success
bool set_effective(int capability, bool on)
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    capability_sets sets{};
    if (syscall(SYS_capget, &header, sets.data()) != 0)
        return false;
    const auto bit = 1U << (capability % 32);
    auto &effective = sets[static_cast<std::size_t>(capability / 32)].effective;
    effective = on ? effective | bit : effective & ~bit;
    return syscall(SYS_capset, &header, sets.data()) == 0;
}

} // namespace

without_capability::without_capability(int capability)
    : capability_(capability),
      had_((capabilities()[static_cast<std::size_t>(capability / 32)]
                .effective >>
            (capability % 32)) &
           1U)
{
    if (had_ && !set_effective(capability_, false))
        fail("capset");
}

without_capability::~without_capability()
{
    if (had_)
        set_effective(capability_, true);
}

long send_with(int socket, const void *data, std::size_t bytes, int fd,
               int flags)
{
    iovec part{const_cast<void *>(data), bytes};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (fd >= 0) {
        header.msg_control = room;
        header.msg_controllen = sizeof room;
        cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof fd);
        std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    return sendmsg(socket, &header, flags | MSG_NOSIGNAL);
}

long receive_with(int socket, void *data, std::size_t bytes, descriptor &fd,
                  int flags)
{
    iovec part{data, bytes};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = room;
    header.msg_controllen = sizeof room;
    const long got = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return got;
    if (cmsghdr *rights = CMSG_FIRSTHDR(&header)) {
        int number = -1;
        std::memcpy(&number, CMSG_DATA(rights), sizeof number);
        fd = descriptor(number);
    }
    return got;
}

namespace {

struct message
{
    bool last = false;
    u64 value = 0;
    char text[1024] = {};
};

void send_message(int socket, const message &what, int fd)
{
    checked(send_with(socket, &what, sizeof what, fd, 0), "sendmsg");
}

/// Returns nothing when the other end has closed.
std::optional<message> receive_message(int socket, descriptor *fd)
{
    pollfd waiting{socket, POLLIN, 0};
    const auto ready = checked(poll(&waiting, 1, silence_ms), "poll");
    if (ready == 0)
        throw std::runtime_error("the other process stayed silent");
    message what;
    descriptor received;
    const auto got = receive_with(socket, &what, sizeof what, received, 0);
    if (got < 0 && errno != ECONNRESET)
        fail("recvmsg");
    if (got <= 0)
        return std::nullopt;
    if (fd && received)
        *fd = std::move(received);
    return what;
}

message expect_message(int socket, descriptor *fd)
{
    auto got = receive_message(socket, fd);
    if (!got)
        throw std::runtime_error("the other process ended");
    if (got->last)
        throw std::runtime_error(
            std::string("the other process ended early: ") + got->text);
    return *got;
}

} // namespace

void channel::send(u64 value)
{
    message what;
    what.value = value;
    send_message(socket_.get(), what, -1);
}

u64 channel::receive()
{
    return expect_message(socket_.get(), nullptr).value;
}

void channel::send_descriptor(int fd)
{
    send_message(socket_.get(), message{}, fd);
}

descriptor channel::receive_descriptor()
{
    descriptor fd;
    expect_message(socket_.get(), &fd);
    if (!fd)
        throw std::runtime_error("the other process sent no descriptor");
    return fd;
}

void channel::finish(const std::string &text)
{
    message what;
    what.last = true;
    text.copy(what.text, sizeof what.text - 1);
    send_message(socket_.get(), what, -1);
}

std::optional<std::string> channel::receive_last()
{
    while (auto got = receive_message(socket_.get(), nullptr))
        if (got->last)
            return got->text;
    return std::nullopt;
}

namespace {

void close_all_but(const std::vector<int> &keep)
{
    for (const auto &name : names_in("/proc/self/fd")) {
        const int number = std::stoi(name);
        if (number > STDERR_FILENO &&
            std::find(keep.begin(), keep.end(), number) == keep.end())
            close(number);
    }
}

void become(uid_t uid)
{
    if (uid == 0)
        return;
    checked(setgroups(0, nullptr), "setgroups");
    checked(setresgid(uid, uid, uid), "setresgid");
    checked(setresuid(uid, uid, uid), "setresuid");
}

[[noreturn]] void run_child(const process::options &how, descriptor socket,
                            const process::body &run)
{
    std::string text;
    auto keep = how.keep;
    keep.push_back(socket.get());
    channel conversation(std::move(socket));
    try {
        close_all_but(keep);
        become(how.uid);
        text = run(conversation);
    } catch (const std::exception &error) {
        text = error.what();
    }
    try {
        conversation.finish(text);
    } catch (const std::exception &) {
        _exit(1);
    }
    _exit(0);
}

} // namespace

process::process(const options &how, const body &run) : channel_(descriptor())
{
    std::array<int, 2> ends{};
    checked(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()),
            "socketpair");
    descriptor ours(ends[0]);
    descriptor theirs(ends[1]);
    std::fflush(nullptr);
    pid_ = static_cast<pid_t>(
        how.clone_flags ? syscall(SYS_clone, how.clone_flags | SIGCHLD, nullptr,
                                  nullptr, nullptr, nullptr)
                        : fork());
    checked(pid_, "fork");
    if (pid_ == 0)
        run_child(how, std::move(theirs), run);
    channel_ = channel(std::move(ours));
}

process::~process()
{
    kill_now();
}

void process::kill_now()
{
    if (pid_ <= 0)
        return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
}

std::string process::join()
{
    const auto text = channel_.receive_last();
    int status = 0;
    checked(waitpid(std::exchange(pid_, -1), &status, 0), "waitpid");
    if (WIFSIGNALED(status))
        return "killed by signal " + std::to_string(WTERMSIG(status));
    return text ? *text : "ended without a word";
}

std::string in_child(const process::options &how, const process::body &run)
{
    return process(how, run).join();
}

std::string failed(const char *expression, int line)
{
    return "line " + std::to_string(line) + ": " + expression +
           " does not hold (errno: " + std::strerror(errno) + ")";
}

// --- fixture ---

void driver_test::SetUp()
{
    ASSERT_FALSE(loaded()) << "the module is loaded already";
    ASSERT_EQ(load(parameters_), 0) << "insmod " << parameters_;
    control = open_control();
}

void driver_test::TearDown()
{
    if (control) {
        auto next = fresh<emuv_query_instance>();
        next.flags = EMUV_QUERY_NEXT;
        while (call(control, EMUV_IOC_QUERY_INSTANCE, next) == 0) {
            EXPECT_EQ(destroy_eventually(control, next.id), 0)
                << "emuv" << next.id << " cannot be destroyed";
            next.id++;
        }
        control.reset();
    }
    if (loaded()) {
        EXPECT_EQ(unload_eventually(), 0) << "the module cannot be unloaded";
    }
    EXPECT_EQ(leftovers(), "");
}

void driver_test::reload(const std::string &parameters)
{
    control.reset();
    ASSERT_EQ(unload_eventually(), 0);
    ASSERT_EQ(load(parameters), 0) << "insmod " << parameters;
    control = open_control();
}

} // namespace guest

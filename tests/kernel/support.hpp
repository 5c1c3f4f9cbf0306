// SPDX-License-Identifier: GPL-2.0-or-later
// Shared by the guest tests: the module, its nodes by raw ioctl, child
// processes, and readings of the kernel.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/emuv.h>
#include <sys/mman.h>
#include <sys/types.h>

namespace guest {

using u64 = std::uint64_t;

inline constexpr u64 kib = 1024;
inline constexpr u64 mib = 1024 * kib;
inline constexpr u64 gib = 1024 * mib;
inline constexpr u64 chunk = EMUV_CHUNK_BYTES;
inline constexpr uid_t nobody = 65534;

/// The errno of a call that returned -1, or 0 if it did not fail.
int error_of(long result);

/// Throws std::system_error if a call returned -1; else returns its result.
long checked(long result, const char *what);

/// An owned file descriptor.
class descriptor
{
public:
    descriptor() = default;
    explicit descriptor(int number) : number_(number) {}
    descriptor(descriptor &&other) noexcept
        : number_(std::exchange(other.number_, -1))
    {}
    descriptor &operator=(descriptor &&other) noexcept;
    descriptor(const descriptor &) = delete;
    descriptor &operator=(const descriptor &) = delete;
    ~descriptor() { reset(); }

    int get() const { return number_; }
    explicit operator bool() const { return number_ >= 0; }
    void reset();

private:
    int number_ = -1;
};

/// A shared mapping of `bytes` bytes of a descriptor, removed with the object.
class mapping
{
public:
    mapping() = default;
    mapping(int fd, u64 bytes, u64 offset = 0,
            int protection = PROT_READ | PROT_WRITE);
    mapping(mapping &&other) noexcept;
    mapping &operator=(mapping &&other) noexcept;
    mapping(const mapping &) = delete;
    mapping &operator=(const mapping &) = delete;
    ~mapping() { reset(); }

    unsigned char *data() const { return data_; }
    u64 size() const { return size_; }
    volatile unsigned char &operator[](u64 at) const { return data_[at]; }
    void reset();

private:
    unsigned char *data_ = nullptr;
    u64 size_ = 0;
};

/// The errno of mmap() with these arguments. 0 if it succeeds; nothing stays
/// mapped.
int map_error(int fd, u64 bytes, u64 offset,
              int protection = PROT_READ | PROT_WRITE, int flags = MAP_SHARED);

// --- the ABI, raw ---

/// A structure of the ABI, zeroed, with its size filled in.
template <class T>
T fresh()
{
    T argument{};
    argument.size = sizeof(T);
    return argument;
}

/// ioctl(); 0 or the errno.
int call(int fd, unsigned long request, void *argument);
template <class T>
int call(const descriptor &fd, unsigned long request, T &argument)
{
    return call(fd.get(), request, static_cast<void *>(&argument));
}

/// The usual create call of tests: physical and virtual bytes of a 4070.
emuv_create creation(u64 physical_bytes, u64 virtual_bytes, int id = EMUV_ANY,
                     unsigned flags = 0);

descriptor open_control();
/// Creates an instance and returns its id; throws on failure.
int create(const descriptor &control, emuv_create argument);
int create(const descriptor &control, u64 physical_bytes, u64 virtual_bytes);
/// 0 or the errno.
int destroy(const descriptor &control, int id, unsigned flags = 0);
/// The argument that changes both sizes of an instance.
emuv_resize resizing(int id, u64 physical_bytes, u64 virtual_bytes);
/// The most virtual bytes that the host still promises, to a chunk.
u64 promisable(const descriptor &control);
/// Tries for up to two minutes and returns the last errno. The kernel may
/// release a killed holder a moment later.
int destroy_eventually(const descriptor &control, int id);

std::string node_path(int id);
/// A client without CAP_SYS_RAWIO, for any caller; it can access only its own
/// regions.
descriptor open_client(int id, int flags = O_RDWR);
/// A client with all of the caller's capabilities.
descriptor open_raw(int id, int flags = O_RDWR);

emuv_query_instance query(const descriptor &node, int id = 0);
std::vector<emuv_query_client> list_clients(const descriptor &node, int id = 0,
                                            unsigned flags = 0);

struct region
{
    u64 offset = 0;
    u64 bytes = 0;
};
/// Allocates; throws if that fails.
region allocate(const descriptor &client, u64 bytes, unsigned flags = 0);
/// Allocates; 0 or the errno, and the region in `out`.
int try_allocate(const descriptor &client, u64 bytes, region &out,
                 unsigned flags = 0);
int release(const descriptor &client, u64 offset);
int charge(const descriptor &client, u64 bytes);
/// Charges as soon as there is room; 0 or the errno.
int charge_wait(const descriptor &client, u64 bytes,
                u64 deadline_ns = EMUV_NO_DEADLINE);
int uncharge(const descriptor &client, u64 bytes);
int discard(const descriptor &client, u64 offset, u64 bytes);
/// Exports; throws if that fails.
descriptor export_region(const descriptor &client, u64 offset,
                         unsigned flags = 0);
/// Imports; 0 or the errno.
int import_region(const descriptor &client, const descriptor &exported,
                  region &out);

// --- the module ---

/// The module's file, from the environment variable EMUV_KO.
std::string module_file();
/// finit_module() with these parameters; 0 or the errno.
int load(const std::string &parameters);
/// delete_module(); 0 or the errno.
int unload();
/// Tries for up to two minutes and returns the last errno. A killed process's
/// files may close a moment later.
int unload_eventually();
bool loaded();
/// The visible traces of the module, one line each; empty if there are none.
std::string leftovers();

/// Reads the kernel's messages since the object was made.
class kernel_log
{
public:
    kernel_log();
    /// The messages since the last call, oldest first.
    std::vector<std::string> lines();

private:
    descriptor device_;
};

/// A number from the environment, with which some tests run longer.
u64 from_environment(const char *name, u64 otherwise);

/// sendmsg() and recvmsg() of data and, unless -1, a descriptor.
long send_with(int socket, const void *data, std::size_t bytes, int fd,
               int flags);
long receive_with(int socket, void *data, std::size_t bytes, descriptor &fd,
                  int flags);

/// A file's text without its last newline; throws if it cannot be read.
std::string read_text(const std::string &path);
u64 read_number(const std::string &path);
bool write_text(const std::string &path, std::string_view text);
bool exists(const std::string &path);
/// Enables every fault injection of the kernel, without messages in its log;
/// false if there is none.
bool make_failures_silent();
std::string attribute_path(int id, const std::string &name);
std::string attribute(int id, const std::string &name);
std::vector<std::string> names_in(const std::string &folder);

/// A line of /proc/meminfo, in bytes.
u64 meminfo(const std::string &name);
/// MemAvailable after caches have been dropped, with the pages that processors
/// keep free for themselves.
u64 settled_available();
/// True if the kernel holds back freed memory, as KASAN does to catch uses of
/// it. Then sums of memory show no leak; such a kernel has kmemleak for that.
bool holds_back_freed();
/// Page faults of this thread that needed no I/O.
long minor_faults();
bool wait_until(const std::function<bool()> &condition,
                std::chrono::milliseconds limit = std::chrono::seconds(120));
/// Loads a module of the running kernel with modprobe; false if there is none.
bool load_stock_module(const std::string &name_and_parameters);

// --- memory ---

/// The signal (SIGBUS, SIGSEGV) that `access` raised, or 0. `access` must only
/// touch memory: its objects are not unwound.
int signal_of(const std::function<void()> &access);
int signal_of_read(const volatile unsigned char *at);
int signal_of_write(volatile unsigned char *at);
/// The first byte that is not `value`, if there is one.
std::optional<u64> first_other(const unsigned char *data, u64 bytes,
                               unsigned char value = 0);
/// Fills with bytes that depend on place and seed, so that shifts and swaps
/// show.
void fill_pattern(unsigned char *data, u64 bytes, u64 seed);
std::optional<u64> first_pattern_error(const unsigned char *data, u64 bytes,
                                       u64 seed);
/// True if a whole range of a descriptor reads as zeros.
bool reads_zero(int fd, u64 offset, u64 bytes);

/// A group of the memory controller, removed with the object.
class memory_cgroup
{
public:
    explicit memory_cgroup(const std::string &name);
    const std::string &folder() const { return folder_; }
    ~memory_cgroup();
    memory_cgroup(const memory_cgroup &) = delete;
    memory_cgroup &operator=(const memory_cgroup &) = delete;

    /// True if the memory controller, and so the group, exists.
    bool usable = false;

    u64 current() const;
    /// Moves the calling process into the group; false on failure.
    bool enter() const;
    /// Sets memory.max.
    bool limit(u64 bytes) const;
    /// A number out of memory.events.
    u64 event(const std::string &name) const;

private:
    std::string folder_;
};

// --- capabilities and processes ---

/// Removes a capability from this thread's effective set during the object's
/// life.
class without_capability
{
public:
    explicit without_capability(int capability);
    ~without_capability();
    without_capability(const without_capability &) = delete;
    without_capability &operator=(const without_capability &) = delete;

private:
    int capability_;
    bool had_;
};

/// One end of a conversation between a test and a process it started.
class channel
{
public:
    explicit channel(descriptor socket) : socket_(std::move(socket)) {}
    void send(u64 value = 0);
    u64 receive();
    void send_descriptor(int fd);
    descriptor receive_descriptor();
    void finish(const std::string &text);
    /// The last message of the other end; nothing if it ended without one.
    std::optional<std::string> receive_last();
    int get() const { return socket_.get(); }

private:
    friend class process;
    descriptor socket_;
};

/// A child process that runs `body`. It inherits only the descriptors in
/// `keep`, and is killed with the object.
class process
{
public:
    /// Returns an empty text on success, and the failure otherwise.
    using body = std::function<std::string(channel &)>;

    struct options
    {
        uid_t uid = 0;
        unsigned long clone_flags = 0;
        std::vector<int> keep = {};
    };

    explicit process(const body &run) : process(options{}, run) {}
    process(const options &how, const body &run);
    process(const process &) = delete;
    process &operator=(const process &) = delete;
    ~process();

    pid_t pid() const { return pid_; }
    channel &conversation() { return channel_; }
    void kill_now();
    /// The answer of the body, or how the process died.
    std::string join();

private:
    pid_t pid_ = -1;
    channel channel_;
};

/// Runs `body` in a child and returns its answer.
std::string in_child(const process::options &how, const process::body &run);

/// For the body of a child: returns a text that names the failed condition.
std::string failed(const char *expression, int line);
#define CHILD_EXPECT(condition)                                                \
    do {                                                                       \
        if (!(condition))                                                      \
            return ::guest::failed(#condition, __LINE__);                      \
    } while (false)

// --- fixture ---

/// Loads the module for each test. Expects at the end that it unloads and
/// leaves nothing.
class driver_test : public ::testing::Test
{
protected:
    explicit driver_test(std::string parameters = "")
        : parameters_(std::move(parameters))
    {}
    void SetUp() override;
    void TearDown() override;

    /// Reloads the module with other parameters; no node may be open.
    void reload(const std::string &parameters);

    descriptor control;

private:
    std::string parameters_;
};

} // namespace guest

// SPDX-License-Identifier: LGPL-2.1-or-later
// The real library behind this one: finding it, and its symbols.
#include "forward.hpp"

#include "glibc.hpp"
#include "message.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Any library of this project that stands in front of another one has it.
extern "C" {
[[gnu::visibility("default")]] extern const int emuv_stands_in_front;
const int emuv_stands_in_front = 1;
}

namespace emuv::cuda {

namespace {

constexpr const char *names[] = {
#define EMUV_SYMBOL(name) #name,
#include "symbols.inc"
};

using open_library = void *(*)(const char *, int);
std::atomic<open_library> next_dlopen;
std::atomic<void *> found_library;
std::atomic<bool> looked;
std::mutex look_lock;
// This thread is in the driver's own constructors.
constinit thread_local bool looking [[gnu::tls_model("initial-exec")]] = false;

open_library real_dlopen()
{
    open_library next = next_dlopen.load(std::memory_order_acquire);
    if (next == nullptr) {
        next = reinterpret_cast<open_library>(dlsym(RTLD_NEXT, "dlopen"));
        next_dlopen.store(next, std::memory_order_release);
    }
    return next;
}

// Opens a library by its full path, unless it is one of ours: this one again,
// or another build of it.
void *open_path(const char *path)
{
    struct statx file;
    if (statx(AT_FDCWD, path, 0, STATX_TYPE, &file) == -1 ||
        !S_ISREG(file.stx_mode))
        return nullptr;
    void *handle = real_dlopen()(path, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr && dlsym(handle, "emuv_stands_in_front") != nullptr)
        return nullptr;
    return handle;
}

// Folders with other libcuda's: what links without a driver, and what replaces
// the driver's own only where the user says so.
bool is_no_driver_folder(std::string_view folder)
{
    return folder.find("/stubs") != std::string_view::npos ||
           folder.find("/compat") != std::string_view::npos;
}

void *open_in(std::string_view folder)
{
    char path[PATH_MAX];
    if (folder.empty() || folder.front() != '/' ||
        folder.size() + sizeof "/" EMUV_SONAME > sizeof path ||
        is_no_driver_folder(folder))
        return nullptr;
    std::memcpy(path, folder.data(), folder.size());
    std::memcpy(path + folder.size(), "/" EMUV_SONAME, sizeof "/" EMUV_SONAME);
    return open_path(path);
}

void *open_in_folders(const char *folders)
{
    std::string_view rest = folders != nullptr ? folders : "";
    while (!rest.empty()) {
        const auto end = rest.find_first_of(":;");
        void *handle = open_in(rest.substr(0, end));
        if (handle != nullptr || end == std::string_view::npos)
            return handle;
        rest.remove_prefix(end + 1);
    }
    return nullptr;
}

// ld.so.cache: a header, entries, and the strings they point to from the
// header's start. Older files have another header of another layout before it.
struct cache_header
{
    char magic[20];
    std::uint32_t entries;
    std::uint32_t string_bytes;
    std::uint32_t unused[5];
};
struct cache_entry
{
    std::int32_t flags;
    std::uint32_t name;
    std::uint32_t path;
    std::uint32_t os_version;
    std::uint64_t hardware;
};

void *open_from_cache(const char *bytes, std::size_t length)
{
    constexpr std::string_view magic = "glibc-ld.so.cache1.1";
#if defined(__x86_64__)
    constexpr int machine = 0x0303;
#else
    constexpr int machine = 0x0a03;
#endif
    const std::string_view whole(bytes, length);
    const auto start = whole.find(magic);
    if (start == std::string_view::npos ||
        length - start < sizeof(cache_header))
        return nullptr;
    const std::string_view cache = whole.substr(start);
    cache_header header;
    std::memcpy(&header, cache.data(), sizeof header);
    const auto text = [cache](std::uint32_t at) {
        const auto tail = cache.substr(at < cache.size() ? at : cache.size());
        const auto end = tail.find('\0');
        return end == std::string_view::npos ? std::string_view()
                                             : tail.substr(0, end);
    };
    for (std::uint32_t i = 0; i < header.entries; i++) {
        const std::size_t at = sizeof header + i * sizeof(cache_entry);
        if (at + sizeof(cache_entry) > cache.size())
            break;
        cache_entry entry;
        std::memcpy(&entry, cache.data() + at, sizeof entry);
        if (entry.flags != machine || text(entry.name) != EMUV_SONAME)
            continue;
        const std::string_view path = text(entry.path);
        if (path.empty() || is_no_driver_folder(path))
            continue;
        if (void *handle = open_path(path.data()))
            return handle;
    }
    return nullptr;
}

void *open_from_cache()
{
    const int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return nullptr;
    void *handle = nullptr;
    const off_t length = lseek(fd, 0, SEEK_END);
    if (length > 0) {
        const auto bytes = static_cast<std::size_t>(length);
        void *at = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at != MAP_FAILED) {
            handle = open_from_cache(static_cast<const char *>(at), bytes);
            munmap(at, bytes);
        }
    }
    close(fd);
    return handle;
}

void *find_library()
{
    if (const char *named = std::getenv(EMUV_REAL_SETTING);
        named != nullptr && *named != '\0') {
        void *handle = open_path(named);
        if (handle == nullptr)
            say(EMUV_REAL_SETTING "=%s is not a driver library", named);
        return handle;
    }
    if (void *handle = open_in_folders(std::getenv("LD_LIBRARY_PATH")))
        return handle;
    if (void *handle = open_from_cache())
        return handle;
    return open_in_folders(
#if defined(__x86_64__)
        "/usr/lib/x86_64-linux-gnu:"
#else
        "/usr/lib/aarch64-linux-gnu:"
#endif
        "/usr/lib64:/usr/local/nvidia/lib64:/usr/lib/wsl/lib:/usr/lib");
}

} // namespace

void *real_library()
{
    if (!looked.load(std::memory_order_acquire)) {
        const std::lock_guard guard(look_lock);
        if (!looked.load(std::memory_order_relaxed)) {
            const int kept = errno;
            looking = true;
            found_library.store(find_library(), std::memory_order_relaxed);
            looking = false;
            looked.store(true, std::memory_order_release);
            errno = kept;
        }
    }
    return found_library.load(std::memory_order_relaxed);
}

void *real_address(const char *name)
{
    void *library = real_library();
    return library != nullptr ? dlsym(library, name) : nullptr;
}

void forward_after_fork()
{
    new (&look_lock) std::mutex;
}

} // namespace emuv::cuda

// What the forwarders call, under names that assembly can write.
extern "C" {
static int answer_absent()
{
    return EMUV_ANSWER_ABSENT;
}
static int answer_no_library()
{
    return EMUV_ANSWER_NO_LIBRARY;
}

void *emuv_resolve(unsigned index);
void *emuv_resolve(unsigned index)
{
    using namespace emuv::cuda;
    void *address = real_address(names[index]);
    if (address == nullptr)
        address = reinterpret_cast<void *>(
            real_library() != nullptr ? answer_absent : answer_no_library);
    __atomic_store_n(&emuv_table[index], address, __ATOMIC_RELAXED);
    return address;
}

int emuv_refuse(unsigned index);
int emuv_refuse(unsigned index)
{
    static std::atomic<bool> said;
    if (!said.exchange(true))
        emuv::cuda::say("%s refused: the interface of CUDA 3.1 and before "
                        "would hand out memory behind the limits",
                        emuv::cuda::names[index]);
    return EMUV_ANSWER_ABSENT;
}

#ifdef EMUV_INTERPOSES_DLOPEN
// The name that a dlopen() goes on with. A program may open the driver by
// its full path or without the ".1", past the SONAME that this library
// has; either must find this library. The driver itself gets what it asks
// for.
const char *emuv_dlopen_name(const char *file, const void *caller);
const char *emuv_dlopen_name(const char *file, const void *caller)
{
    using namespace emuv::cuda;
    if (file == nullptr || looking)
        return file;
    const char *slash = std::strrchr(file, '/');
    const std::string_view name = slash != nullptr ? slash + 1 : file;
    if (name != EMUV_SONAME && name != EMUV_LINK_NAME)
        return file;
    if (real_library() == nullptr) // the error it would have got
        return slash != nullptr ? file : EMUV_SONAME " (no NVIDIA driver)";
    Dl_info from;
    Dl_info real;
    if (dladdr(caller, &from) != 0 &&
        dladdr(real_address("cuInit"), &real) != 0 &&
        from.dli_fbase == real.dli_fbase)
        return file;
    return EMUV_SONAME;
}

void *emuv_dlopen_next();
void *emuv_dlopen_next()
{
    return reinterpret_cast<void *>(emuv::cuda::real_dlopen());
}
#endif
}

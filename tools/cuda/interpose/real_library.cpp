// SPDX-License-Identifier: LGPL-2.1-or-later
// Finding the libraries that this project's stand in front of.
#include "interpose/real_library.hpp"

#include "base/file_status.hpp"
#include "base/glibc.hpp"
#include "interpose/message.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

// The mark of any library of this project that stands in front of another one.
extern "C" {
[[gnu::visibility("default")]] extern const int emuv_stands_in_front;
const int emuv_stands_in_front = 1;
}

namespace emuv::cuda {

namespace {

std::atomic<open_library> found_dlopen;

// Opens a library by its full path, unless it is one of ours: this one again,
// or another build of it.
void *open_path(const char *path)
{
    struct stat file = {};
    if (!status_of(AT_FDCWD, path, file, 0) || !S_ISREG(file.st_mode))
        return nullptr;
    void *handle = next_dlopen()(path, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr && dlsym(handle, "emuv_stands_in_front") != nullptr)
        return nullptr;
    return handle;
}

// True for folders with other libcuda's: stubs for linking without a driver,
// and replacements of the driver's own that only the user may choose.
bool is_no_driver_folder(std::string_view folder)
{
    return folder.find("/stubs") != std::string_view::npos ||
           folder.find("/compat") != std::string_view::npos;
}

void *open_in(std::string_view folder, std::string_view soname)
{
    char path[PATH_MAX];
    if (folder.empty() || folder.front() != '/' ||
        folder.size() + 1 + soname.size() >= sizeof path ||
        is_no_driver_folder(folder))
        return nullptr;
    char *end = path;
    for (const std::string_view each : {folder, std::string_view("/"), soname})
        end = static_cast<char *>(mempcpy(end, each.data(), each.size()));
    *end = '\0';
    return open_path(path);
}

void *open_in_folders(const char *folders, std::string_view soname)
{
    std::string_view rest = folders != nullptr ? folders : "";
    while (!rest.empty()) {
        const auto end = rest.find_first_of(":;");
        void *handle = open_in(rest.substr(0, end), soname);
        if (handle != nullptr || end == std::string_view::npos)
            return handle;
        rest.remove_prefix(end + 1);
    }
    return nullptr;
}

// ld.so.cache: a header, libraries, and the strings they point to from the
// header's start. Older files have another header of another layout before it.
struct cache_header
{
    char magic[20];
    std::uint32_t libraries;
    std::uint32_t string_bytes;
    std::uint32_t unused[5];
};
struct cached_library
{
    std::int32_t flags;
    std::uint32_t name;
    std::uint32_t path;
    std::uint32_t os_version;
    std::uint64_t hardware;
};

void *open_from_cache(const char *bytes, std::size_t length,
                      std::string_view soname)
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
    for (std::uint32_t i = 0; i < header.libraries; i++) {
        const std::size_t at = sizeof header + i * sizeof(cached_library);
        if (at + sizeof(cached_library) > cache.size())
            break;
        cached_library library;
        std::memcpy(&library, cache.data() + at, sizeof library);
        if (library.flags != machine || text(library.name) != soname)
            continue;
        const std::string_view path = text(library.path);
        if (path.empty() || is_no_driver_folder(path))
            continue;
        if (void *handle = open_path(path.data()))
            return handle;
    }
    return nullptr;
}

void *open_from_cache(std::string_view soname)
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
            handle =
                open_from_cache(static_cast<const char *>(at), bytes, soname);
            munmap(at, bytes);
        }
    }
    close(fd);
    return handle;
}

} // namespace

open_library next_dlopen()
{
    open_library next = found_dlopen.load(std::memory_order_acquire);
    if (next == nullptr) {
        next = reinterpret_cast<open_library>(dlsym(RTLD_NEXT, "dlopen"));
        found_dlopen.store(next, std::memory_order_release);
    }
    return next;
}

void *find_library(const char *soname, const char *setting)
{
    if (const char *named = std::getenv(setting);
        named != nullptr && *named != '\0') {
        void *handle = open_path(named);
        if (handle == nullptr)
            say("%s=%s is not a driver library", setting, named);
        return handle;
    }
    if (void *handle = open_in_folders(std::getenv("LD_LIBRARY_PATH"), soname))
        return handle;
    if (void *handle = open_from_cache(soname))
        return handle;
    return open_in_folders(
#if defined(__x86_64__)
        "/usr/lib/x86_64-linux-gnu:"
#else
        "/usr/lib/aarch64-linux-gnu:"
#endif
        "/usr/lib64:/usr/local/nvidia/lib64:/usr/lib/wsl/lib:/usr/lib",
        soname);
}

} // namespace emuv::cuda

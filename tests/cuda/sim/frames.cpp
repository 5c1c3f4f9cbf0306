// SPDX-License-Identifier: GPL-2.0-or-later
// Physical memory as runs of a memfd.
#include "frames.hpp"

#include "state.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sim {

namespace {

// A card's memory is no file, so no soft limit of files' sizes holds for it.
bool set_length(int fd, std::size_t bytes)
{
    rlimit before = {};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit none = {before.rlim_max, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    const bool set = ftruncate(fd, static_cast<off_t>(bytes)) == 0;
    setrlimit(RLIMIT_FSIZE, &before);
    return set;
}

int make_file(const char *name, std::size_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || !set_length(fd, bytes)) {
        std::perror("simulated CUDA driver: memfd");
        std::abort();
    }
    return fd;
}

// Frames of the host that keep their pages while they are free.
constexpr std::size_t kept = 32;

// A file of its own is told from others by its name in /proc.
constexpr char exported_device[] = "emuv-sim-device-";
constexpr char exported_host[] = "emuv-sim-host";

} // namespace

bool map_at(std::uintptr_t address, std::size_t bytes, int protection,
            int flags, int fd, std::size_t offset)
{
    return syscall(SYS_mmap, address, bytes, protection, flags | MAP_FIXED, fd,
                   offset) != -1;
}

frame_store::frame_store(const char *name, std::size_t frames, bool give_back)
    : fd_(make_file(name, frames * frame_bytes)), capacity_(frames),
      give_back_(give_back)
{}

frame_store::~frame_store()
{
    close(fd_);
}

bool frame_store::charge(std::size_t count)
{
    if (count > capacity_ - used_)
        return false;
    used_ += count;
    return true;
}

bool frame_store::take(std::size_t count, std::vector<std::uint32_t> &out)
{
    if (!charge(count))
        return false;
    out.reserve(count);
    while (out.size() < count && !free_.empty()) {
        out.push_back(free_.back());
        free_.pop_back();
    }
    while (out.size() < count)
        out.push_back(next_++);
    std::sort(out.begin(), out.end());
    return true;
}

void frame_store::give(const std::vector<std::uint32_t> &frames)
{
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
        free_.push_back(*frame);
        if (give_back_ && free_.size() > kept)
            fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(*frame * frame_bytes),
                      static_cast<off_t>(frame_bytes));
    }
    used_ -= frames.size();
}

physical::physical(frame_store &store, std::size_t bytes,
                   const CUmemAllocationProp &prop)
    : store_(store), bytes_(bytes), prop_(prop), id_(the().next_id())
{}

std::shared_ptr<physical> physical::create(frame_store &store,
                                           std::size_t bytes,
                                           const CUmemAllocationProp &prop)
{
    std::shared_ptr<physical> made(new physical(store, bytes, prop));
    const std::size_t count = bytes / frame_bytes;
    if (prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        if (!store.charge(count)) {
            made->bytes_ = 0;
            return nullptr;
        }
        char name[40];
        if (made->on_device())
            std::snprintf(name, sizeof name, "%s%d", exported_device,
                          prop.location.id);
        else
            std::snprintf(name, sizeof name, "%s", exported_host);
        made->file_ = make_file(name, bytes);
    } else if (!store.take(count, made->frames_)) {
        made->bytes_ = 0;
        return nullptr;
    }
    return made;
}

std::shared_ptr<physical> physical::import(int fd)
{
    char link[64], name[128];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    struct stat info;
    if (length < 0 || fstat(fd, &info) != 0)
        return nullptr;
    name[length] = '\0';

    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    frame_store *store = &the().host;
    if (const char *at = std::strstr(name, exported_device)) {
        prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        prop.location.id = std::atoi(at + sizeof exported_device - 1);
        device *owner = the().device_at(prop.location.id);
        if (!owner)
            return nullptr;
        store = &owner->vram;
    } else if (std::strstr(name, exported_host)) {
        prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    } else {
        return nullptr;
    }

    for (const auto &known : the().exported) {
        struct stat other;
        auto memory = known.lock();
        if (memory && fstat(memory->file(), &other) == 0 &&
            other.st_ino == info.st_ino && other.st_dev == info.st_dev)
            return memory;
    }
    const auto bytes = static_cast<std::size_t>(info.st_size);
    std::shared_ptr<physical> made(new physical(*store, bytes, prop));
    if (!store->charge(bytes / frame_bytes)) {
        made->bytes_ = 0;
        return nullptr;
    }
    made->file_ = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    the().exported.push_back(made);
    return made;
}

physical::~physical()
{
    if (file_ >= 0) {
        close(file_);
        store_.uncharge(bytes_ / frame_bytes);
    } else if (!frames_.empty()) {
        store_.give(frames_);
    }
}

bool physical::map(std::uintptr_t address, std::size_t bytes,
                   int protection) const
{
    if (file_ >= 0)
        return map_at(address, bytes, protection, MAP_SHARED, file_);

    const std::size_t count = bytes / frame_bytes;
    for (std::size_t first = 0; first < count;) {
        std::size_t end = first + 1;
        while (end < count && frames_[end] == frames_[end - 1] + 1)
            ++end;
        if (!map_at(address + first * frame_bytes, (end - first) * frame_bytes,
                    protection, MAP_SHARED, store_.fd(),
                    frames_[first] * frame_bytes))
            return false;
        first = end;
    }
    return true;
}

} // namespace sim

// SPDX-License-Identifier: LGPL-2.1-or-later
// The page on which a process publishes where its time goes.
#include "base/statistics.hpp"

#include "base/file_length.hpp"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

constexpr unsigned memfd_flags = 3;    // MFD_CLOEXEC, MFD_ALLOW_SEALING
constexpr unsigned most_programs = 64; // that one process becomes

// Nobody can shorten the file: whoever did would end the process at its next
// word there. From Linux 5.1 on, nobody else can write to it, either.
void seal(int fd)
{
    constexpr int size = F_SEAL_SHRINK | F_SEAL_GROW;
    constexpr int no_other_writer = 0x10; // F_SEAL_FUTURE_WRITE
    if (::fcntl(fd, F_ADD_SEALS, size | no_other_writer | F_SEAL_SEAL) != 0)
        ::fcntl(fd, F_ADD_SEALS, size | F_SEAL_SEAL);
}

// @return null with errno
void *map(int fd, std::size_t bytes)
{
    void *const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at != MAP_FAILED ? at : nullptr;
}

// @return null with errno
void *map_anonymous(std::size_t bytes)
{
    const int fd = static_cast<int>(
        syscall(SYS_memfd_create, statistics_name, memfd_flags));
    if (fd < 0)
        return nullptr;
    if (set_length(fd, bytes))
        if (void *const at = map(fd, bytes)) {
            seal(fd);
            return at;
        }
    const int error = errno;
    ::close(fd);
    errno = error;
    return nullptr;
}

// Opens a file of this process's that is not there yet.
// @param path  out
int make_file(const char *stem, char (&path)[PATH_MAX])
{
    for (unsigned i = 0; i < most_programs; i++) {
        const int length =
            i == 0 ? std::snprintf(path, sizeof path, "%s.%d", stem, ::getpid())
                   : std::snprintf(path, sizeof path, "%s.%d.%u", stem,
                                   ::getpid(), i);
        if (length < 0 || length >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd =
            ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

// Takes the storage now: a full file system would end the process later.
bool take_storage(int fd, std::size_t bytes)
{
    for (;;) {
        if (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ||
            errno == EOPNOTSUPP)
            return true;
        if (errno != EINTR) // tmpfs gives way to any signal
            return false;
    }
}

// @return null with errno
void *map_named(const char *stem, std::size_t bytes)
{
    char path[PATH_MAX];
    const int fd = make_file(stem, path);
    if (fd < 0)
        return nullptr;
    if (set_length(fd, bytes) && take_storage(fd, bytes))
        if (void *const at = map(fd, bytes))
            return at;
    const int error = errno;
    ::close(fd);
    ::unlink(path);
    errno = error;
    return nullptr;
}

} // namespace

int statistics_page::open(unsigned devices, const char *stem)
{
    const std::size_t bytes =
        sizeof(statistics_head) + devices * sizeof(device_statistics);
    void *at = stem != nullptr ? map_named(stem, bytes) : map_anonymous(bytes);
    const int error = at != nullptr ? 0 : errno;
    if (at == nullptr && stem != nullptr)
        at = map_anonymous(bytes);
    if (at == nullptr)
        at = std::calloc(1, bytes);
    if (at == nullptr)
        return error;
    head_ = new (at) statistics_head;
    for (unsigned i = 0; i < devices; i++)
        new (&device(i)) device_statistics;
    head_->version = statistics_head::right_version;
    head_->head_bytes = sizeof(statistics_head);
    head_->device_bytes = sizeof(device_statistics);
    head_->devices = devices;
    head_->pid = static_cast<std::int32_t>(::getpid());
    // Last: a page without it is not whole.
    std::atomic_ref(head_->magic)
        .store(statistics_head::right_magic, std::memory_order_release);
    return error;
}

void statistics_page::vain(const char *text)
{
    if (head_ == nullptr)
        return;
    for (auto &each : head_->vain)
        if (each[0] == '\0') {
            copy_text(each, text);
            return;
        }
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// The page on which a process publishes where its time goes.
#include "base/statistics.hpp"

#include <cerrno>
#include <cstdlib>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

constexpr unsigned cloexec = 1; // MFD_CLOEXEC

// @return null with errno
void *map_file(const char *path, std::size_t bytes)
{
    const int fd =
        path != nullptr
            ? ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
            : static_cast<int>(
                  syscall(SYS_memfd_create, statistics_name, cloexec));
    if (fd < 0)
        return nullptr;
    void *at = MAP_FAILED;
    if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0)
        at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    // Others find an anonymous file by its descriptor.
    if (at == MAP_FAILED || path != nullptr) {
        const int error = errno;
        ::close(fd);
        errno = error;
    }
    return at != MAP_FAILED ? at : nullptr;
}

} // namespace

int statistics_page::open(unsigned devices, const char *path)
{
    const std::size_t bytes =
        sizeof(statistics_head) + devices * sizeof(device_statistics);
    void *at = map_file(path, bytes);
    const int error = at != nullptr ? 0 : errno;
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

// SPDX-License-Identifier: LGPL-2.1-or-later
// A file without a name, for memory that has no room in system RAM.
#include "store/file_store.hpp"

#include "base/file_status.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

int without_direct(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags & ~O_DIRECT);
}

// Programs close the low ones that they do not know.
int raised(int fd)
{
    rlimit most = {};
    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &most) != 0)
        return fd;
    const rlim_t high = std::min<rlim_t>(most.rlim_cur, 1 << 16) / 4 * 3;
    const int made = fcntl(fd, F_DUPFD_CLOEXEC, static_cast<int>(high));
    if (made < 0)
        return fd;
    ::close(fd);
    return made;
}

} // namespace

const file_calls system_file_calls = {
    .open =
        [](const char *folder, int flags) {
            return raised(::open(folder, flags, S_IRUSR | S_IWUSR));
        },
    .close = ::close,
    .pread = [](int fd, void *to, std::size_t bytes,
                std::int64_t offset) { return ::pread(fd, to, bytes, offset); },
    .pwrite =
        [](int fd, const void *from, std::size_t bytes, std::int64_t offset) {
            return ::pwrite(fd, from, bytes, offset);
        },
    .buffer = without_direct,
    .identify =
        [](int fd, file_identity &is) {
            struct stat status = {};
            if (!status_of(fd, status))
                return false;
            is = {status.st_dev, status.st_ino};
            return true;
        },
    .keep = [](int fd) -> void * {
        void *const made =
            mmap(nullptr, file_store::alignment, PROT_NONE, MAP_SHARED, fd, 0);
        if (made == MAP_FAILED)
            return nullptr;
        madvise(made, file_store::alignment, MADV_DONTFORK);
        return made;
    },
    .let_go = [](void *kept) { munmap(kept, file_store::alignment); },
};

file_store::~file_store()
{
    if (kept_ != nullptr)
        calls_.let_go(kept_);
    close_after_fork();
}

// True if the descriptor is of this file still.
bool file_store::is_open() const
{
    file_identity now;
    return fd_ >= 0 && calls_.identify(fd_, now) && now == which_;
}

int file_store::open(const char *folder, std::uint64_t bytes)
{
    // Beyond its limit a write would end the process (SIGXFSZ).
    rlimit most = {};
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && bytes > most.rlim_cur)
        return EFBIG;
    constexpr int flags = O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL;
    fd_ = calls_.open(folder, flags | O_DIRECT);
    direct_ = fd_ >= 0;
    if (fd_ < 0 && errno == EINVAL)
        fd_ = calls_.open(folder, flags);
    if (fd_ < 0)
        return errno == EISDIR ? EOPNOTSUPP : errno; // as old kernels have it
    if (!calls_.identify(fd_, which_))
        return errno;
    kept_ = calls_.keep(fd_);
    if (kept_ == nullptr)
        return errno;
    bytes_ = bytes;
    const std::lock_guard guard(lock_);
    if (bytes > 0)
        gaps_[0] = bytes;
    return 0;
}

// From the begin of the file on, so that it grows no more than it has to.
std::uint64_t file_store::take(std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    std::uint64_t free = 0;
    for (const auto &[offset, size] : gaps_)
        free += size;
    if (bytes == 0 || free < bytes)
        return 0;
    taken made;
    while (bytes > 0) {
        const auto first = gaps_.begin();
        const extent gap{first->first, first->second};
        const std::uint64_t part = std::min(gap.bytes, bytes);
        gaps_.erase(first);
        if (part < gap.bytes)
            gaps_[gap.offset + part] = gap.bytes - part;
        made.where.push_back({gap.offset, part});
        bytes -= part;
    }
    taken_[++last_number_] = std::move(made);
    return last_number_;
}

// Under the lock.
void file_store::put_back(const extent &gone)
{
    extent gap = gone;
    const auto after = gaps_.lower_bound(gap.offset);
    if (after != gaps_.end() && after->first == gap.offset + gap.bytes) {
        gap.bytes += after->second;
        gaps_.erase(after);
    }
    auto before = gaps_.lower_bound(gap.offset);
    if (before != gaps_.begin()) {
        --before;
        if (before->first + before->second == gap.offset) {
            before->second += gap.bytes;
            return;
        }
    }
    gaps_[gap.offset] = gap.bytes;
}

void file_store::give(std::uint64_t number)
{
    const std::lock_guard guard(lock_);
    const auto gone = taken_.extract(number);
    if (gone.empty())
        return;
    for (const extent &each : gone.mapped().where)
        put_back(each);
}

// The parts of the file that hold a piece, in order; none where the place does
// not reach so far.
std::vector<file_store::extent> file_store::parts_of(std::uint64_t number,
                                                     std::uint64_t at,
                                                     std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    std::vector<extent> parts;
    const auto found = taken_.find(number);
    if (found == taken_.end())
        return parts;
    for (const extent &each : found->second.where) {
        if (at >= each.bytes) {
            at -= each.bytes;
            continue;
        }
        const std::uint64_t part = std::min(each.bytes - at, bytes);
        if (part > 0)
            parts.push_back({each.offset + at, part});
        bytes -= part;
        at = 0;
    }
    return bytes == 0 ? parts : std::vector<extent>();
}

// @param some  moves some bytes, from an offset of the piece on
// @return 0 or an errno
template <typename Transfer>
int file_store::transfer(const extent &where, Transfer some)
{
    for (std::uint64_t done = 0; done < where.bytes;) {
        if (!is_open())
            return EBADF;
        const bool was_direct = is_direct();
        const ssize_t moved =
            some(where.offset + done, done, where.bytes - done);
        if (moved > 0) {
            done += static_cast<std::uint64_t>(moved);
            // Only the end of a file, or of a disk, cuts a piece there.
            if (done < where.bytes && done % alignment != 0)
                return EIO;
        } else if (moved == 0) {
            return EIO;
        } else if (errno == EINVAL && was_direct) {
            // The file system takes the flag, and refuses what it asks for.
            if (calls_.buffer(fd_) != 0)
                return EINVAL;
            direct_ = false;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

int file_store::write(std::uint64_t number, std::uint64_t at, const void *from,
                      std::uint64_t bytes)
{
    const std::vector<extent> parts = parts_of(number, at, bytes);
    const char *next = static_cast<const char *>(from);
    for (const extent &each : parts) {
        const int error =
            transfer(each, [&](std::uint64_t offset, std::uint64_t done,
                               std::uint64_t left) {
                return calls_.pwrite(fd_, next + done, left,
                                     static_cast<std::int64_t>(offset));
            });
        if (error != 0)
            return error;
        next += each.bytes;
    }
    return parts.empty() ? EINVAL : 0;
}

int file_store::read(std::uint64_t number, std::uint64_t at, void *to,
                     std::uint64_t bytes)
{
    const std::vector<extent> parts = parts_of(number, at, bytes);
    char *next = static_cast<char *>(to);
    for (const extent &each : parts) {
        const int error =
            transfer(each, [&](std::uint64_t offset, std::uint64_t done,
                               std::uint64_t left) {
                return calls_.pread(fd_, next + done, left,
                                    static_cast<std::int64_t>(offset));
            });
        if (error != 0)
            return error;
        next += each.bytes;
    }
    return parts.empty() ? EINVAL : 0;
}

void file_store::note(std::uint64_t number, const content_digest::value &sum)
{
    const std::lock_guard guard(lock_);
    const auto found = taken_.find(number);
    if (found != taken_.end())
        found->second.sum = sum;
}

content_digest::value file_store::noted(std::uint64_t number)
{
    const std::lock_guard guard(lock_);
    const auto found = taken_.find(number);
    return found != taken_.end() ? found->second.sum : content_digest::value{};
}

void file_store::close_after_fork()
{
    if (is_open()) // else the number is another file's, or none
        calls_.close(fd_);
    fd_ = -1;
}

} // namespace emuv::cuda

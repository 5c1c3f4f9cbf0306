// SPDX-License-Identifier: LGPL-2.1-or-later
// Writes a tape to its file, whole records at a time.
#include "record/writer.hpp"

#include "base/thread.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace emuv::cuda {

tape_writer::~tape_writer()
{
    close();
}

int tape_writer::open(const char *path)
{
    if (std::strlen(path) > sizeof path_ - 24)
        return ENAMETOOLONG;
    std::strcpy(path_, path);
    file_ = ::open(path_, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file_ < 0)
        return errno;
    // The lock is kept as long as the file is open: it tells others that
    // somebody writes. A file system without locks has none of that.
    int busy = 0;
    do
        busy = flock(file_, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    while (busy == EINTR);
    if (busy == EWOULDBLOCK || lseek(file_, 0, SEEK_END) > 0) {
        ::close(file_);
        if (const int error = open_beside(path); error != 0)
            return error;
    }
    buffer_.reserve(kept_back * 2);
    buffer_.insert(buffer_.end(), tape::magic.begin(), tape::magic.end());
    number(tape::version);
    whole_ = buffer_.size();
    write_all();
    return failed_;
}

// Makes a file that there is not: PATH.PID, or PATH.PID.2 and so on. Others may
// know the name beforehand, so no link is followed.
int tape_writer::open_beside(const char *path)
{
    const int process = static_cast<int>(getpid());
    const std::size_t length = std::strlen(path);
    for (int number = 1; number <= 1000; number++) {
        std::snprintf(path_ + length, sizeof path_ - length,
                      number == 1 ? ".%d" : ".%d.%d", process, number);
        file_ = ::open(path_,
                       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND |
                           O_CLOEXEC,
                       0666);
        if (file_ >= 0) {
            flock(file_, LOCK_EX | LOCK_NB);
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return errno;
}

tape_writer &tape_writer::begin(tape::code what)
{
    buffer_.resize(whole_); // what was begun and not committed
    buffer_.push_back(static_cast<unsigned char>(what));
    return *this;
}

tape_writer &tape_writer::number(std::uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        buffer_.push_back(static_cast<unsigned char>(value | 0x80));
    buffer_.push_back(static_cast<unsigned char>(value));
    return *this;
}

tape_writer &tape_writer::text(const char *what)
{
    const std::size_t bytes =
        std::min(std::strlen(what), std::size_t{64} << 10);
    number(bytes);
    const auto *const from = reinterpret_cast<const unsigned char *>(what);
    buffer_.insert(buffer_.end(), from, from + bytes);
    return *this;
}

void tape_writer::commit()
{
    whole_ = buffer_.size();
    if (failed_ != 0 || file_ < 0) {
        buffer_.clear();
        whole_ = 0;
    } else if (whole_ >= kept_back) {
        write_all();
    }
}

void tape_writer::flush_after(std::uint64_t ns)
{
    buffer_.resize(whole_);
    if (whole_ > 0 && file_ >= 0 && failed_ == 0 &&
        (ns == 0 || now_ns() - flushed_at_ >= ns))
        write_all();
}

void tape_writer::write_all()
{
    if (written_ + whole_ > max_bytes)
        failed_ = EFBIG;
    std::size_t done = 0;
    while (done < whole_ && failed_ == 0) {
        const ssize_t some =
            ::write(file_, buffer_.data() + done, whole_ - done);
        if (some > 0)
            done += static_cast<std::size_t>(some);
        else if (some == 0)
            failed_ = ENOSPC;
        else if (errno != EINTR)
            failed_ = errno;
    }
    written_ += done;
    buffer_.clear();
    whole_ = 0;
    flushed_at_ = now_ns();
}

void tape_writer::close()
{
    if (file_ < 0)
        return;
    flush();
    ::close(file_);
    file_ = -1;
}

void tape_writer::close_after_fork()
{
    if (file_ >= 0)
        ::close(file_);
    file_ = -1;
}

} // namespace emuv::cuda

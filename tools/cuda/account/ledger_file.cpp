// SPDX-License-Identifier: LGPL-2.1-or-later
// The ledger of processes that share a file instead of an instance.
#include "account/ledger.hpp"
#include "base/file_length.hpp"

#include <cerrno>
#include <new>
#include <optional>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

constexpr std::uint64_t magic = 0x3167646c56756d65; // "emuVldg1"
constexpr unsigned row_count = 1024;
constexpr unsigned columns = 2 * max_devices;

// Locks are taken on bytes far behind the contents: they need no bytes there.
constexpr off_t update_byte = off_t{1} << 40;
constexpr off_t row_byte = update_byte + 1;

struct flock lock_of(off_t byte, short type)
{
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    return lock;
}

} // namespace

struct ledger_file::layout
{
    std::atomic<std::uint64_t> magic_word;
    std::atomic<std::uint64_t> rows_used; // no row at or behind it was taken
    std::atomic<std::uint64_t> rows[row_count][columns];
};

// Held while rows are compared with a limit, or change hands.
class ledger_file::update
{
public:
    explicit update(ledger_file &file) : file_(file), guard_(file.lock_)
    {
        if (!file_.shared_)
            return;
        auto lock = lock_of(update_byte, F_WRLCK);
        while (fcntl(file_.fd_, F_OFD_SETLKW, &lock) == -1 && errno == EINTR)
            ;
    }
    update(const update &) = delete;
    update &operator=(const update &) = delete;
    ~update()
    {
        if (!file_.shared_)
            return;
        auto lock = lock_of(update_byte, F_UNLCK);
        fcntl(file_.fd_, F_OFD_SETLK, &lock);
    }

private:
    ledger_file &file_;
    std::lock_guard<std::mutex> guard_;
};

ledger_file::~ledger_file()
{
    if (rows_ != nullptr)
        munmap(static_cast<void *>(rows_), sizeof *rows_);
    if (fd_ >= 0)
        close(fd_);
}

int ledger_file::open(const char *path)
{
    shared_ = path != nullptr;
    off_t length = 0;
    int flags = MAP_SHARED;
    std::optional<update> guard;
    if (shared_) {
        fd_ = ::open(path, O_RDWR | O_CLOEXEC);
        if (fd_ < 0)
            return errno;
        guard.emplace(*this);
        length = lseek(fd_, 0, SEEK_END);
        if (length != 0 && length != static_cast<off_t>(sizeof(layout)))
            return EINVAL;
        if (length == 0 && !set_length(fd_, sizeof(layout)))
            return errno;
    } else {
        flags = MAP_PRIVATE | MAP_ANONYMOUS;
    }
    void *at =
        mmap(nullptr, sizeof(layout), PROT_READ | PROT_WRITE, flags, fd_, 0);
    if (at == MAP_FAILED)
        return errno;
    rows_ = static_cast<layout *>(at);
    if (length == 0)
        rows_->magic_word = magic;
    else if (rows_->magic_word != magic)
        return EINVAL;
    for (row_ = 0; row_ < row_count; row_++) {
        auto lock = lock_of(row_byte + static_cast<off_t>(row_), F_WRLCK);
        if (shared_ && fcntl(fd_, F_OFD_SETLK, &lock) == -1)
            continue;
        for (auto &column : rows_->rows[row_])
            column = 0;
        if (rows_->rows_used <= row_)
            rows_->rows_used = row_ + 1;
        return 0;
    }
    return ENOSPC;
}

std::uint64_t ledger_file::sum(unsigned column) const
{
    std::uint64_t total = 0;
    const std::uint64_t used = rows_->rows_used;
    for (std::uint64_t row = 0; row < used && row < row_count; row++)
        total += rows_->rows[row][column];
    return total;
}

void ledger_file::drop_dead_rows()
{
    const std::uint64_t used = rows_->rows_used;
    for (unsigned row = 0; shared_ && row < used && row < row_count; row++) {
        if (row == row_)
            continue;
        auto lock = lock_of(row_byte + static_cast<off_t>(row), F_WRLCK);
        if (fcntl(fd_, F_OFD_GETLK, &lock) == -1 || lock.l_type != F_UNLCK)
            continue;
        for (auto &column : rows_->rows[row])
            column = 0;
    }
}

bool ledger_file::charge(unsigned column, std::uint64_t bytes,
                         std::uint64_t limit)
{
    const update guard(*this);
    const auto fits = [&] {
        const std::uint64_t total = sum(column);
        return total <= limit && bytes <= limit - total;
    };
    if (!fits()) {
        drop_dead_rows();
        if (!fits())
            return false;
    }
    rows_->rows[row_][column] += bytes;
    return true;
}

void ledger_file::uncharge(unsigned column, std::uint64_t bytes)
{
    rows_->rows[row_][column] -= bytes;
}

std::uint64_t ledger_file::used(unsigned column)
{
    const update guard(*this);
    drop_dead_rows();
    return sum(column);
}

void ledger_file::close_after_fork()
{
    // Another thread of the parent may have held it.
    new (&lock_) std::mutex;
    if (rows_ != nullptr)
        munmap(static_cast<void *>(rows_), sizeof *rows_);
    if (fd_ >= 0)
        close(fd_);
    rows_ = nullptr;
    fd_ = -1;
}

bool file_ledger::take_physical(std::uint64_t bytes)
{
    return file_.charge(2 * device_, bytes, physical_bytes_);
}

void file_ledger::give_physical(std::uint64_t bytes)
{
    file_.uncharge(2 * device_, bytes);
}

bool file_ledger::take_virtual(std::uint64_t bytes, std::uint64_t &token)
{
    token = 0;
    return file_.charge(2 * device_ + 1, bytes, virtual_bytes_);
}

void file_ledger::give_virtual(std::uint64_t bytes, std::uint64_t)
{
    file_.uncharge(2 * device_ + 1, bytes);
}

usage file_ledger::read() const
{
    usage now;
    now.physical_bytes = physical_bytes_;
    now.virtual_bytes = virtual_bytes_;
    now.physical_used_bytes = file_.used(2 * device_);
    now.virtual_used_bytes = file_.used(2 * device_ + 1);
    return now;
}

} // namespace emuv::cuda

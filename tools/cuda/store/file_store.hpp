// SPDX-License-Identifier: LGPL-2.1-or-later
// A file without a name, for memory that has no room in system RAM.
#pragma once

#include "store/content_digest.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include <sys/types.h>

namespace emuv::cuda {

/// Which file a descriptor is of.
struct file_identity
{
    std::uint64_t device = 0;
    std::uint64_t number = 0;

    friend bool operator==(const file_identity &,
                           const file_identity &) = default;
};

/// The system calls that a file_store makes, so that tests can answer them.
/// They answer as the ones they are named after, with errno.
struct file_calls
{
    int (*open)(const char *folder, int flags);
    int (*close)(int fd);
    ssize_t (*pread)(int fd, void *to, std::size_t bytes, std::int64_t offset);
    ssize_t (*pwrite)(int fd, const void *from, std::size_t bytes,
                      std::int64_t offset);
    /// Takes O_DIRECT off a descriptor.
    int (*buffer)(int fd);
    /// @return whether the descriptor is open
    bool (*identify)(int fd, file_identity &is);
    /// Keeps a file, but for children, also once its descriptor is closed: else
    /// another one could come to be identified as it.
    /// @return null where that cannot be done
    void *(*keep)(int fd);
    void (*let_go)(void *kept);
};

/// The system calls themselves.
extern const file_calls system_file_calls;

/// A file of this process's own, in places for whole units. It has no name, so
/// nothing is left of it once the process has ended, however it ended. Data
/// pass the page cache by (O_DIRECT), unless the file system refuses that.
/// A program may close descriptors that it did not open, and its next file gets
/// the same number. So it is asked before each use which file it is of.
///
/// Every call may come from any thread. A place belongs to whoever took it: no
/// two threads use one at a time.
class file_store
{
public:
    /// Pieces are read and written from memory that begins at a multiple of
    /// this, and have such a size.
    static constexpr std::uint64_t alignment = 4096;

    explicit file_store(const file_calls &calls = system_file_calls)
        : calls_(calls)
    {}
    file_store(const file_store &) = delete;
    file_store &operator=(const file_store &) = delete;
    ~file_store();

    /// Makes the file. Once.
    /// @param folder  in the file system where it is to be
    /// @param bytes  at most, whole chunks
    /// @return 0 or an errno: EOPNOTSUPP where the file system has no files
    ///   without a name, EFBIG where RLIMIT_FSIZE is less than that
    int open(const char *folder, std::uint64_t bytes);

    std::uint64_t bytes() const { return bytes_; }
    /// True if data pass the page cache by.
    bool is_direct() const { return direct_; }

    /// Takes a place. No disk is used before it is written.
    /// @param bytes  whole chunks
    /// @return its number; 0 where the file has no room
    std::uint64_t take(std::uint64_t bytes);
    /// Gives a place back. 0 is none. Disk that it used serves the next ones.
    void give(std::uint64_t number);

    /// Writes a piece of a place, whole or not at all.
    /// @param at  offset into the place, a multiple of alignment
    /// @return 0 or an errno: ENOSPC where the disk is full, EIO where it took
    ///   less than it was given and says no more. EBADF where the program has
    ///   closed the file
    int write(std::uint64_t number, std::uint64_t at, const void *from,
              std::uint64_t bytes);
    /// Reads a piece that was written.
    /// @return 0 or an errno: EIO where the file is shorter than that
    int read(std::uint64_t number, std::uint64_t at, void *to,
             std::uint64_t bytes);

    /// The digest of all that was written to a place, for whoever took it.
    void note(std::uint64_t number, const content_digest::value &sum);
    content_digest::value noted(std::uint64_t number);

    /// In the child of a fork(): lets go of the file, which stays the parent's.
    void close_after_fork();

private:
    struct extent
    {
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
    };
    struct taken
    {
        std::vector<extent> where; // in order
        content_digest::value sum{};
    };

    std::vector<extent> parts_of(std::uint64_t number, std::uint64_t at,
                                 std::uint64_t bytes);
    void put_back(const extent &gone);
    bool is_open() const;
    template <typename Transfer>
    int transfer(const extent &where, Transfer some);

    const file_calls &calls_;
    int fd_ = -1;
    file_identity which_;
    void *kept_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::atomic<bool> direct_{false};

    std::mutex lock_;                             // guards all below
    std::map<std::uint64_t, std::uint64_t> gaps_; // bytes by offset
    std::map<std::uint64_t, taken> taken_;        // by number
    std::uint64_t last_number_ = 0;
};

} // namespace emuv::cuda

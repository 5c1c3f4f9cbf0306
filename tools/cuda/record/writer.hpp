// SPDX-License-Identifier: LGPL-2.1-or-later
// Writes a tape to its file, whole records at a time.
#pragma once

#include "record/format.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// A tape's file. It is a valid tape after each write, however the program
/// ends. For one thread at a time.
class tape_writer
{
public:
    /// No tape is longer than this, in bytes.
    static constexpr std::uint64_t max_bytes = std::uint64_t{4} << 30;

    tape_writer() = default;
    tape_writer(const tape_writer &) = delete;
    tape_writer &operator=(const tape_writer &) = delete;
    ~tape_writer();

    /// Opens the file, and writes the beginning of a tape. If the file has
    /// something in it already, or another process has it locked, that is
    /// another process's tape: this one's goes to "PATH.PID". If there is such
    /// a file, it goes to "PATH.PID.2" and so on. The file stays locked (flock)
    /// as long as it is open.
    /// @return 0 or an errno
    int open(const char *path);

    /// The file's path; after open().
    const char *path() const { return path_; }

    /// Begins a record.
    tape_writer &begin(tape::code what);
    /// Adds a number to it.
    tape_writer &number(std::uint64_t value);
    /// Adds text to it, of at most 64 KiB.
    tape_writer &text(const char *what);
    /// Ends the record. It reaches the file sometime, see flush_after().
    void commit();

    /// Writes what is kept back, if that is as old as @p ns nanoseconds.
    void flush_after(std::uint64_t ns);
    void flush() { flush_after(0); }

    /// Stops writing: the file is left as it is.
    void close();

    /// Why nothing more is written: 0, or an errno (EFBIG: max_bytes).
    int failed() const { return failed_; }

    /// For the child of a fork(), whose parent goes on writing.
    void close_after_fork();

private:
    int open_beside(const char *path);
    void write_all();

    static constexpr std::size_t kept_back = std::size_t{256} << 10;

    int file_ = -1;
    int failed_ = 0;
    char path_[4096] = "";
    std::uint64_t written_ = 0;
    std::uint64_t flushed_at_ = 0;
    std::size_t whole_ = 0; // bytes of the buffer that are whole records
    std::vector<unsigned char> buffer_;
};

} // namespace emuv::cuda

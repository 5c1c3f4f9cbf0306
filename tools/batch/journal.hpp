// SPDX-License-Identifier: GPL-2.0-or-later
// The journal of a batch: a line of JSON for each run of an item. By it a batch
// that was ended goes on where it was.
#pragma once

#include "batch/queue.hpp"

#include <emuv/unique_fd.hpp>

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace emuvctl::batch {

/// One run of an item.
struct entry
{
    std::string item;
    ending how = ending::done;
    int status = 0;     ///< exit status, or 128 and the signal
    std::string worker; ///< the instance that it ran on, or empty
    std::uint64_t share_bytes = 0;
    double seconds = 0;
};

/// "done", "failed", "out of memory", "lost".
const char *name_of(ending how);

/// The file. append() returns when its line is on the disk. A line that was
/// cut, by a crash of the machine or a full disk, is left out. Workers append
/// to it themselves, in their own processes.
class journal
{
public:
    /// None is kept.
    journal() = default;

    /// Opens a journal, or begins one.
    /// @throws std::system_error
    explicit journal(const std::string &path);

    [[nodiscard]] bool kept() const { return static_cast<bool>(file_); }

    /// Has it for this batch alone. It is let go of when this object and those
    /// of all workers are gone.
    /// @return false if another batch, or a worker of one, still has it
    /// @throws std::system_error
    [[nodiscard]] bool lock() const;

    /// Reads it. Begins it if it is empty, or its first line was cut.
    /// @param command  whose items these are
    /// @return the items that are done
    /// @throws std::runtime_error it is another command's, or no journal
    std::unordered_set<std::string>
    resume(const std::vector<std::string> &command) const;

    /// Appends a run. @throws std::system_error
    void append(const entry &one) const;

    /// True if it says that an item is done. @throws std::system_error
    [[nodiscard]] bool has_done(const std::string &item) const;

private:
    std::string path_;
    emuv::unique_fd file_;
};

} // namespace emuvctl::batch

// SPDX-License-Identifier: GPL-2.0-or-later
// A worker: a process that runs one item's program, passes on its words, and
// writes the end into the journal. It outlives the batch, so that an item whose
// program ended is never run again.
#pragma once

#include "batch/journal.hpp"

#include <emuv/unique_fd.hpp>

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace emuvctl::batch {

/// One run, as a worker is told of it.
struct job
{
    std::vector<std::string> command;
    std::vector<std::pair<std::string, std::string>> set; ///< variables
    std::vector<std::string> unset;                       ///< likewise
    std::string log; ///< the file for what it writes; empty: passed on
    int out = 1;     ///< where its output goes
    int err = 2;
    std::string before_out; ///< see relay; ahead of each line of its output
    std::string before_err;
    /// Exit statuses that mean out of memory.
    std::vector<int> memory_statuses;
    entry about; ///< item, instance and share, for the journal
};

/// The end of a run.
struct outcome
{
    ending how = ending::lost;
    int status = 0;  ///< exit status, or 128 and the signal
    int problem = 0; ///< errno, if the program could not be started
    int failure = 0; ///< errno, if the worker itself could not go on
    double seconds = 0;
};

/// A running worker. Its program ends with it, however it ends.
class worker
{
public:
    /// Starts one, in a process group of its own: the terminal's signals do not
    /// reach it.
    /// @throws std::system_error
    worker(const job &what, const journal &book);
    worker(worker &&) noexcept = default;
    worker &operator=(worker &&) noexcept = default;
    worker(const worker &) = delete;
    worker &operator=(const worker &) = delete;
    ~worker() = default;

    /// Readable once it has ended.
    [[nodiscard]] int fd() const { return results_.get(); }
    /// Its process.
    [[nodiscard]] pid_t pid() const { return pid_; }
    /// Waits for its end, and ends what a killed worker left behind.
    outcome finish();
    /// Asks its program to end, by SIGTERM.
    void ask_to_end() const;
    /// Ends it with all it runs; finish() then says that the item is lost.
    void end() const;

private:
    pid_t pid_ = -1;
    emuv::unique_fd results_;
};

} // namespace emuvctl::batch

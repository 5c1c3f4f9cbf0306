// SPDX-License-Identifier: GPL-2.0-or-later
// Runs a batch: feeds workers, tells how far it is, counts.
#pragma once

#include "batch/journal.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace emuvctl {

struct environment;

using variables = std::vector<std::pair<std::string, std::string>>;

/// One of a batch's workers, as it is set up.
struct batch_worker
{
    std::string instance; ///< "emuv0", or empty with limits of its own
    variables set;        ///< of its programs
    /// The shares of memory that it can give, rising: all that its instance
    /// has, or what --virtual and --up-to say.
    std::vector<std::uint64_t> shares;
};

struct batch_plan
{
    std::vector<std::string> items;
    std::vector<std::string> command;
    std::vector<batch_worker> workers;
    unsigned tries = 3;               ///< of an item that is lost
    std::vector<int> memory_statuses; ///< exit statuses: out of memory
    std::string logs;                 ///< a folder; empty: words are passed on
    bool json = false;                ///< only the summary goes to stdout
};

/// The figures of one worker.
struct batch_share
{
    std::size_t done = 0;
    double seconds = 0; ///< at work
};

struct batch_failure
{
    std::string item;
    batch::ending how;
    int status;
};

struct batch_summary
{
    std::size_t before = 0; ///< items that were done before
    std::size_t done = 0;   ///< now
    std::size_t again = 0;  ///< runs that were not the last of their item
    std::vector<batch_failure> failed;
    std::size_t left = 0; ///< items that were not run, or not to their end
    bool interrupted = false;
    double seconds = 0;
    std::vector<batch_share> workers;
};

/// Runs it to its end, also where nobody reads its messages. SIGINT or SIGTERM
/// let items end that are at work. A second one sends their programs SIGTERM, a
/// third one SIGKILL.
/// @throws not_started the program cannot be started
/// @throws std::system_error, std::runtime_error as batch::journal
batch_summary run_batch(const batch_plan &plan, const batch::journal &book,
                        environment &env);

} // namespace emuvctl

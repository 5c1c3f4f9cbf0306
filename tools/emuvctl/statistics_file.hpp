// SPDX-License-Identifier: GPL-2.0-or-later
// The pages that processes under the CUDA library publish about themselves.
#pragma once

#include "base/statistics.hpp"

#include <string>
#include <vector>

namespace emuvctl {

struct environment;

/// A process's page at one moment. Its texts may hold any bytes.
struct process_statistics
{
    int pid = 0;
    std::string command; ///< the process's name
    emuv::cuda::mobility memory = emuv::cuda::mobility::unasked;
    std::vector<std::string> vain; ///< settings without an effect
    std::vector<emuv::cuda::device_statistics> devices;
};

/// The state of the process that writes a page.
enum class writer
{
    runs,
    ended, ///< perhaps within an update: then its steps and lists are not told
};

/// Reads a page from its begin. Anybody may have written it. The answer is
/// safe: lists are no longer than they can be, and texts end.
/// @param fd  stays open
/// @throws failure it is no such page, or of another version
process_statistics read_statistics(int fd, const environment &env,
                                   writer by = writer::runs);

/// The pages of a process, or of those that it started if it has none itself.
/// @throws failure it is not there, or another user's, or there is none
std::vector<process_statistics> statistics_of(int pid, const environment &env);

/// The pages of all processes that may be read, by pid.
std::vector<process_statistics> all_statistics(const environment &env);

} // namespace emuvctl

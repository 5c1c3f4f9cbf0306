// SPDX-License-Identifier: GPL-2.0-or-later
// A process that removes what others leave behind, however they end.
#pragma once

#include <emuv/unique_fd.hpp>

#include <filesystem>
#include <vector>

namespace emuvctl {

/// A descriptor that is readable once this process has ended.
/// @throws std::system_error
emuv::unique_fd end_of_this_process();

/// Leaves a process behind that removes files and folders. It is nobody's
/// child: a program that waits for any of its own never meets it. It has a
/// session of its own, so that no signal to a group ends it.
/// @param when  it does so once this is readable, or a pipe that nobody has
///   open for writing any more
/// @throws std::system_error
void remove_at_end(const std::vector<std::filesystem::path> &doomed,
                   const emuv::unique_fd &when);

} // namespace emuvctl

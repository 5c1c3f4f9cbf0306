// SPDX-License-Identifier: LGPL-2.1-or-later
// Recording a tape: the recorder stands between the driver and all of its
// callers, where no limit is kept.
#pragma once

namespace emuv::cuda {

/// Records from here on, until the process ends.
/// @return false, and a line on stderr, if there can be no tape
bool start_recording(const char *path);

/// For the child of a fork(): it has no tape.
void stop_recording_after_fork();

} // namespace emuv::cuda

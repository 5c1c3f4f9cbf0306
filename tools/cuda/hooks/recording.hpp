// SPDX-License-Identifier: LGPL-2.1-or-later
// Recording a tape: the recorder stands between the driver and all of its
// callers, where no limit is kept.
#pragma once

#include "base/driver.hpp"
#include "base/settings.hpp"
#include "movement/kernels.hpp"
#include "movement/proofs.hpp"

#include <cstdint>

namespace emuv::cuda {

/// Records from here on, until the process ends.
/// @param asked  has the tape's path
/// @param calls  outlives the process's use of the driver
/// @param proving  tells which of a kernel's parameters are pointers; null: all
///   numbers that may be addresses are taken for some. Outlives it as well.
/// @return false, and a line on stderr, if there can be no tape
bool start_recording(const settings &asked, const driver &calls,
                     proofs *proving);

/// The kernels that are followed for a tape; null if there is none, or nothing
/// is proven.
known_kernels *recorded_kernels();

/// The program's own allocator hands out a part of an allocation, or takes one
/// back. Nothing is done unless a tape is recorded.
/// @param bytes  below 0 where it is taken back
void record_part(CUdeviceptr at, std::int64_t bytes);

/// For the child of a fork(): it has no tape.
void stop_recording_after_fork();

} // namespace emuv::cuda

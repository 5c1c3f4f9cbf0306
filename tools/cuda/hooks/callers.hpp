// SPDX-License-Identifier: LGPL-2.1-or-later
// Finds which library a call comes from.
#pragma once

namespace emuv::cuda {

/// To be called once, early: the first look at a stack loads a library.
void prepare_callers();

/// True if a call comes from PyTorch's caching allocator. When it is refused
/// memory, that gives back what it caches, and asks again. Waits for no lock
/// that is held while libraries start.
bool is_caching_allocator();

/// True if an address in code is that allocator's. Once it has been found, that
/// costs two comparisons.
bool is_in_caching_allocator(const void *at);

/// Libraries of the driver's have the device work on a program's memory by
/// functions that they do not export: ray tracing (OptiX), NVENC, optical flow.
/// @param at  an address in code
/// @return the file's name of such a library that the code is in, which
///   outlives the process; null if it is in none
const char *private_worker_at(const void *at);

} // namespace emuv::cuda

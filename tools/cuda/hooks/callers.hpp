// SPDX-License-Identifier: LGPL-2.1-or-later
// Who is behind a call.
#pragma once

namespace emuv::cuda {

/// To be called once, early: the first look at a stack loads a library.
void prepare_callers();

/// Whether a call comes from PyTorch's caching allocator, which gives back what
/// it caches, and asks again, when memory is refused. Waits for no lock that is
/// held while libraries start.
bool is_caching_allocator();

} // namespace emuv::cuda

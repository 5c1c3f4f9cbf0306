// SPDX-License-Identifier: LGPL-2.1-or-later
// Who is behind a call.
#pragma once

namespace emuv::cuda {

/// The last part of the path of the file that an address of code lies in; null
/// where none does. Lives as long as that file is loaded.
const char *file_of(const void *code);

/// Whether a call comes from PyTorch's caching allocator, which gives back what
/// it caches, and asks again, when memory is refused.
bool is_caching_allocator();

} // namespace emuv::cuda

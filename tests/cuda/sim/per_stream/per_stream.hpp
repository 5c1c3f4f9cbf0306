// SPDX-License-Identifier: GPL-2.0-or-later
// For entry points that take a stream, or work on the default one. These
// sources are compiled twice: with CUDA_API_PER_THREAD_DEFAULT_STREAM, the
// header gives their names _ptsz or _ptds, and stream 0 is the thread's own.
#pragma once

#include "../state.hpp"

namespace sim {

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
inline constexpr bool per_thread = true;
#else
inline constexpr bool per_thread = false;
#endif

} // namespace sim

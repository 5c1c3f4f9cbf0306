// SPDX-License-Identifier: GPL-2.0-or-later
// The CUDA header, with its declarations exported from this library.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

// SPDX-License-Identifier: GPL-2.0-or-later
// Ends a benchmark if a call of CUDA fails, and names the call.
#pragma once

#include <cstdio>
#include <cstdlib>

inline void check(int error, const char *what, const char *file, int line)
{
    if (error != 0) {
        std::fprintf(stderr, "%s:%d: %s: error %d\n", file, line, what, error);
        std::exit(1);
    }
}

#define CHECK(call) check(static_cast<int>(call), #call, __FILE__, __LINE__)

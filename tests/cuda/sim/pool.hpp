// SPDX-License-Identifier: GPL-2.0-or-later
// Memory pools, the source of stream-ordered allocations.
#pragma once

#include "heap.hpp"

namespace sim {

struct pool
{
    explicit pool(device &on) : dev(on), memory(on) {}

    device &dev;
    heap memory;
    std::uint64_t threshold = 0;
    std::uint64_t reserved_high = 0;
    std::uint64_t used_high = 0;
    int reuse[3] = {1, 1, 1};
    std::uint32_t access = 0; // a bit a device beyond its own
    bool destroyed = false;   // freed when nothing is allocated any more
};

struct stream;

CUresult pool_allocate(pool &from, stream &on, std::size_t bytes,
                       CUdeviceptr *out);
CUresult pool_free(stream &on, CUdeviceptr address);
// Takes a pooled mapping out of the table and returns its bytes at once.
void pool_release(std::uintptr_t base);
// At a synchronisation: every pool returns memory beyond its threshold.
void pools_trim();

} // namespace sim

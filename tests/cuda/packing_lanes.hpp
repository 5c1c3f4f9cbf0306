// SPDX-License-Identifier: GPL-2.0-or-later
// The words of CUDA C++ that movement/packing.cu uses, for the host: a thread
// for each of a block's, one block after another. The kernels themselves are
// behind them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace packing_lanes {

struct lane_index
{
    unsigned x = 0;
};

inline thread_local lane_index threadIdx; // NOLINT: as CUDA calls them
inline lane_index blockIdx;               // NOLINT
inline lane_index gridDim;                // NOLINT

struct [[gnu::may_alias]] uint4
{
    unsigned x, y, z, w;
};
struct [[gnu::may_alias]] uint2
{
    unsigned x, y;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

/// A barrier for the lanes of a warp, and the values they show each other.
struct warp
{
    std::barrier<> all{32};
    std::array<unsigned long long, 32> shown{};
};
inline std::vector<std::unique_ptr<warp>> warps_now;

inline warp &own_warp()
{
    return *warps_now[threadIdx.x / 32];
}

inline void __syncwarp() // NOLINT
{
    own_warp().all.arrive_and_wait();
}

template <typename T>
T shown_by(T mine, unsigned lane)
{
    warp &own = own_warp();
    own.shown[threadIdx.x % 32] = mine;
    own.all.arrive_and_wait();
    const auto found = static_cast<T>(own.shown[lane]);
    own.all.arrive_and_wait();
    return found;
}
template <typename T>
T __shfl_sync(unsigned, T mine, unsigned lane) // NOLINT
{
    return shown_by(mine, lane);
}
template <typename T>
T __shfl_up_sync(unsigned, T mine, unsigned by) // NOLINT
{
    const unsigned lane = threadIdx.x % 32;
    return shown_by(mine, lane >= by ? lane - by : lane);
}
template <typename T>
T __shfl_xor_sync(unsigned, T mine, unsigned by) // NOLINT
{
    return shown_by(mine, (threadIdx.x % 32) ^ by);
}

template <typename T>
T atomicAdd(T *at, T more) // NOLINT
{
    return std::atomic_ref(*at).fetch_add(more);
}
inline unsigned atomicAdd(unsigned *at, int more) // NOLINT
{
    return atomicAdd(at, static_cast<unsigned>(more));
}

inline unsigned __popc(unsigned word) // NOLINT
{
    return static_cast<unsigned>(std::popcount(word));
}
inline unsigned __ffs(unsigned word) // NOLINT
{
    return word == 0 ? 0 : static_cast<unsigned>(std::countr_zero(word)) + 1;
}
inline unsigned __byte_perm(unsigned low, unsigned high, // NOLINT
                            unsigned selector)
{
    const std::uint64_t both = std::uint64_t{high} << 32U | low;
    unsigned out = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned one = selector >> 4 * i & 15;
        const auto byte = static_cast<unsigned>(both >> 8 * (one & 7) & 255);
        // The highest bit asks for the byte's sign.
        out |= (one < 8 ? byte : byte >= 128 ? 255 : 0) << 8 * i;
    }
    return out;
}
using std::max;

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wparentheses"
#include "movement/packing.cu"
#pragma GCC diagnostic pop
#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__

/// Runs a kernel with so many blocks.
template <typename Kernel>
void run(unsigned blocks, Kernel kernel)
{
    constexpr unsigned count = emuv::cuda::packing::threads;
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        warps_now.clear();
        for (unsigned i = 0; i < count / 32; i++)
            warps_now.push_back(std::make_unique<warp>());
        std::vector<std::thread> threads;
        threads.reserve(count);
        for (unsigned i = 0; i < count; i++)
            threads.emplace_back([&kernel, i] {
                threadIdx.x = i;
                kernel();
            });
        for (std::thread &each : threads)
            each.join();
    }
}

} // namespace packing_lanes

// SPDX-License-Identifier: LGPL-2.1-or-later
// The words of CUDA C++ that kernels.cuh uses, for the host: a thread for each
// of a block's, one block after another.
#pragma once

#include "codes.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct lane_index
{
    unsigned x;
    unsigned y = 0;
};

// As CUDA calls them.
inline thread_local lane_index threadIdx{}; // NOLINT
inline lane_index blockIdx{};               // NOLINT
inline lane_index blockDim{};               // NOLINT
inline lane_index gridDim{0, 1};            // NOLINT

struct float2
{
    float x, y;
};

struct uint4
{
    std::uint32_t x, y, z, w;
};

inline float2 make_float2(float x, float y)
{
    return {x, y};
}

inline uint4 __ldcs(const uint4 *at)
{
    return *at;
}

inline uint4 __ldg(const uint4 *at)
{
    return *at;
}

inline std::uint32_t __byte_perm(std::uint32_t low, std::uint32_t high,
                                 std::uint32_t selector)
{
    const std::uint64_t both = std::uint64_t{high} << 32U | low;
    std::uint32_t out = 0;
    for (unsigned i = 0; i < 4; i++)
        out |= static_cast<std::uint32_t>(
                   both >> (8 * (selector >> (4 * i) & 7U)) & 255U)
               << (8 * i);
    return out;
}

using std::max;

/// Pairs of 16-bit numbers, as words.
struct __half2
{
    std::uint32_t bits;
};

struct __nv_bfloat162
{
    std::uint32_t bits;
};

namespace lanes {

using namespace emuv::kernels;

inline float half_of(std::uint32_t pair, unsigned which)
{
    return from_fp16(static_cast<std::uint16_t>(pair >> (16 * which)));
}

inline float bfloat_of(std::uint32_t pair, unsigned which)
{
    return from_bf16(static_cast<std::uint16_t>(pair >> (16 * which)));
}

inline __half2 halves(float low, float high)
{
    return {std::uint32_t{to_fp16(high)} << 16U | to_fp16(low)};
}

inline __nv_bfloat162 bfloats(float low, float high)
{
    return {std::uint32_t{to_bf16(high)} << 16U | to_bf16(low)};
}

/// The barriers of a block and its warps, and the operands of a warp.
struct meeting
{
    struct warp
    {
        std::barrier<> all{32};
        std::array<std::array<std::uint32_t, 4>, 32> a{};
        std::array<std::array<std::uint32_t, 2>, 32> b{};
        std::uint32_t largest = 0;
        std::mutex lock;
    };
    explicit meeting(unsigned threads) : all(threads), warps(threads / 32)
    {
        for (auto &each : warps)
            each = std::make_unique<warp>();
    }
    std::barrier<> all;
    std::vector<std::unique_ptr<warp>> warps;
};

inline meeting *met = nullptr;

inline meeting::warp &own_warp()
{
    return *met->warps[threadIdx.x / 32];
}

/// mma.m16n8k16, from the tables of PTX's manual. Of lane 4 g + t, a[0] and
/// a[2] are of row g, a[1] and a[3] of row g + 8. Columns 2 t and 2 t + 1 are
/// in a[0], a[1] and b[0]; in the others they are 8 more. All of b is of column
/// g. Sums 0 and 1 are of row g, 2 and 3 of row g + 8, columns 2 t and 2 t + 1.
template <typename Value>
void multiply_tile(float (&sum)[4], const std::uint32_t (&a)[4],
                   std::uint32_t b0, std::uint32_t b1, const Value &value)
{
    auto &warp = own_warp();
    const unsigned lane = threadIdx.x % 32;
    std::copy(std::begin(a), std::end(a), warp.a[lane].begin());
    warp.b[lane] = {b0, b1};
    warp.all.arrive_and_wait();
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = lane / 4 + i / 2 * 8;
        const unsigned column = 2 * (lane % 4) + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            const unsigned in_pair = k % 2;
            const unsigned t = k % 8 / 2;
            const float left =
                value(warp.a[row % 8 * 4 + t][row / 8 + k / 8 * 2], in_pair);
            sum[i] += left * value(warp.b[column * 4 + t][k / 8], in_pair);
        }
    }
    warp.all.arrive_and_wait();
}

/// Runs a kernel: @p body once for each thread of each block.
template <typename Body>
void run(unsigned blocks, unsigned threads, const Body &body)
{
    blockDim.x = threads;
    gridDim = {blocks, 1};
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx.x = block;
        meeting here(threads);
        met = &here;
        std::vector<std::thread> all;
        for (unsigned i = 0; i < threads; i++)
            all.emplace_back([&, i] {
                threadIdx.x = i;
                body();
            });
        for (auto &each : all)
            each.join();
    }
}

} // namespace lanes

inline void __syncthreads()
{
    lanes::met->all.arrive_and_wait();
}

inline std::uint32_t __reduce_max_sync(std::uint32_t, std::uint32_t value)
{
    auto &warp = lanes::own_warp();
    {
        const std::lock_guard hold(warp.lock);
        warp.largest = std::max(warp.largest, value);
    }
    warp.all.arrive_and_wait();
    return warp.largest;
}

inline void atomicMax(std::uint32_t *at, std::uint32_t value)
{
    static std::mutex lock;
    const std::lock_guard hold(lock);
    *at = std::max(*at, value);
}

inline __half2 __float2half2_rn(float value)
{
    return lanes::halves(value, value);
}

inline __half2 __floats2half2_rn(float low, float high)
{
    return lanes::halves(low, high);
}

inline float2 __half22float2(__half2 of)
{
    return {lanes::half_of(of.bits, 0), lanes::half_of(of.bits, 1)};
}

inline __nv_bfloat162 __float2bfloat162_rn(float value)
{
    return lanes::bfloats(value, value);
}

inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high)
{
    return lanes::bfloats(low, high);
}

inline __half2 __hmul2(__half2 a, __half2 b)
{
    return lanes::halves(lanes::half_of(a.bits, 0) * lanes::half_of(b.bits, 0),
                         lanes::half_of(a.bits, 1) * lanes::half_of(b.bits, 1));
}

inline __half2 __hsub2(__half2 a, __half2 b)
{
    return lanes::halves(lanes::half_of(a.bits, 0) - lanes::half_of(b.bits, 0),
                         lanes::half_of(a.bits, 1) - lanes::half_of(b.bits, 1));
}

inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return lanes::bfloats(
        lanes::bfloat_of(a.bits, 0) * lanes::bfloat_of(b.bits, 0),
        lanes::bfloat_of(a.bits, 1) * lanes::bfloat_of(b.bits, 1));
}

inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return lanes::bfloats(
        lanes::bfloat_of(a.bits, 0) - lanes::bfloat_of(b.bits, 0),
        lanes::bfloat_of(a.bits, 1) - lanes::bfloat_of(b.bits, 1));
}

namespace emuv::kernels {

inline void multiply_tile_fp16(float (&sum)[4], const std::uint32_t (&a)[4],
                               std::uint32_t b0, std::uint32_t b1)
{
    lanes::multiply_tile(sum, a, b0, b1, lanes::half_of);
}

inline void multiply_tile_bf16(float (&sum)[4], const std::uint32_t (&a)[4],
                               std::uint32_t b0, std::uint32_t b1)
{
    lanes::multiply_tile(sum, a, b0, b1, lanes::bfloat_of);
}

} // namespace emuv::kernels

// The kernels come last: they are written in the words above.
#include "kernels.cuh" // NOLINT

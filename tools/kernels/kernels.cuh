// SPDX-License-Identifier: LGPL-2.1-or-later
// Encoding, decoding and multiplying as the card's threads do it. For nvcc; a test
// compiles it for the host as well, with threads in place of lanes.
#pragma once

#include <emuv/kernels.h>

#include "codes.hpp"

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define EMUV_UNROLL _Pragma("unroll")
#else
#define EMUV_UNROLL
#endif

namespace emuv::kernels {

using word = std::uint32_t;

constexpr unsigned threads = 256;

// ---- Numbers in memory -----------------------------------------------------

template <unsigned Type> struct number_of
{
    using kept = std::uint16_t;
    __device__ static float read(kept bits)
    {
        return Type == EMUV_KERNELS_FP16 ? from_fp16(bits) : from_bf16(bits);
    }
    __device__ static kept make(float value)
    {
        return Type == EMUV_KERNELS_FP16 ? to_fp16(value) : to_bf16(value);
    }
};

template <> struct number_of<EMUV_KERNELS_FP32>
{
    using kept = float;
    __device__ static float read(kept value) { return value; }
    __device__ static kept make(float value) { return value; }
};

// A coded matrix as kernels see it.
struct coded
{
    std::uint64_t rows;
    std::uint64_t columns;
    unsigned block; // 32 where the format has no blocks
    unsigned scale; // one of emuv_kernels_scale
    bool symmetric;
    word *codes;
    void *scales;
    float *tensor_scale;
};

inline coded seen(const emuv_kernels_matrix &is)
{
    return {is.rows,
            is.columns,
            is.format.block == 0 ? 32 : is.format.block,
            is.format.scale,
            is.format.code == EMUV_KERNELS_SYMMETRIC,
            static_cast<word *>(is.codes),
            is.scales,
            is.tensor_scale};
}

__device__ inline float kept_scale(const coded &of, std::uint64_t index)
{
    if (of.scale == EMUV_KERNELS_E4M3)
        return from_e4m3(static_cast<const std::uint8_t *>(of.scales)[index]);
    if (of.scale == EMUV_KERNELS_FP16_SCALE)
        return from_fp16(static_cast<const std::uint16_t *>(of.scales)[index]);
    return 1;
}

__device__ inline float keep_scale(const coded &to, std::uint64_t index, float scale)
{
    const bool wild = is_wild(scale);
    if (to.scale == EMUV_KERNELS_E4M3) {
        const std::uint8_t bits = wild ? e4m3_nan : to_e4m3(scale);
        static_cast<std::uint8_t *>(to.scales)[index] = bits;
        return from_e4m3(bits);
    }
    const std::uint16_t bits = wild ? fp16_nan : to_fp16_scale(scale);
    static_cast<std::uint16_t *>(to.scales)[index] = bits;
    return from_fp16(bits);
}

// ---- Encoding --------------------------------------------------------------

// The largest magnitude, as bits, in the place of the tensor scale. Bits of
// numbers that are not negative are in the numbers' order; NaN is the largest.
template <unsigned Type>
__global__ void find_largest(const typename number_of<Type>::kept *from,
                             std::uint64_t stride, coded to)
{
    word largest = 0;
    const std::uint64_t all = to.rows * to.columns;
    const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
         i < all; i += step) {
        const float value = number_of<Type>::read(
            from[i / to.columns * stride + i % to.columns]);
        const word bits = to.symmetric && is_wild(value)
                              ? 0x7fc00000U
                              : bits_of(finite_magnitude(value));
        largest = max(largest, bits);
    }
    largest = __reduce_max_sync(0xffffffffU, largest);
    if (threadIdx.x % 32 == 0)
        atomicMax(reinterpret_cast<word *>(to.tensor_scale), largest);
}

static __global__ void settle_tensor_scale(coded to)
{
    const float largest = *to.tensor_scale;
    if (to.symmetric)
        *to.tensor_scale =
            is_wild(largest)
                ? float_of(0x7fc00000U)
                : tensor_scale_of(largest, largest_symmetric, 1, false);
    else if (to.scale == EMUV_KERNELS_E4M3)
        *to.tensor_scale =
            tensor_scale_of(largest, largest_e2m1, largest_e4m3, false);
    else
        *to.tensor_scale =
            tensor_scale_of(largest, largest_e2m1, largest_fp16, true);
}

// A thread has a block of numbers.
template <unsigned Type, unsigned Block>
__global__ void encode_blocks(const typename number_of<Type>::kept *from,
                              std::uint64_t stride, coded to)
{
    const float tensor_scale = *to.tensor_scale;
    const std::uint64_t in_row = to.columns / Block;
    const std::uint64_t all = to.rows * in_row;
    const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
         i < all; i += step) {
        const auto *at = from + i / in_row * stride + i % in_row * Block;
        float numbers[Block];
        for (unsigned k = 0; k < Block; k++)
            numbers[k] = number_of<Type>::read(at[k]);
        float scale = tensor_scale;
        if (!to.symmetric)
            scale *= keep_scale(to, i,
                                block_scale_of(numbers, Block, tensor_scale));
        for (unsigned k = 0; k < Block; k += 8)
            to.codes[i * (Block / 8) + k / 8] =
                encode_word(numbers + k, scale, to.symmetric);
    }
}

// ---- Decoding --------------------------------------------------------------

// A thread has a word of eight codes. Rows count from @p first.
template <unsigned Type>
__global__ void decode_words(coded from, std::uint64_t first,
                             std::uint64_t rows,
                             typename number_of<Type>::kept *to,
                             std::uint64_t stride)
{
    const float tensor_scale = *from.tensor_scale;
    const std::uint64_t in_row = from.columns / 8;
    const std::uint64_t all = rows * in_row;
    const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
         i < all; i += step) {
        const std::uint64_t at = first * in_row + i;
        const word codes = from.codes[at];
        const float scale = kept_scale(from, at * 8 / from.block) * tensor_scale;
        alignas(16) typename number_of<Type>::kept numbers[8];
        for (unsigned k = 0; k < 8; k++) {
            const auto code =
                static_cast<std::uint8_t>((codes >> (4U * k)) & 15U);
            numbers[k] = number_of<Type>::make(
                (from.symmetric ? from_symmetric(code) : from_e2m1(code)) *
                scale);
        }
        auto *const out = reinterpret_cast<uint4 *>(
            to + i / in_row * stride + i % in_row * 8);
        constexpr unsigned bytes = sizeof(numbers);
        for (unsigned k = 0; k < bytes / sizeof(uint4); k++)
            out[k] = reinterpret_cast<const uint4 *>(numbers)[k];
    }
}

// ---- The fused product -----------------------------------------------------

// Eight warps have 16 rows of w. In each step a warp takes 128 columns: lane
// (g, t), four t to a g, takes 32 of row g and of row g + 8, and the same
// columns of row g of x. Tensor cores sum over all t. They ask for the columns
// in no order but the same for w and x, so both are fed as they lie.
constexpr unsigned rows_at_once = 16;
constexpr unsigned warps = threads / 32;
constexpr unsigned columns_of_lane = 32;
constexpr unsigned columns_at_once = 4 * columns_of_lane;

#ifdef __CUDACC__
// sum += a · b, 16 × 16 by 16 × 8, spread over a warp as PTX's mma.m16n8k16 says.
__device__ inline void multiply_tile_fp16(float (&sum)[4], const word (&a)[4],
                                          word b0, word b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void multiply_tile_bf16(float (&sum)[4], const word (&a)[4],
                                          word b0, word b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

struct half_pairs
{
    using two = __half2;
    static constexpr float e4m3_up = 64; // 2^6: 448 stays in range
    static constexpr float e4m3_back = 256; // 2^14 / 2^6
    __device__ static two same(float value) { return __float2half2_rn(value); }
    __device__ static two pack(float2 of)
    {
        return __floats2half2_rn(of.x, of.y);
    }
    __device__ static word e2m1(word codes, unsigned pair)
    {
        return e2m1_pair_as_fp16(codes, pair);
    }
    __device__ static word symmetric(word codes, unsigned pair)
    {
        return symmetric_pair_as_fp16(codes, pair);
    }
    static constexpr float symmetric_offset = 1032;
    __device__ static std::uint16_t make(float value) { return to_fp16(value); }
    __device__ static void add_product(float (&sum)[4], const word (&a)[4],
                                       word b0, word b1)
    {
        multiply_tile_fp16(sum, a, b0, b1);
    }
};

struct bfloat_pairs
{
    using two = __nv_bfloat162;
    static constexpr float e4m3_up = 0x1p112F; // 448 stays in range
    static constexpr float e4m3_back = 0x1p14F; // 2^126 / 2^112
    __device__ static two same(float value)
    {
        return __float2bfloat162_rn(value);
    }
    __device__ static two pack(float2 of)
    {
        return __floats2bfloat162_rn(of.x, of.y);
    }
    __device__ static word e2m1(word codes, unsigned pair)
    {
        return e2m1_pair_as_bf16(codes, pair);
    }
    __device__ static word symmetric(word codes, unsigned pair)
    {
        return symmetric_pair_as_bf16(codes, pair);
    }
    static constexpr float symmetric_offset = 136;
    __device__ static std::uint16_t make(float value) { return to_bf16(value); }
    __device__ static void add_product(float (&sum)[4], const word (&a)[4],
                                       word b0, word b1)
    {
        multiply_tile_bf16(sum, a, b0, b1);
    }
};

template <typename To, typename From> __device__ To as(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}

// E4M3 scales: codes times scales have six bits, so they are exact in 16. Both
// are kept at powers of two that neither underflow nor overflow.
template <typename Pairs, unsigned Block> struct e4m3_weights
{
    using scale = typename Pairs::two;
    static constexpr unsigned block = Block;
    static constexpr float back = Pairs::e4m3_back;
    __device__ static scale read(const void *scales, std::uint64_t index)
    {
        const auto bits = static_cast<const std::uint8_t *>(scales)[index];
        return Pairs::same(from_e4m3(bits) * Pairs::e4m3_up);
    }
    __device__ static scale nothing() { return Pairs::same(0); }
    __device__ static word pair(word codes, unsigned which, scale by)
    {
        return as<word>(
            __hmul2(as<typename Pairs::two>(Pairs::e2m1(codes, which)), by));
    }
};

// FP16 scales: codes times scales have 13 bits; they are rounded once.
template <typename Pairs, unsigned Block> struct fp16_weights
{
    using scale = float;
    static constexpr unsigned block = Block;
    static constexpr float back = 1;
    __device__ static scale read(const void *scales, std::uint64_t index)
    {
        // Codes as FP16 are 2^-14 times as large.
        return from_fp16(static_cast<const std::uint16_t *>(scales)[index]) *
               16384.0F;
    }
    __device__ static scale nothing() { return 0; }
    __device__ static word pair(word codes, unsigned which, scale by)
    {
        const float2 two =
            __half22float2(as<__half2>(e2m1_pair_as_fp16(codes, which)));
        return as<word>(Pairs::pack(make_float2(two.x * by, two.y * by)));
    }
};

template <typename Pairs> struct symmetric_weights
{
    using scale = typename Pairs::two;
    static constexpr unsigned block = 32;
    static constexpr float back = 1;
    __device__ static scale read(const void *, std::uint64_t)
    {
        return Pairs::same(Pairs::symmetric_offset);
    }
    __device__ static scale nothing() { return read(nullptr, 0); }
    __device__ static word pair(word codes, unsigned which, scale by)
    {
        return as<word>(__hsub2(
            as<typename Pairs::two>(Pairs::symmetric(codes, which)), by));
    }
};

struct product_on_card
{
    std::uint64_t rows;
    std::uint64_t columns;
    const uint4 *codes;
    const void *scales;
    const float *tensor_scale;
    const uint4 *x;
    std::uint64_t x_stride; // in uint4
    std::uint16_t *y;
    std::uint64_t y_stride;
    unsigned count;
};

// A lane's codes of one row in one step.
template <typename Weights> struct lane_codes
{
    uint4 codes;
    typename Weights::scale scales[columns_of_lane / Weights::block];

    __device__ void read(const product_on_card &of, std::uint64_t row,
                         std::uint64_t column)
    {
        const bool there = row < of.rows && column < of.columns;
        const std::uint64_t at = row * of.columns + column;
        codes = there ? __ldcs(of.codes + at / columns_of_lane) : uint4{};
        // Beyond the matrix all is 0.
        for (unsigned i = 0; i < columns_of_lane / Weights::block; i++)
            scales[i] = there ? Weights::read(of.scales, at / Weights::block + i)
                              : Weights::nothing();
    }

    __device__ word of(unsigned which) const
    {
        return which == 0   ? codes.x
               : which == 1 ? codes.y
               : which == 2 ? codes.z
                            : codes.w;
    }
};

template <typename Pairs, typename Weights, unsigned Tiles>
__global__ void __launch_bounds__(threads)
    multiply_fused(const product_on_card of)
{
    const unsigned warp = threadIdx.x / 32;
    const unsigned g = threadIdx.x % 32 / 4;
    const unsigned t = threadIdx.x % 4;
    const std::uint64_t first = std::uint64_t{blockIdx.x} * rows_at_once;
    float sum[Tiles][4] = {};
    lane_codes<Weights> upper;
    lane_codes<Weights> lower;
    std::uint64_t column = warp * columns_at_once + t * columns_of_lane;
    upper.read(of, first + g, column);
    lower.read(of, first + g + 8, column);
    // The same number of steps for all lanes of a warp.
    for (std::uint64_t begin = warp * columns_at_once; begin < of.columns;
         begin += warps * columns_at_once) {
        const lane_codes<Weights> now_upper = upper;
        const lane_codes<Weights> now_lower = lower;
        const std::uint64_t now = column;
        column += warps * columns_at_once;
        upper.read(of, first + g, column);
        lower.read(of, first + g + 8, column);
        uint4 x[Tiles][4];
        EMUV_UNROLL for (unsigned tile = 0; tile < Tiles; tile++) {
            const unsigned row = tile * 8 + g;
            const bool there = row < of.count && now < of.columns;
            EMUV_UNROLL for (unsigned i = 0; i < 4; i++)
                x[tile][i] =
                    there ? __ldg(of.x + row * of.x_stride + now / 8 + i)
                          : uint4{};
        }
        EMUV_UNROLL for (unsigned i = 0; i < 4; i++) {
            const unsigned block = i * 8 / Weights::block;
            word a[4][2]; // pairs of codes (j, j + 4), of both rows
            EMUV_UNROLL for (unsigned j = 0; j < 4; j++) {
                a[j][0] = Weights::pair(now_upper.of(i), j,
                                        now_upper.scales[block]);
                a[j][1] = Weights::pair(now_lower.of(i), j,
                                        now_lower.scales[block]);
            }
            const word even[4] = {a[0][0], a[0][1], a[1][0], a[1][1]};
            const word odd[4] = {a[2][0], a[2][1], a[3][0], a[3][1]};
            EMUV_UNROLL for (unsigned tile = 0; tile < Tiles; tile++) {
                const uint4 &is = x[tile][i];
                Pairs::add_product(sum[tile], even,
                                   __byte_perm(is.x, is.z, 0x5410),
                                   __byte_perm(is.x, is.z, 0x7632));
                Pairs::add_product(sum[tile], odd,
                                   __byte_perm(is.y, is.w, 0x5410),
                                   __byte_perm(is.y, is.w, 0x7632));
            }
        }
    }
    __shared__ float sums[warps][Tiles * 8][rows_at_once];
    for (unsigned tile = 0; tile < Tiles; tile++)
        for (unsigned i = 0; i < 4; i++)
            sums[warp][tile * 8 + 2 * t + i % 2][g + i / 2 * 8] = sum[tile][i];
    __syncthreads();
    const float tensor_scale = *of.tensor_scale;
    for (unsigned i = threadIdx.x; i < Tiles * 8 * rows_at_once; i += threads) {
        const unsigned x_row = i / rows_at_once;
        const unsigned row = i % rows_at_once;
        if (x_row >= of.count || first + row >= of.rows)
            continue;
        float all = 0;
        for (unsigned w = 0; w < warps; w++)
            all += sums[w][x_row][row];
        of.y[x_row * of.y_stride + first + row] =
            Pairs::make(all * Weights::back * tensor_scale);
    }
}

} // namespace emuv::kernels

// SPDX-License-Identifier: LGPL-2.1-or-later
// Encoding, decoding and multiplying as the card's threads do it. For nvcc; a
// test compiles it for the host as well, with threads in place of lanes.
#pragma once

#include "codes.hpp"

#include <emuv/kernels.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define EMUV_UNROLL _Pragma("unroll")
#else
#define EMUV_UNROLL
#endif

namespace emuv::kernels {

using word = std::uint32_t;

constexpr unsigned threads = 256;

// ---- Numbers in memory -----------------------------------------------------

template <typename To, typename From>
__device__ To as(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}

// As to_fp16() and to_bf16() do, by the card's own instructions; those have
// another NaN.
__device__ inline std::uint16_t make_fp16(float value)
{
    if (value != value)
        return to_fp16(value);
    return static_cast<std::uint16_t>(as<word>(__float2half2_rn(value)));
}

__device__ inline std::uint16_t make_bf16(float value)
{
    if (value != value)
        return to_bf16(value);
    return static_cast<std::uint16_t>(as<word>(__float2bfloat162_rn(value)));
}

template <unsigned Type>
struct number_of
{
    using kept = std::uint16_t;
    __device__ static float read(kept bits)
    {
        return Type == EMUV_KERNELS_FP16 ? from_fp16(bits) : from_bf16(bits);
    }
    __device__ static kept make(float value)
    {
        return Type == EMUV_KERNELS_FP16 ? make_fp16(value) : make_bf16(value);
    }
};

template <>
struct number_of<EMUV_KERNELS_FP32>
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

__device__ inline float keep_scale(const coded &to, std::uint64_t index,
                                   float scale)
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
            scale *=
                keep_scale(to, i, block_scale_of(numbers, Block, tensor_scale));
        for (unsigned k = 0; k < Block; k += 8)
            to.codes[i * (Block / 8) + k / 8] =
                encode_word(numbers + k, scale, to.symmetric);
    }
}

// ---- Decoding --------------------------------------------------------------

// A thread has a word of eight codes; a row of blocks has a row, or every so
// many. Rows count from @p first.
template <unsigned Type>
__global__ void
decode_words(coded from, std::uint64_t first, std::uint64_t rows,
             typename number_of<Type>::kept *to, std::uint64_t stride)
{
    const float tensor_scale = *from.tensor_scale;
    const std::uint64_t in_row = from.columns / 8;
    const std::uint64_t column =
        std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (column >= in_row)
        return;
    const unsigned shift = from.block == 16 ? 1 : 2; // words in a block
    for (std::uint64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const std::uint64_t at = (first + row) * in_row + column;
        const word codes = from.codes[at];
        const float scale = kept_scale(from, at >> shift) * tensor_scale;
        alignas(16) typename number_of<Type>::kept numbers[8];
        EMUV_UNROLL for (unsigned k = 0; k < 8; k++)
        {
            const auto code =
                static_cast<std::uint8_t>((codes >> (4U * k)) & 15U);
            numbers[k] = number_of<Type>::make(
                (from.symmetric ? from_symmetric(code) : from_e2m1(code)) *
                scale);
        }
        auto *const out =
            reinterpret_cast<uint4 *>(to + row * stride + column * 8);
        constexpr unsigned bytes = sizeof(numbers);
        EMUV_UNROLL for (unsigned k = 0; k < bytes / sizeof(uint4); k++)
            out[k] = reinterpret_cast<const uint4 *>(numbers)[k];
    }
}

// ---- The fused product -----------------------------------------------------

// Eight warps have 16 rows of w, or Tall times as many. In each step a warp
// takes 128 columns: lane (g, t), four t to a g, takes 32 of row g and of row g
// + 8, and the same columns of row g of x. Tensor cores sum over all t. They
// ask for the columns in no order but the same for w and x, so both are fed as
// they lie.
constexpr unsigned rows_at_once = 16;
constexpr unsigned warps = threads / 32;
constexpr unsigned columns_of_lane = 32;
constexpr unsigned columns_at_once = 4 * columns_of_lane;

#ifdef __CUDACC__
// sum += a · b, 16 × 16 by 16 × 8, spread over a warp as PTX's mma.m16n8k16
// says.
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
    static constexpr float e4m3_back = 256; // 2^14 / 2^6
    // An E4M3 number twice, 2^6 times as large: so 448 stays in range. Its bits
    // are those of a number 2^-8 times as large. NaN is not told apart.
    __device__ static two e4m3(word bits)
    {
        return __hmul2(as<two>(bits * 0x00800080U), same(16384));
    }
    static constexpr word nan = fp16_nan * 0x10001U;
    __device__ static two same(float value) { return __float2half2_rn(value); }
    __device__ static two pack(float2 of)
    {
        return __floats2half2_rn(of.x, of.y);
    }
    __device__ static word e2m1(word codes, int pair)
    {
        return e2m1_pair_as_fp16(codes, pair);
    }
    __device__ static word symmetric(word codes, int pair)
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
    static constexpr float e4m3_back = 0x1p14F; // 2^126 / 2^112
    // An E4M3 number twice, 2^112 times as large: so 448 stays in range. Its
    // bits are those of a number 2^-120 times as large. NaN is not told apart.
    __device__ static two e4m3(word bits)
    {
        const two up = same(0x1p116F);
        return __hmul2(__hmul2(as<two>(bits * 0x00100010U), up), up);
    }
    static constexpr word nan = bf16_nan * 0x10001U;
    __device__ static two same(float value)
    {
        return __float2bfloat162_rn(value);
    }
    __device__ static two pack(float2 of)
    {
        return __floats2bfloat162_rn(of.x, of.y);
    }
    __device__ static word e2m1(word codes, int pair)
    {
        return e2m1_pair_as_bf16(codes, pair);
    }
    __device__ static word symmetric(word codes, int pair)
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

// How a format's scales lie beside 32 codes of a lane, and how pairs of codes
// become numbers. `scales` are those 32 codes' as they lie in memory.

// E4M3 scales: codes times scales have six bits, so they are exact in 16. Both
// are kept at powers of two that neither underflow nor overflow.
template <typename Pairs, unsigned Block>
struct e4m3_weights
{
    using scale = typename Pairs::two;
    using scales = std::conditional_t<Block == 16, std::uint16_t, std::uint8_t>;
    static constexpr unsigned block = Block;
    static constexpr float back = Pairs::e4m3_back;
    // Of a block with a number that is none, all are NaN. That is rare, and so
    // is a scale with a sign, which only other programs make.
    __device__ static void make(scales of, scale (&to)[32 / Block])
    {
        EMUV_UNROLL for (unsigned i = 0; i < 32 / Block; i++) to[i] =
            Pairs::e4m3((of >> (8 * i)) & 127U);
        // A carry into a byte's highest bit: the byte was at least 127.
        constexpr unsigned all = Block == 16 ? 0x0101U : 1U;
        if (((((of & (127U * all)) + all) | of) & (128U * all)) != 0)
            make_rare(of, to);
    }
    __device__ static void make_rare(scales of, scale (&to)[32 / Block])
    {
        EMUV_UNROLL for (unsigned i = 0; i < 32 / Block; i++)
        {
            const unsigned bits = of >> (8 * i);
            if ((bits & 127U) == e4m3_nan)
                to[i] = as<scale>(Pairs::nan);
            else if ((bits & 128U) != 0)
                to[i] = as<scale>(as<word>(to[i]) ^ 0x80008000U);
        }
    }
    __device__ static word pair(word codes, int which, scale by)
    {
        return as<word>(
            __hmul2(as<typename Pairs::two>(Pairs::e2m1(codes, which)), by));
    }
};

// FP16 scales: codes times scales have 13 bits; they are rounded once.
template <typename Pairs, unsigned Block>
struct fp16_weights
{
    using scale = float;
    using scales =
        std::conditional_t<Block == 16, std::uint32_t, std::uint16_t>;
    static constexpr unsigned block = Block;
    static constexpr float back = 1;
    __device__ static void make(scales of, scale (&to)[32 / Block])
    {
        const float2 two = __half22float2(as<__half2>(word{of}));
        // Codes as FP16 are 2^-14 times as large.
        to[0] = two.x * 16384.0F;
        to[32 / Block - 1] = (Block == 16 ? two.y : two.x) * 16384.0F;
    }
    __device__ static word pair(word codes, int which, scale by)
    {
        const float2 two =
            __half22float2(as<__half2>(e2m1_pair_as_fp16(codes, which)));
        return as<word>(Pairs::pack(make_float2(two.x * by, two.y * by)));
    }
};

template <typename Pairs>
struct symmetric_weights
{
    using scale = typename Pairs::two;
    struct scales
    {};
    static constexpr unsigned block = 32;
    static constexpr float back = 1;
    __device__ static void make(scales, scale (&to)[1])
    {
        to[0] = Pairs::same(Pairs::symmetric_offset);
    }
    __device__ static word pair(word codes, int which, scale by)
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

// A lane's codes of one row in one step, and their scales.
template <typename Weights>
struct lane_codes
{
    uint4 codes;
    typename Weights::scales scales;

    __device__ word of(unsigned which) const
    {
        return which == 0   ? codes.x
               : which == 1 ? codes.y
               : which == 2 ? codes.z
                            : codes.w;
    }
};

// Adds a step's products: codes of Tall times 16 rows of w with Tiles times 8
// of x.
template <typename Pairs, typename Weights, unsigned Tiles, unsigned Tall>
__device__ void add_step(float (&sum)[Tall][Tiles][4],
                         const lane_codes<Weights> (&codes)[2 * Tall],
                         const uint4 (&x)[Tiles][4])
{
    typename Weights::scale scales[2 * Tall][32 / Weights::block];
    EMUV_UNROLL for (unsigned row = 0; row < 2 * Tall; row++)
        Weights::make(codes[row].scales, scales[row]);
    EMUV_UNROLL for (unsigned i = 0; i < 4; i++)
    {
        word b[Tiles][4];
        EMUV_UNROLL for (unsigned tile = 0; tile < Tiles; tile++)
        {
            const uint4 &is = x[tile][i];
            b[tile][0] = __byte_perm(is.x, is.z, 0x5410);
            b[tile][1] = __byte_perm(is.x, is.z, 0x7632);
            b[tile][2] = __byte_perm(is.y, is.w, 0x5410);
            b[tile][3] = __byte_perm(is.y, is.w, 0x7632);
        }
        EMUV_UNROLL for (unsigned tall = 0; tall < Tall; tall++)
        {
            word a[4][2]; // pairs of codes (j, j + 4), of both rows
            EMUV_UNROLL for (unsigned lower = 0; lower < 2; lower++)
            {
                const unsigned row = 2 * tall + lower;
                EMUV_UNROLL for (int j = 0; j < 4; j++) a[j][lower] =
                    Weights::pair(codes[row].of(i), j,
                                  scales[row][i * 8 / Weights::block]);
            }
            const word even[4] = {a[0][0], a[0][1], a[1][0], a[1][1]};
            const word odd[4] = {a[2][0], a[2][1], a[3][0], a[3][1]};
            EMUV_UNROLL for (unsigned tile = 0; tile < Tiles; tile++)
            {
                Pairs::add_product(sum[tall][tile], even, b[tile][0],
                                   b[tile][1]);
                Pairs::add_product(sum[tall][tile], odd, b[tile][2],
                                   b[tile][3]);
            }
        }
    }
}

// What a lane multiplies next. Its rows of w are g, and each eighth after it;
// its rows of x likewise. Of rows that are not there, one that is there is
// read: their sums are not kept.
template <typename Weights, unsigned Tiles, unsigned Tall>
struct lane_place
{
    using scales_of = typename Weights::scales;
    const uint4 *codes[2 * Tall];
    const scales_of *scales[2 * Tall];
    const uint4 *x[Tiles];

    __device__ lane_place(const product_on_card &of, std::uint64_t first,
                          unsigned g, unsigned column)
    {
        EMUV_UNROLL for (unsigned i = 0; i < 2 * Tall; i++)
        {
            const std::uint64_t row = first + g + 8 * i;
            const std::uint64_t at =
                ((row < of.rows ? row : of.rows - 1) * of.columns + column) /
                columns_of_lane;
            codes[i] = of.codes + at;
            scales[i] = static_cast<const scales_of *>(of.scales) + at;
        }
        EMUV_UNROLL for (unsigned i = 0; i < Tiles; i++)
        {
            const unsigned row = i * 8 + g;
            x[i] = of.x + (row < of.count ? row : 0) * of.x_stride + column / 8;
        }
    }

    // So many columns on.
    __device__ void read(lane_codes<Weights> (&to)[2 * Tall],
                         unsigned columns) const
    {
        EMUV_UNROLL for (unsigned i = 0; i < 2 * Tall; i++)
        {
            to[i].codes = __ldcs(codes[i] + columns / columns_of_lane);
            if constexpr (!std::is_empty_v<scales_of>)
                to[i].scales = scales[i][columns / columns_of_lane];
        }
    }

    __device__ void read(uint4 (&to)[Tiles][4], unsigned columns) const
    {
        EMUV_UNROLL for (unsigned tile = 0; tile < Tiles; tile++)
            EMUV_UNROLL for (unsigned i = 0; i < 4; i++) to[tile][i] =
                __ldg(x[tile] + columns / 8 + i);
    }

    __device__ void go_on(unsigned columns)
    {
        EMUV_UNROLL for (unsigned i = 0; i < 2 * Tall; i++)
        {
            codes[i] += columns / columns_of_lane;
            if constexpr (!std::is_empty_v<scales_of>)
                scales[i] += columns / columns_of_lane;
        }
        EMUV_UNROLL for (unsigned i = 0; i < Tiles; i++) x[i] += columns / 8;
    }
};

// Codes of a step are on their way while those before are multiplied. What is
// taller needs more registers, and reads x less often.
template <typename Pairs, typename Weights, unsigned Tiles, unsigned Tall>
__global__ void __launch_bounds__(threads, Tall == 1 ? 4 : 2)
    multiply_fused(const product_on_card of)
{
    constexpr unsigned rows = Tall * rows_at_once;
    constexpr unsigned stride = warps * columns_at_once;
    const unsigned warp = threadIdx.x / 32;
    const unsigned g = threadIdx.x % 32 / 4;
    const unsigned t = threadIdx.x % 4;
    const std::uint64_t first = std::uint64_t{blockIdx.x} * rows;
    const unsigned begin = warp * columns_at_once;
    const unsigned own = t * columns_of_lane;
    lane_place<Weights, Tiles, Tall> place(of, first, g, begin + own);
    // Steps in which all lanes have columns; in one more some may have.
    const auto columns = static_cast<unsigned>(of.columns);
    const unsigned left = begin < columns ? columns - begin : 0;
    const unsigned steps = (left + stride - columns_at_once) / stride;
    float sum[Tall][Tiles][4] = {};
    lane_codes<Weights> now[2 * Tall] = {};
    lane_codes<Weights> next[2 * Tall];
    uint4 x[Tiles][4] = {};
    if (steps > 0)
        place.read(next, 0);
    // The same number of steps for all lanes of a warp.
    for (unsigned step = 0; step < steps; step++) {
        place.read(x, 0);
        EMUV_UNROLL for (unsigned row = 0; row < 2 * Tall; row++) now[row] =
            next[row];
        if (step + 1 < steps)
            place.read(next, stride);
        add_step<Pairs, Weights, Tiles, Tall>(sum, now, x);
        place.go_on(stride);
    }
    if (steps * stride < left) {
        EMUV_UNROLL for (unsigned row = 0; row < 2 * Tall; row++) now[row] = {};
        EMUV_UNROLL for (unsigned tile = 0; tile < Tiles; tile++)
            EMUV_UNROLL for (unsigned i = 0; i < 4; i++) x[tile][i] = {};
        if (steps * stride + own < left) {
            place.read(now, 0);
            place.read(x, 0);
        }
        add_step<Pairs, Weights, Tiles, Tall>(sum, now, x);
    }
    __shared__ float sums[warps][Tiles * 8][rows];
    EMUV_UNROLL for (unsigned tall = 0; tall < Tall; tall++)
        EMUV_UNROLL for (unsigned tile = 0; tile < Tiles;
                         tile++) EMUV_UNROLL for (unsigned i = 0; i < 4; i++)
            sums[warp][tile * 8 + 2 * t + i % 2][tall * 16 + g + i / 2 * 8] =
                sum[tall][tile][i];
    __syncthreads();
    const float tensor_scale = *of.tensor_scale;
    for (unsigned i = threadIdx.x; i < Tiles * 8 * rows; i += threads) {
        const unsigned x_row = i / rows;
        const unsigned row = i % rows;
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

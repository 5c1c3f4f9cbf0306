// SPDX-License-Identifier: LGPL-2.1-or-later
// Four-bit codes and their scales, bit by bit: the same for host and card.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define EMUV_BOTH __host__ __device__ inline
#else
#define EMUV_BOTH inline
#endif

namespace emuv::kernels {

constexpr float largest_e2m1 = 6;
constexpr float largest_symmetric = 7;
constexpr float largest_e4m3 = 448;
constexpr float largest_fp16 = 65504;
constexpr std::uint8_t e4m3_nan = 0x7f;
constexpr std::uint16_t fp16_nan = 0x7e00;
constexpr std::uint16_t bf16_nan = 0x7fc0;

EMUV_BOTH std::uint32_t bits_of(float value)
{
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

EMUV_BOTH float float_of(std::uint32_t bits)
{
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

/// NaN or infinity.
EMUV_BOTH bool is_wild(float value)
{
    return (bits_of(value) & 0x7f800000U) == 0x7f800000U;
}

/// The magnitude of a finite number; 0 of NaN and infinity.
EMUV_BOTH float finite_magnitude(float value)
{
    return is_wild(value) ? 0.0F : float_of(bits_of(value) & 0x7fffffffU);
}

/// A number rounded to a smaller floating-point type: nearest, ties to even.
/// Without a sign; @p value is finite and not negative. The result may be past
/// the largest finite number of the type.
/// @param mantissa  bits of the type's mantissa.
/// @param lowest  exponent of its smallest normal number.
EMUV_BOTH std::uint32_t round_small(float value, unsigned mantissa, int lowest)
{
    const std::uint32_t bits = bits_of(value);
    const int exponent = static_cast<int>(bits >> 23U) - 127;
    if (exponent < lowest) {
        // In units of the smallest number. Exact: a power of two.
        const int shift = static_cast<int>(mantissa) - lowest;
        return static_cast<std::uint32_t>(rintf(ldexpf(value, shift)));
    }
    const unsigned dropped = 23U - mantissa;
    const std::uint32_t half = (1U << (dropped - 1U)) - 1U;
    const std::uint32_t rounded =
        (bits + half + ((bits >> dropped) & 1U)) >> dropped;
    return rounded - (static_cast<std::uint32_t>(127 + lowest - 1) << mantissa);
}

/// A scale that is finite and not negative; never more than the largest.
EMUV_BOTH std::uint8_t to_e4m3(float value)
{
    const std::uint32_t code = round_small(value, 3, -6);
    return static_cast<std::uint8_t>(code > 0x7eU ? 0x7eU : code);
}

/// The value of E4M3's bits, whichever they are.
EMUV_BOTH float from_e4m3(std::uint8_t bits)
{
    const unsigned exponent = (bits >> 3U) & 15U;
    const unsigned mantissa = bits & 7U;
    float value = 0;
    if ((bits & 0x7fU) == e4m3_nan)
        value = float_of(0x7fc00000U);
    else if (exponent == 0)
        value = static_cast<float>(mantissa) * 0.001953125F; // 2^-9
    else
        value = float_of(((exponent + 120U) << 23U) | (mantissa << 20U));
    return (bits & 0x80U) != 0 ? -value : value;
}

/// A scale that is finite and not negative; never more than the largest.
EMUV_BOTH std::uint16_t to_fp16_scale(float value)
{
    const std::uint32_t code = round_small(value, 10, -14);
    return static_cast<std::uint16_t>(code > 0x7bffU ? 0x7bffU : code);
}

/// Any number, with infinity beyond the largest.
EMUV_BOTH std::uint16_t to_fp16(float value)
{
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    std::uint32_t code = 0;
    if (magnitude > 0x7f800000U)
        code = fp16_nan;
    else if (magnitude >= 0x47800000U) // 65536
        code = 0x7c00U;
    else
        code = round_small(float_of(magnitude), 10, -14);
    return static_cast<std::uint16_t>(sign | code);
}

EMUV_BOTH float from_fp16(std::uint16_t bits)
{
    const std::uint32_t exponent = (bits >> 10U) & 31U;
    const std::uint32_t mantissa = bits & 0x3ffU;
    float value = 0;
    if (exponent == 0)
        value = static_cast<float>(mantissa) * 5.9604644775390625e-8F; // 2^-24
    else if (exponent == 31)
        value = float_of(0x7f800000U | (mantissa << 13U));
    else
        value = float_of(((exponent + 112U) << 23U) | (mantissa << 13U));
    return (bits & 0x8000U) != 0 ? -value : value;
}

/// Any number; NaN stays NaN.
EMUV_BOTH std::uint16_t to_bf16(float value)
{
    const std::uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U)
        return static_cast<std::uint16_t>(bf16_nan | ((bits >> 16U) & 0x8000U));
    return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >>
                                      16U);
}

EMUV_BOTH float from_bf16(std::uint16_t bits)
{
    return float_of(static_cast<std::uint32_t>(bits) << 16U);
}

/// The nearest code; of two, the one whose mantissa is even. @p value is finite
/// or infinite.
EMUV_BOTH std::uint8_t to_e2m1(float value)
{
    const std::uint32_t sign = (bits_of(value) >> 28U) & 8U;
    const float size = float_of(bits_of(value) & 0x7fffffffU);
    // Halfway between two codes belongs to the even one.
    std::uint32_t code = 0;
    code += static_cast<std::uint32_t>(size > 0.25F);
    code += static_cast<std::uint32_t>(size >= 0.75F);
    code += static_cast<std::uint32_t>(size > 1.25F);
    code += static_cast<std::uint32_t>(size >= 1.75F);
    code += static_cast<std::uint32_t>(size > 2.5F);
    code += static_cast<std::uint32_t>(size >= 3.5F);
    code += static_cast<std::uint32_t>(size > 5.0F);
    return static_cast<std::uint8_t>(sign | code);
}

/// The value of the low four bits.
EMUV_BOTH float from_e2m1(std::uint8_t code)
{
    const unsigned exponent = (code >> 1U) & 3U;
    const unsigned mantissa = code & 1U;
    const float size =
        exponent == 0
            ? 0.5F * static_cast<float>(mantissa)
            : float_of(((exponent + 126U) << 23U) | (mantissa << 22U));
    return (code & 8U) != 0 ? -size : size;
}

/// The nearest of −7 to 7, ties to even, as two's complement.
EMUV_BOTH std::uint8_t to_symmetric(float value)
{
    float whole = rintf(value);
    whole = whole > largest_symmetric ? largest_symmetric : whole;
    whole = whole < -largest_symmetric ? -largest_symmetric : whole;
    return static_cast<std::uint8_t>(static_cast<int>(whole) & 15);
}

/// The value of the low four bits.
EMUV_BOTH float from_symmetric(std::uint8_t code)
{
    return static_cast<float>(static_cast<int>((code & 15U) ^ 8U) - 8);
}

/// The tensor scale for numbers whose largest finite magnitude is @p largest.
EMUV_BOTH float tensor_scale_of(float largest, float largest_code,
                                float largest_scale, bool at_least_one)
{
    const float scale = largest / largest_code / largest_scale;
    return at_least_one && scale < 1 ? 1.0F : scale;
}

/// The scale of a block of E2M1 codes, not yet rounded, in units of the tensor
/// scale; NaN if a number is NaN or infinity.
EMUV_BOTH float block_scale_of(const float *numbers, unsigned count,
                               float tensor_scale)
{
    float largest = 0;
    bool wild = false;
    for (unsigned i = 0; i < count; i++) {
        const float size = finite_magnitude(numbers[i]);
        wild = wild || is_wild(numbers[i]);
        largest = size > largest ? size : largest;
    }
    if (wild)
        return float_of(0x7fc00000U);
    if (tensor_scale == 0)
        return 0;
    return largest / largest_e2m1 / tensor_scale;
}

/// Eight numbers as a word of codes, the first in the lowest bits. @p scale is
/// the block's times the tensor's; under a scale of 0 or NaN all codes are 0.
EMUV_BOTH std::uint32_t encode_word(const float *numbers, float scale,
                                    bool symmetric)
{
    std::uint32_t word = 0;
    if (scale == 0 || is_wild(scale))
        return word;
    for (unsigned i = 0; i < 8; i++) {
        const float over = numbers[i] / scale;
        const std::uint32_t code =
            symmetric ? to_symmetric(over) : to_e2m1(over);
        word |= code << (4U * i);
    }
    return word;
}

/// (word & mask) ^ with, in one instruction: compilers make two where both are
/// constants.
EMUV_BOTH std::uint32_t masked_xor(std::uint32_t word, std::uint32_t mask,
                                   std::uint32_t with)
{
#ifdef __CUDA_ARCH__
    std::uint32_t out = 0;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;"
        : "=r"(out)
        : "r"(word), "r"(mask), "r"(with));
    return out;
#else
    return (word & mask) ^ with;
#endif
}

/// Shifts to the left, or to the right where @p by is negative.
EMUV_BOTH std::uint32_t shifted(std::uint32_t word, int by)
{
    return by < 0 ? word >> static_cast<unsigned>(-by)
                  : word << static_cast<unsigned>(by);
}

/// Pairs of E2M1 codes as pairs of FP16 numbers, 2^-14 times as large. Of a
/// word of eight codes, pair i has code i in its low half and code i + 4 in its
/// high.
EMUV_BOTH std::uint32_t e2m1_pair_as_fp16(std::uint32_t word, int pair)
{
    return (shifted(word, 9 - 4 * pair) & 0x0e000e00U) |
           (shifted(word, 12 - 4 * pair) & 0x80008000U);
}

/// The same in BF16, 2^-126 times as large.
EMUV_BOTH std::uint32_t e2m1_pair_as_bf16(std::uint32_t word, int pair)
{
    return (shifted(word, 6 - 4 * pair) & 0x01c001c0U) |
           (shifted(word, 12 - 4 * pair) & 0x80008000U);
}

/// Pairs of symmetric codes, as FP16 numbers plus 1032.
EMUV_BOTH std::uint32_t symmetric_pair_as_fp16(std::uint32_t word, int pair)
{
    return masked_xor(shifted(word, -4 * pair), 0x000f000fU, 0x64086408U);
}

/// Pairs of symmetric codes, as BF16 numbers plus 136.
EMUV_BOTH std::uint32_t symmetric_pair_as_bf16(std::uint32_t word, int pair)
{
    return masked_xor(shifted(word, -4 * pair), 0x000f000fU, 0x43084308U);
}

} // namespace emuv::kernels

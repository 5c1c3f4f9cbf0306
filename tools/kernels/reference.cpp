// SPDX-License-Identifier: LGPL-2.1-or-later
// Encoding and decoding on the host: the truth that the card is held against.
#include "checks.hpp"
#include "codes.hpp"

#include <algorithm>
#include <array>

namespace emuv::kernels {

namespace {

constexpr std::uint64_t word_codes = 8;
constexpr std::uint64_t most_block = 32;

template <typename Value>
Value load(const void *base, std::uint64_t index)
{
    Value value{};
    std::memcpy(&value, static_cast<const char *>(base) + index * sizeof(Value),
                sizeof(Value));
    return value;
}

template <typename Value>
void store(void *base, std::uint64_t index, Value value)
{
    std::memcpy(static_cast<char *>(base) + index * sizeof(Value), &value,
                sizeof(Value));
}

float number(const emuv_kernels_plain &of, std::uint64_t row,
             std::uint64_t column)
{
    const std::uint64_t at = row * of.stride + column;
    switch (of.type) {
    case EMUV_KERNELS_FP16:
        return from_fp16(load<std::uint16_t>(of.data, at));
    case EMUV_KERNELS_BF16:
        return from_bf16(load<std::uint16_t>(of.data, at));
    default:
        return load<float>(of.data, at);
    }
}

void set_number(const emuv_kernels_plain &of, std::uint64_t row,
                std::uint64_t column, float value)
{
    const std::uint64_t at = row * of.stride + column;
    switch (of.type) {
    case EMUV_KERNELS_FP16:
        return store(of.data, at, to_fp16(value));
    case EMUV_KERNELS_BF16:
        return store(of.data, at, to_bf16(value));
    default:
        return store(of.data, at, value);
    }
}

// The tensor scale; NaN where the format has only this one, and a number is
// NaN or infinity.
float find_tensor_scale(const emuv_kernels_plain &from,
                        const emuv_kernels_matrix &to)
{
    float largest = 0;
    bool wild = false;
    for (std::uint64_t row = 0; row < to.rows; row++)
        for (std::uint64_t column = 0; column < to.columns; column++) {
            const float value = number(from, row, column);
            wild = wild || is_wild(value);
            largest = std::max(largest, finite_magnitude(value));
        }
    if (to.format.code == EMUV_KERNELS_SYMMETRIC)
        return wild ? float_of(0x7fc00000U)
                    : tensor_scale_of(largest, largest_symmetric, 1, false);
    return to.format.scale == EMUV_KERNELS_E4M3
               ? tensor_scale_of(largest, largest_e2m1, largest_e4m3, false)
               : tensor_scale_of(largest, largest_e2m1, largest_fp16, true);
}

// Rounds a block's scale and keeps it. Returns its value.
float keep_scale(const emuv_kernels_matrix &to, std::uint64_t index,
                 float scale)
{
    if (to.format.scale == EMUV_KERNELS_E4M3) {
        const std::uint8_t bits = is_wild(scale) ? e4m3_nan : to_e4m3(scale);
        store(to.scales, index, bits);
        return from_e4m3(bits);
    }
    const std::uint16_t bits = is_wild(scale) ? fp16_nan : to_fp16_scale(scale);
    store(to.scales, index, bits);
    return from_fp16(bits);
}

float kept_scale(const emuv_kernels_matrix &from, std::uint64_t index)
{
    switch (from.format.scale) {
    case EMUV_KERNELS_E4M3:
        return from_e4m3(load<std::uint8_t>(from.scales, index));
    case EMUV_KERNELS_FP16_SCALE:
        return from_fp16(load<std::uint16_t>(from.scales, index));
    default:
        return 1;
    }
}

std::uint64_t block_of(const emuv_kernels_format &is)
{
    return is.block == 0 ? most_block : is.block;
}

} // namespace

} // namespace emuv::kernels

using namespace emuv::kernels;

int emuv_kernels_encode_host(const emuv_kernels_plain *from,
                             const emuv_kernels_matrix *to)
{
    if (const int bad = check_matrix(to); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_plain(from, to->columns); bad != EMUV_KERNELS_OK)
        return bad;
    const bool symmetric = to->format.code == EMUV_KERNELS_SYMMETRIC;
    const std::uint64_t block = block_of(to->format);
    const float tensor_scale = find_tensor_scale(*from, *to);
    *to->tensor_scale = tensor_scale;
    std::array<float, most_block> numbers{};
    for (std::uint64_t row = 0; row < to->rows; row++)
        for (std::uint64_t begin = 0; begin < to->columns; begin += block) {
            for (std::uint64_t i = 0; i < block; i++)
                numbers[i] = number(*from, row, begin + i);
            const std::uint64_t first = row * to->columns + begin;
            float scale = tensor_scale;
            if (!symmetric)
                scale *= keep_scale(*to, first / block,
                                    block_scale_of(numbers.data(),
                                                   static_cast<unsigned>(block),
                                                   tensor_scale));
            for (std::uint64_t i = 0; i < block; i += word_codes)
                store(to->codes, (first + i) / word_codes,
                      encode_word(&numbers[i], scale, symmetric));
        }
    return EMUV_KERNELS_OK;
}

int emuv_kernels_decode_host(const emuv_kernels_matrix *from,
                             const emuv_kernels_plain *to)
{
    if (const int bad = check_matrix(from); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_plain(to, from->columns); bad != EMUV_KERNELS_OK)
        return bad;
    const bool symmetric = from->format.code == EMUV_KERNELS_SYMMETRIC;
    const std::uint64_t block = block_of(from->format);
    for (std::uint64_t row = 0; row < from->rows; row++)
        for (std::uint64_t column = 0; column < from->columns; column++) {
            const std::uint64_t at = row * from->columns + column;
            const auto pair = load<std::uint8_t>(from->codes, at / 2);
            const auto code =
                static_cast<std::uint8_t>((pair >> (4 * (at % 2))) & 15);
            const float scale =
                kept_scale(*from, at / block) * *from->tensor_scale;
            set_number(*to, row, column,
                       (symmetric ? from_symmetric(code) : from_e2m1(code)) *
                           scale);
        }
    return EMUV_KERNELS_OK;
}

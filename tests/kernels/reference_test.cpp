// SPDX-License-Identifier: GPL-2.0-or-later
// Encoding and decoding on the host.
#include "coded.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace emuv::kernels {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

void encode(const plain_matrix &from, const coded_matrix &to)
{
    ASSERT_EQ(emuv_kernels_encode_host(&from.is, &to.is), EMUV_KERNELS_OK);
}

void decode(const coded_matrix &from, const plain_matrix &to)
{
    ASSERT_EQ(emuv_kernels_decode_host(&from.is, &to.is), EMUV_KERNELS_OK);
}

emuv_kernels_format format_of(unsigned scale, unsigned block)
{
    return {sizeof(emuv_kernels_format),
            scale == EMUV_KERNELS_NO_SCALE ? EMUV_KERNELS_SYMMETRIC
                                           : EMUV_KERNELS_E2M1,
            scale, block};
}

TEST(ReferenceTest, sizes_are_half_a_byte_a_number_and_a_scale_a_block)
{
    std::uint64_t bytes = 0;
    for (const auto &format : formats()) {
        EXPECT_EQ(emuv_kernels_code_bytes(&format, 3, 64, &bytes),
                  EMUV_KERNELS_OK);
        EXPECT_EQ(bytes, 3 * 64 / 2);
    }
    const auto scales = [&](unsigned scale, unsigned block) {
        const auto format = format_of(scale, block);
        EXPECT_EQ(emuv_kernels_scale_bytes(&format, 3, 64, &bytes),
                  EMUV_KERNELS_OK);
        return bytes;
    };
    EXPECT_EQ(scales(EMUV_KERNELS_E4M3, 16), 12);
    EXPECT_EQ(scales(EMUV_KERNELS_E4M3, 32), 6);
    EXPECT_EQ(scales(EMUV_KERNELS_FP16_SCALE, 16), 24);
    EXPECT_EQ(scales(EMUV_KERNELS_FP16_SCALE, 32), 12);
    EXPECT_EQ(scales(EMUV_KERNELS_NO_SCALE, 0), 0);
}

// Each scale of E4M3 in a block of its own, with each code under it.
TEST(ReferenceTest, all_codes_under_all_e4m3_scales_come_back_exactly)
{
    for (const unsigned block : {16U, 32U}) {
        constexpr unsigned rows = 0x7e;
        plain_matrix from(EMUV_KERNELS_FP32, rows, 32);
        for (unsigned row = 0; row < rows; row++)
            for (unsigned column = 0; column < 32; column++)
                from.set(row, column,
                         from_e4m3(static_cast<std::uint8_t>(row + 1)) *
                             from_e2m1(static_cast<std::uint8_t>(column % 16)));
        const coded_matrix coded(format_of(EMUV_KERNELS_E4M3, block), rows, 32);
        const plain_matrix back(EMUV_KERNELS_FP32, rows, 32);
        encode(from, coded);
        decode(coded, back);
        EXPECT_EQ(coded.tensor_scale, 1);
        for (unsigned row = 0; row < rows; row++)
            for (unsigned column = 0; column < 32; column++) {
                ASSERT_EQ(back.get(row, column), from.get(row, column));
                // The first of two columns is in the low half of the byte.
                const unsigned pair = coded.code_data()[row * 16 + column / 2];
                ASSERT_EQ(pair >> (4 * (column % 2)) & 15U, column % 16);
            }
    }
}

TEST(ReferenceTest, all_codes_under_all_fp16_scales_come_back_exactly)
{
    constexpr unsigned rows = 0x7bff;
    const plain_matrix from(EMUV_KERNELS_FP32, rows, 32, 0);
    for (unsigned row = 0; row < rows; row++)
        for (unsigned column = 0; column < 32; column++)
            from.set(row, column,
                     from_fp16(static_cast<std::uint16_t>(row + 1)) *
                         from_e2m1(static_cast<std::uint8_t>(column % 16)));
    const coded_matrix coded(format_of(EMUV_KERNELS_FP16_SCALE, 16), rows, 32);
    const plain_matrix back(EMUV_KERNELS_FP32, rows, 32, 0);
    encode(from, coded);
    decode(coded, back);
    EXPECT_EQ(coded.tensor_scale, 1);
    EXPECT_EQ(std::memcmp(from.is.data, back.is.data,
                          std::size_t{rows} * 32 * sizeof(float)),
              0);
}

// The error of each number is at most half the distance between the codes that
// surround it, and what its block's scale lost by rounding.
TEST(ReferenceTest, numbers_come_back_within_half_a_step)
{
    for (const auto &format : formats())
        for (const unsigned type :
             {EMUV_KERNELS_FP32, EMUV_KERNELS_FP16, EMUV_KERNELS_BF16}) {
            const plain_matrix from(type, 5, 96);
            const plain_matrix back(EMUV_KERNELS_FP32, 5, 96);
            const coded_matrix coded(format, 5, 96);
            from.fill(5, 7);
            encode(from, coded);
            decode(coded, back);
            const unsigned block = format.block == 0 ? 480 : format.block;
            for (unsigned begin = 0; begin < 480; begin += block) {
                float largest = 0;
                for (unsigned i = begin; i < begin + block; i++)
                    largest =
                        std::max(largest, std::fabs(from.get(i / 96, i % 96)));
                // E2M1's widest step is 2 of 6, and E4M3's scale is 1/16 off.
                const float most =
                    format.block == 0 ? largest / 14 : largest / 6 * 1.07F;
                for (unsigned i = begin; i < begin + block; i++)
                    ASSERT_NEAR(back.get(i / 96, i % 96),
                                from.get(i / 96, i % 96), most * 1.0001F)
                        << name_of(format);
            }
        }
}

TEST(ReferenceTest, decoded_numbers_encode_to_the_same_again)
{
    // Not with E4M3: there the tensor scale may come out a bit apart.
    for (const auto &format : {format_of(EMUV_KERNELS_FP16_SCALE, 16),
                               format_of(EMUV_KERNELS_FP16_SCALE, 32),
                               format_of(EMUV_KERNELS_NO_SCALE, 0)}) {
        const plain_matrix from(EMUV_KERNELS_FP32, 4, 64);
        const plain_matrix back(EMUV_KERNELS_FP32, 4, 64);
        const plain_matrix again(EMUV_KERNELS_FP32, 4, 64);
        const coded_matrix coded(format, 4, 64);
        from.fill(4, 3);
        encode(from, coded);
        decode(coded, back);
        encode(back, coded);
        decode(coded, again);
        for (unsigned i = 0; i < 256; i++)
            ASSERT_EQ(again.get(i / 64, i % 64), back.get(i / 64, i % 64));
    }
}

TEST(ReferenceTest, zeros_stay_zeros_with_scale_and_codes_zero)
{
    for (const auto &format : formats()) {
        const plain_matrix from(EMUV_KERNELS_FP32, 2, 32);
        const plain_matrix back(EMUV_KERNELS_FP32, 2, 32);
        const coded_matrix coded(format, 2, 32);
        from.set(0, 3, -0.0F);
        encode(from, coded);
        for (unsigned i = 0; i < 32; i++)
            EXPECT_EQ(coded.code_data()[i], 0);
        decode(coded, back);
        for (unsigned i = 0; i < 64; i++) {
            EXPECT_EQ(back.get(i / 32, i % 32), 0);
            EXPECT_FALSE(std::signbit(back.get(i / 32, i % 32)));
        }
    }
}

TEST(ReferenceTest, a_block_too_small_for_its_scale_becomes_zeros)
{
    const plain_matrix from(EMUV_KERNELS_FP32, 1, 64);
    const plain_matrix back(EMUV_KERNELS_FP32, 1, 64);
    const coded_matrix coded(format_of(EMUV_KERNELS_E4M3, 32), 1, 64);
    from.set(0, 0, 1);
    // Less than half of the smallest scale.
    from.set(0, 40, 0.99F / 448 / 1024);
    encode(from, coded);
    decode(coded, back);
    EXPECT_NEAR(back.get(0, 0), 1, 1e-6);
    EXPECT_EQ(back.get(0, 40), 0);
    from.set(0, 40, 1.01F / 448 / 1024);
    encode(from, coded);
    decode(coded, back);
    EXPECT_GT(back.get(0, 40), 0);
}

TEST(ReferenceTest, a_block_with_nan_or_infinity_is_nan_and_no_other_is)
{
    for (const auto &format : formats())
        for (const float wild : {std::nanf(""), infinity, -infinity}) {
            const plain_matrix from(EMUV_KERNELS_FP32, 2, 64);
            const plain_matrix back(EMUV_KERNELS_BF16, 2, 64);
            const coded_matrix coded(format, 2, 64);
            from.fill(2, 5);
            from.set(1, 37, wild);
            encode(from, coded);
            decode(coded, back);
            for (unsigned i = 0; i < 128; i++) {
                const bool its_own =
                    format.block == 0 || i / format.block == 101 / format.block;
                EXPECT_EQ(std::isnan(back.get(i / 64, i % 64)), its_own)
                    << name_of(format) << ", " << i;
            }
        }
}

TEST(ReferenceTest, magnitudes_beyond_fp16s_scales_use_the_tensor_scale)
{
    const plain_matrix from(EMUV_KERNELS_FP32, 1, 32);
    const plain_matrix back(EMUV_KERNELS_FP32, 1, 32);
    const coded_matrix coded(format_of(EMUV_KERNELS_FP16_SCALE, 32), 1, 32);
    from.set(0, 0, 6e20F);
    from.set(0, 1, -1e20F);
    encode(from, coded);
    decode(coded, back);
    EXPECT_GT(coded.tensor_scale, 1);
    EXPECT_NEAR(back.get(0, 0) / 6e20F, 1, 1e-6);
    EXPECT_NEAR(back.get(0, 1) / -1e20F, 1, 1e-6);
}

TEST(ReferenceTest, the_smallest_and_the_largest_floats_are_no_trouble)
{
    for (const auto &format : formats())
        for (const float value : {std::numeric_limits<float>::denorm_min(),
                                  std::numeric_limits<float>::min(),
                                  std::numeric_limits<float>::max()}) {
            const plain_matrix from(EMUV_KERNELS_FP32, 1, 32);
            const plain_matrix back(EMUV_KERNELS_FP32, 1, 32);
            const coded_matrix coded(format, 1, 32);
            from.set(0, 9, value);
            encode(from, coded);
            decode(coded, back);
            for (unsigned i = 0; i < 32; i++)
                EXPECT_TRUE(std::isfinite(back.get(0, i))) << name_of(format);
        }
}

TEST(ReferenceTest, what_lies_between_rows_is_neither_read_nor_written)
{
    const plain_matrix from(EMUV_KERNELS_FP32, 2, 32);
    const plain_matrix back(EMUV_KERNELS_FP32, 2, 32);
    const coded_matrix coded(format_of(EMUV_KERNELS_E4M3, 16), 2, 32);
    from.fill(2, 1);
    for (unsigned i = 32; i < from.is.stride; i++) {
        from.set(0, i, std::nanf(""));
        back.set(0, i, 77);
    }
    encode(from, coded);
    decode(coded, back);
    for (unsigned i = 0; i < 32; i++)
        EXPECT_TRUE(std::isfinite(back.get(0, i)));
    for (unsigned i = 32; i < back.is.stride; i++)
        EXPECT_EQ(back.get(0, i), 77);
}

// A change of one argument, and the answer to it.
struct wrong
{
    const char *what;
    int answer;
    void (*change)(emuv_kernels_matrix &, emuv_kernels_plain &);
};

template <typename Value>
void *behind(void *at)
{
    return static_cast<char *>(at) + sizeof(Value);
}

using matrix = emuv_kernels_matrix;
using plain = emuv_kernels_plain;

const std::vector<wrong> mistakes = {
    {"no rows", EMUV_KERNELS_BAD_SHAPE, [](matrix &m, plain &) { m.rows = 0; }},
    {"no columns", EMUV_KERNELS_BAD_SHAPE,
     [](matrix &m, plain &) { m.columns = 0; }},
    {"odd columns", EMUV_KERNELS_BAD_SHAPE,
     [](matrix &m, plain &) { m.columns = 63; }},
    {"half a step of columns", EMUV_KERNELS_BAD_SHAPE,
     [](matrix &m, plain &) { m.columns = 48; }},
    {"too many columns", EMUV_KERNELS_BAD_SHAPE,
     [](matrix &m, plain &) { m.columns = (1U << 20U) + 32; }},
    {"too many rows", EMUV_KERNELS_BAD_SHAPE,
     [](matrix &m, plain &) { m.rows = UINT64_MAX / 32; }},
    {"another structure", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &m, plain &) { m.size--; }},
    {"a flag that is none", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &m, plain &) { m.flags = EMUV_KERNELS_REACHED << 1U; }},
    {"another format's structure", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &m, plain &) { m.format.size = 0; }},
    {"an unknown code", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &m, plain &) { m.format.code = 3; }},
    {"an unknown scale", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &m, plain &) { m.format.scale = 3; }},
    {"no scale", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &m, plain &) { m.format.scale = EMUV_KERNELS_NO_SCALE; }},
    {"a block of 64", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &m, plain &) { m.format.block = 64; }},
    {"blocks without their scales", EMUV_KERNELS_BAD_POINTER,
     [](matrix &m, plain &) { m.scales = nullptr; }},
    {"no codes", EMUV_KERNELS_BAD_POINTER,
     [](matrix &m, plain &) { m.codes = nullptr; }},
    {"no tensor scale", EMUV_KERNELS_BAD_POINTER,
     [](matrix &m, plain &) { m.tensor_scale = nullptr; }},
    {"no data", EMUV_KERNELS_BAD_POINTER,
     [](matrix &, plain &p) { p.data = nullptr; }},
    {"codes askew", EMUV_KERNELS_BAD_ALIGNMENT,
     [](matrix &m, plain &) { m.codes = behind<double>(m.codes); }},
    {"scales askew", EMUV_KERNELS_BAD_ALIGNMENT,
     [](matrix &m, plain &) { m.scales = behind<short>(m.scales); }},
    {"data askew", EMUV_KERNELS_BAD_ALIGNMENT,
     [](matrix &, plain &p) { p.data = behind<float>(p.data); }},
    {"an unknown type", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &, plain &p) { p.type = 4; }},
    {"no type", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &, plain &p) { p.type = 0; }},
    {"another structure of numbers", EMUV_KERNELS_BAD_FORMAT,
     [](matrix &, plain &p) { p.size++; }},
    {"rows that overlap", EMUV_KERNELS_BAD_STRIDE,
     [](matrix &, plain &p) { p.stride = 56; }},
    {"rows askew", EMUV_KERNELS_BAD_STRIDE,
     [](matrix &, plain &p) { p.stride = 68; }},
};

TEST(ReferenceTest, wrong_arguments_are_errors_on_host_and_card_alike)
{
    const plain_matrix numbers(EMUV_KERNELS_FP16, 4, 64);
    const coded_matrix coded(format_of(EMUV_KERNELS_E4M3, 16), 4, 64);
    for (const wrong &each : mistakes) {
        matrix m = coded.is;
        plain p = numbers.is;
        each.change(m, p);
        EXPECT_EQ(emuv_kernels_encode_host(&p, &m), each.answer) << each.what;
        EXPECT_EQ(emuv_kernels_decode_host(&m, &p), each.answer) << each.what;
        EXPECT_EQ(emuv_kernels_encode(&p, &m, nullptr), each.answer)
            << each.what;
        EXPECT_EQ(emuv_kernels_decode(&m, &p, nullptr), each.answer)
            << each.what;
        EXPECT_EQ(emuv_kernels_multiply(&m, &p, &numbers.is, 1, nullptr, 0,
                                        nullptr, nullptr),
                  each.answer)
            << each.what;
    }
    EXPECT_EQ(coded.tensor_scale, -1);
    matrix symmetric = coded.is;
    symmetric.format = format_of(EMUV_KERNELS_NO_SCALE, 0);
    EXPECT_EQ(emuv_kernels_encode_host(&numbers.is, &symmetric),
              EMUV_KERNELS_BAD_POINTER);
    EXPECT_EQ(emuv_kernels_encode_host(nullptr, &coded.is),
              EMUV_KERNELS_BAD_POINTER);
    EXPECT_EQ(emuv_kernels_decode_host(nullptr, &numbers.is),
              EMUV_KERNELS_BAD_POINTER);
}

TEST(ReferenceTest, a_product_asks_for_what_it_needs)
{
    const coded_matrix w(format_of(EMUV_KERNELS_E4M3, 16), 32, 64);
    const plain_matrix x(EMUV_KERNELS_FP16, 17, 64);
    const plain_matrix y(EMUV_KERNELS_FP16, 17, 32);
    const plain_matrix narrow(EMUV_KERNELS_FP16, 17, 8);
    const plain_matrix other(EMUV_KERNELS_BF16, 17, 64);
    const plain_matrix single(EMUV_KERNELS_FP32, 17, 64);
    auto workspace = bytes_for(16UL * 64 * 2);
    int handle = 0;
    const auto multiply = [&](const plain &from, const plain &to,
                              std::uint64_t count, void *space,
                              std::uint64_t bytes, void *blas) {
        return emuv_kernels_multiply(&w.is, &from, &to, count, space, bytes,
                                     blas, nullptr);
    };
    EXPECT_EQ(multiply(other.is, y.is, 1, nullptr, 0, nullptr),
              EMUV_KERNELS_BAD_FORMAT);
    EXPECT_EQ(multiply(single.is, single.is, 1, nullptr, 0, nullptr),
              EMUV_KERNELS_BAD_FORMAT);
    EXPECT_EQ(multiply(x.is, narrow.is, 1, nullptr, 0, nullptr),
              EMUV_KERNELS_BAD_STRIDE);
    EXPECT_EQ(multiply(x.is, y.is, 17, nullptr, 0, &handle),
              EMUV_KERNELS_NO_WORKSPACE);
    EXPECT_EQ(multiply(x.is, y.is, 17, workspace.data(), 2047, &handle),
              EMUV_KERNELS_NO_WORKSPACE);
    EXPECT_EQ(multiply(x.is, y.is, 17, behind<double>(workspace.data()), 2048,
                       &handle),
              EMUV_KERNELS_BAD_ALIGNMENT);
    EXPECT_EQ(multiply(x.is, y.is, 17, workspace.data(), 2048, nullptr),
              EMUV_KERNELS_NO_CUBLAS);
    EXPECT_EQ(multiply(x.is, y.is, UINT64_MAX, workspace.data(), 2048, &handle),
              EMUV_KERNELS_BAD_SHAPE);
    // All is right but that host memory is no card's, or there is no card.
    const int last = multiply(x.is, y.is, 1, nullptr, 0, nullptr);
    EXPECT_TRUE(last == EMUV_KERNELS_NO_CARD || last == EMUV_KERNELS_BAD_DEVICE)
        << last;
}

TEST(ReferenceTest, sizes_of_wrong_shapes_leave_the_answer_alone)
{
    const auto format = format_of(EMUV_KERNELS_E4M3, 16);
    std::uint64_t bytes = 5;
    EXPECT_EQ(emuv_kernels_code_bytes(&format, 1, 33, &bytes),
              EMUV_KERNELS_BAD_SHAPE);
    EXPECT_EQ(emuv_kernels_scale_bytes(&format, 0, 32, &bytes),
              EMUV_KERNELS_BAD_SHAPE);
    EXPECT_EQ(emuv_kernels_scale_bytes(nullptr, 1, 32, &bytes),
              EMUV_KERNELS_BAD_POINTER);
    EXPECT_EQ(emuv_kernels_code_bytes(&format, 1, 32, nullptr),
              EMUV_KERNELS_BAD_POINTER);
    EXPECT_EQ(bytes, 5);
}

TEST(ReferenceTest, each_status_has_a_line_of_its_own)
{
    std::vector<std::string> texts;
    for (int status = -1; status <= EMUV_KERNELS_FAILED; status++)
        texts.emplace_back(emuv_kernels_text(status));
    std::sort(texts.begin(), texts.end());
    EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
    EXPECT_STREQ(emuv_kernels_text(99), emuv_kernels_text(-1));
}

} // namespace
} // namespace emuv::kernels

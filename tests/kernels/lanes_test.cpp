// SPDX-License-Identifier: GPL-2.0-or-later
// The card's kernels, with a thread of the host for each of a block's.
#include "coded.hpp"
#include "lanes.hpp"

#include <cmath>
#include <cstring>

namespace emuv::kernels {
namespace {

// Encodes as the card does.
template <unsigned Type>
void encode_by_lanes(const plain_matrix &from, const coded_matrix &to)
{
    const auto *const data =
        static_cast<const typename number_of<Type>::kept *>(from.is.data);
    const coded seen_as = seen(to.is);
    *to.is.tensor_scale = 0;
    lanes::run(2, 64,
               [&] { find_largest<Type>(data, from.is.stride, seen_as); });
    lanes::run(1, 1, [&] { settle_tensor_scale(seen_as); });
    lanes::run(2, 64, [&] {
        if (seen_as.block == 16)
            encode_blocks<Type, 16>(data, from.is.stride, seen_as);
        else
            encode_blocks<Type, 32>(data, from.is.stride, seen_as);
    });
}

template <unsigned Type>
void expect_same_bytes(const plain_matrix &from)
{
    for (const auto &format : formats()) {
        const coded_matrix by_host(format, 5, 96);
        const coded_matrix by_lanes(format, 5, 96);
        ASSERT_EQ(emuv_kernels_encode_host(&from.is, &by_host.is),
                  EMUV_KERNELS_OK);
        encode_by_lanes<Type>(from, by_lanes);
        EXPECT_EQ(bits_of(by_lanes.tensor_scale), bits_of(by_host.tensor_scale))
            << name_of(format);
        EXPECT_EQ(std::memcmp(by_lanes.is.codes, by_host.is.codes, 5 * 96 / 2),
                  0)
            << name_of(format);
        EXPECT_EQ(std::memcmp(by_lanes.scales.data(), by_host.scales.data(),
                              by_host.scales.size() * 16),
                  0)
            << name_of(format);

        plain_matrix decoded(from.is.type, 5, 96);
        plain_matrix wanted(from.is.type, 5, 96);
        ASSERT_EQ(emuv_kernels_decode_host(&by_host.is, &wanted.is),
                  EMUV_KERNELS_OK);
        // In two parts, as rows that go through a workspace.
        const coded seen_as = seen(by_lanes.is);
        auto *const out =
            static_cast<typename number_of<Type>::kept *>(decoded.is.data);
        lanes::run(1, 64, [&] {
            decode_words<Type>(seen_as, 0, 3, out, decoded.is.stride);
        });
        lanes::run(1, 64, [&] {
            decode_words<Type>(seen_as, 3, 2, out + 3 * decoded.is.stride,
                               decoded.is.stride);
        });
        for (unsigned row = 0; row < 5; row++)
            for (unsigned column = 0; column < 96; column++)
                ASSERT_EQ(bits_of(decoded.get(row, column)),
                          bits_of(wanted.get(row, column)))
                    << name_of(format);
    }
}

TEST(LanesTest, the_card_encodes_and_decodes_to_the_hosts_bytes)
{
    const plain_matrix single(EMUV_KERNELS_FP32, 5, 96);
    single.fill(5, 11);
    expect_same_bytes<EMUV_KERNELS_FP32>(single);
    const plain_matrix half(EMUV_KERNELS_FP16, 5, 96);
    half.fill(5, 12);
    expect_same_bytes<EMUV_KERNELS_FP16>(half);
    const plain_matrix bfloat(EMUV_KERNELS_BF16, 5, 96);
    bfloat.fill(5, 13);
    expect_same_bytes<EMUV_KERNELS_BF16>(bfloat);
}

TEST(LanesTest, the_card_treats_nan_infinity_and_zeros_as_the_host_does)
{
    const plain_matrix from(EMUV_KERNELS_FP32, 5, 96);
    from.fill(5, 14);
    for (unsigned column = 32; column < 64; column++)
        from.set(2, column, 0);
    expect_same_bytes<EMUV_KERNELS_FP32>(from);
    from.set(1, 40, std::nanf(""));
    from.set(4, 95, -HUGE_VALF);
    expect_same_bytes<EMUV_KERNELS_FP32>(from);
}

struct product_case
{
    unsigned outputs;
    unsigned inputs;
    unsigned count;
};

template <typename Pairs>
void multiply_by_lanes(const coded_matrix &w, const plain_matrix &x,
                       const plain_matrix &y, unsigned count)
{
    product_on_card of{};
    of.rows = w.is.rows;
    of.columns = w.is.columns;
    of.codes = static_cast<const uint4 *>(w.is.codes);
    of.scales = w.is.scales;
    of.tensor_scale = w.is.tensor_scale;
    of.x = static_cast<const uint4 *>(x.is.data);
    of.x_stride = x.is.stride / 8;
    of.y = static_cast<std::uint16_t *>(y.is.data);
    of.y_stride = y.is.stride;
    of.count = count;
    const auto run = [&](auto weights) {
        using chosen = decltype(weights);
        const unsigned tall = count <= 4 ? 1 : 2;
        const auto blocks =
            static_cast<unsigned>((of.rows + 16 * tall - 1) / (16 * tall));
        lanes::run(blocks, threads, [&] {
            if (count <= 4)
                multiply_fused<Pairs, chosen, 1, 1>(of);
            else if (count <= 8)
                multiply_fused<Pairs, chosen, 1, 2>(of);
            else
                multiply_fused<Pairs, chosen, 2, 2>(of);
        });
    };
    const auto &format = w.is.format;
    if (format.code == EMUV_KERNELS_SYMMETRIC)
        run(symmetric_weights<Pairs>());
    else if (format.scale == EMUV_KERNELS_E4M3)
        format.block == 16 ? run(e4m3_weights<Pairs, 16>())
                           : run(e4m3_weights<Pairs, 32>());
    else
        format.block == 16 ? run(fp16_weights<Pairs, 16>())
                           : run(fp16_weights<Pairs, 32>());
}

// Small whole numbers in x make all sums exact, so the result has one value.
template <typename Pairs>
void expect_product(unsigned type, const emuv_kernels_format &format,
                    const product_case &is)
{
    const plain_matrix weights(EMUV_KERNELS_FP32, is.outputs, is.inputs);
    const coded_matrix w(format, is.outputs, is.inputs);
    weights.fill(is.outputs, is.count, 1);
    ASSERT_EQ(emuv_kernels_encode_host(&weights.is, &w.is), EMUV_KERNELS_OK);
    // A power of two, or sums would be rounded twice.
    *w.is.tensor_scale = 0.25F;
    // Other programs' scales may have a sign.
    if (format.scale == EMUV_KERNELS_E4M3)
        static_cast<std::uint8_t *>(w.is.scales)[1] |= 0x80U;
    ASSERT_EQ(emuv_kernels_decode_host(&w.is, &weights.is), EMUV_KERNELS_OK);
    // Scales of FP16 have more bits than x.
    const plain_matrix rounded(type, is.outputs, is.inputs);
    for (unsigned n = 0; n < is.outputs; n++)
        for (unsigned k = 0; k < is.inputs; k++)
            rounded.set(n, k, weights.get(n, k));

    const plain_matrix x(type, is.count, is.inputs);
    for (unsigned m = 0; m < is.count; m++)
        for (unsigned k = 0; k < is.inputs; k++)
            x.set(m, k, static_cast<float>((m * 7 + k * 13) % 17) - 8);
    const plain_matrix y(type, is.count, is.outputs);
    for (unsigned m = 0; m < is.count; m++)
        for (unsigned n = 0; n < y.is.stride; n++)
            y.set(m, n, 99);
    multiply_by_lanes<Pairs>(w, x, y, is.count);
    for (unsigned m = 0; m < is.count; m++) {
        for (unsigned n = 0; n < is.outputs; n++) {
            double sum = 0;
            double size = 0;
            for (unsigned k = 0; k < is.inputs; k++) {
                const double one =
                    double{x.get(m, k)} * double{rounded.get(n, k)};
                sum += one;
                size += std::fabs(one);
            }
            const double step = type == EMUV_KERNELS_FP16 ? 0x1p-11 : 0x1p-8;
            ASSERT_NEAR(y.get(m, n), sum,
                        std::fabs(sum) * step + size * 0x1p-22)
                << name_of(format) << ", row " << m << ", output " << n;
        }
        for (unsigned n = is.outputs; n < y.is.stride; n++)
            ASSERT_EQ(y.get(m, n), 99);
    }
}

TEST(LanesTest, the_fused_product_is_that_of_the_decoded_weights)
{
    for (const auto &format : formats()) {
        // A whole tile; one that ends early in all directions; more columns
        // than eight warps take at once.
        for (const product_case &is :
             {product_case{16, 128, 4}, product_case{32, 128, 8},
              product_case{21, 224, 3}, product_case{37, 224, 5},
              product_case{5, 1184, 1}}) {
            expect_product<half_pairs>(EMUV_KERNELS_FP16, format, is);
            expect_product<bfloat_pairs>(EMUV_KERNELS_BF16, format, is);
        }
        expect_product<bfloat_pairs>(EMUV_KERNELS_BF16, format, {17, 160, 16});
        // Its sums are too large for FP16.
        expect_product<bfloat_pairs>(EMUV_KERNELS_BF16, format, {5, 2304, 6});
        expect_product<half_pairs>(EMUV_KERNELS_FP16, format, {16, 32, 9});
    }
}

TEST(LanesTest, a_block_of_nan_reaches_its_own_output_alone)
{
    for (const auto &format : formats()) {
        if (format.block == 0)
            continue;
        const plain_matrix weights(EMUV_KERNELS_FP32, 5, 96);
        const coded_matrix w(format, 5, 96);
        weights.fill(5, 2);
        weights.set(0, 0, std::nanf(""));
        ASSERT_EQ(emuv_kernels_encode_host(&weights.is, &w.is),
                  EMUV_KERNELS_OK);
        const plain_matrix x(EMUV_KERNELS_BF16, 1, 96);
        x.fill(1, 3, 1);
        const plain_matrix y(EMUV_KERNELS_BF16, 1, 5);
        multiply_by_lanes<bfloat_pairs>(w, x, y, 1);
        for (unsigned n = 0; n < 5; n++)
            EXPECT_EQ(std::isnan(y.get(0, n)), n == 0) << name_of(format);
    }
}

} // namespace
} // namespace emuv::kernels

// SPDX-License-Identifier: GPL-2.0-or-later
// Coded memory comes back bit by bit. Once by the reference, and once by the
// card's kernels, with a thread of the host for each of a block's.
#include "movement/packing.hpp" // before the kernels, which are in a namespace
#include "packing_lanes.hpp"
#include "packing_reference.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

using emuv::cuda::packing;
using packing_reference::bf16;
using packing_reference::fp16;
using bytes = std::vector<unsigned char>;

template <typename Number>
bytes made_of(std::size_t groups, const std::function<Number()> &next)
{
    bytes out(groups * packing::raw_group_bytes);
    for (std::size_t i = 0; i < out.size(); i += sizeof(Number)) {
        const Number number = next();
        std::memcpy(&out[i], &number, sizeof number);
    }
    return out;
}

/// Contents of a kind.
struct contents
{
    std::string name;
    bytes raw;
    bool is_worth_it;
};

std::vector<contents> all_contents(std::size_t groups)
{
    static std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 0.02F);
    std::lognormal_distribution<float> wide(0, 20);
    const auto weight = [&] { return bf16(normal(random)); };
    std::vector<contents> out;
    out.push_back({"weights", made_of<std::uint16_t>(groups, weight), true});
    out.push_back({"zeros", bytes(groups * packing::raw_group_bytes), true});
    out.push_back({"one number",
                   made_of<std::uint16_t>(groups, [] { return 0x3f80; }),
                   true});
    out.push_back({"weights with NaN, infinities and zeros",
                   made_of<std::uint16_t>(
                       groups,
                       [&]() -> std::uint16_t {
                           constexpr std::uint16_t special[] = {
                               0x7f80, 0xff80, 0x7fc1, 0xffff, 0x0000, 0x8000};
                           return random() % 50 == 0 ? special[random() % 6]
                                                     : weight();
                       }),
                   true});
    out.push_back(
        {"denormals",
         made_of<std::uint16_t>(
             groups,
             [&] { return static_cast<std::uint16_t>(random() & 0x807f); }),
         true});
    out.push_back({"eight exponents alike",
                   made_of<std::uint16_t>(groups,
                                          [&] {
                                              return static_cast<std::uint16_t>(
                                                  (random() & 0x807f) |
                                                  (random() % 8 + 100) << 7);
                                          }),
                   true});
    out.push_back(
        {"all exponents",
         made_of<std::uint16_t>(groups, [&] { return bf16(wide(random)); }),
         false});
    out.push_back(
        {"fp16",
         made_of<std::uint16_t>(groups, [&] { return fp16(normal(random)); }),
         false});
    out.push_back({"fp32",
                   made_of<float>(groups, [&] { return normal(random); }),
                   false});
    out.push_back(
        {"random bytes",
         made_of<std::uint32_t>(
             groups, [&] { return static_cast<std::uint32_t>(random()); }),
         false});
    return out;
}

/// Memory of one group that nobody may write to.
constexpr std::size_t guard_bytes = 64;
constexpr unsigned char guard = 0xa5;

void expect_guard(const bytes &of, std::size_t from)
{
    for (std::size_t i = from; i < of.size(); i++)
        ASSERT_EQ(of[i], guard) << "byte " << i - from << " behind the end";
}

struct coder
{
    std::function<void(const unsigned char *, std::uint64_t, unsigned char *,
                       std::uint64_t, packing::outcome *)>
        pack;
    std::function<void(const unsigned char *, std::uint64_t, unsigned char *,
                       std::uint64_t, packing::outcome *)>
        unpack;
};

coder reference()
{
    return {packing_reference::pack, packing_reference::unpack};
}

coder kernels(unsigned blocks)
{
    return {[=](const unsigned char *at, std::uint64_t groups,
                unsigned char *to, std::uint64_t most, packing::outcome *out) {
                packing_lanes::run(blocks, [=] {
                    packing_lanes::emuv_pack(at, groups, to, most, out);
                });
            },
            [=](const unsigned char *from, std::uint64_t groups,
                unsigned char *at, std::uint64_t most, packing::outcome *out) {
                packing_lanes::run(blocks, [=] {
                    packing_lanes::emuv_unpack(from, groups, at, most, out);
                });
            }};
}

/// Codes by one and decodes by the other.
void expect_same(const contents &each, const coder &by, const coder &back)
{
    SCOPED_TRACE(each.name);
    const std::uint64_t groups = packing::groups_of(each.raw.size());
    packing::outcome found;
    const std::uint64_t room = packing::bytes_of(each.raw.size(), 0);
    const std::uint64_t most = groups * packing::group_numbers;
    bytes coded(room + most + guard_bytes, guard);
    by.pack(each.raw.data(), groups, coded.data(), most, &found);
    const std::uint64_t size =
        packing::bytes_of(each.raw.size(), found.escapes);
    expect_guard(coded, size);
    EXPECT_EQ(size <= packing::most_bytes_of(each.raw.size()),
              each.is_worth_it);
    coded.resize(size);
    bytes raw(each.raw.size() + guard_bytes, guard);
    back.unpack(coded.data(), groups, raw.data(), most, nullptr);
    expect_guard(raw, each.raw.size());
    raw.resize(each.raw.size());
    EXPECT_TRUE(raw == each.raw);
    back.unpack(coded.data(), groups, raw.data(), most, &found);
    EXPECT_EQ(found.differing, 0U);
}

TEST(Packing, GivesAllBitsBackOfAnyContents)
{
    for (const contents &each : all_contents(5))
        expect_same(each, reference(), reference());
}

TEST(Packing, TakesElevenAndAQuarterBitsOfGaussianWeights)
{
    const contents weights = all_contents(64).front();
    packing::outcome found;
    bytes coded(packing::most_bytes_of(weights.raw.size()));
    packing_reference::pack(weights.raw.data(), 64, coded.data(),
                            packing::most_escapes_of(weights.raw.size()),
                            &found);
    const double bits = 16.0 *
                        static_cast<double>(packing::bytes_of(
                            weights.raw.size(), found.escapes)) /
                        static_cast<double>(weights.raw.size());
    EXPECT_GT(bits, 11.0);
    EXPECT_LT(bits, 11.4);
}

TEST(Packing, WritesNothingWhereEscapesHaveNoRoom)
{
    for (const coder &by : {reference(), kernels(1)})
        for (const contents &each : all_contents(3)) {
            SCOPED_TRACE(each.name);
            const std::uint64_t most =
                packing::most_escapes_of(each.raw.size());
            packing::outcome found;
            bytes coded(packing::most_bytes_of(each.raw.size()) + guard_bytes,
                        guard);
            by.pack(each.raw.data(), 3, coded.data(), most, &found);
            expect_guard(coded, packing::most_bytes_of(each.raw.size()));
            EXPECT_EQ(found.escapes <= most, each.is_worth_it);
        }
}

TEST(Packing, FindsEveryBitThatIsAnotherOne)
{
    const contents weights = all_contents(2).front();
    packing::outcome found;
    bytes coded(packing::most_bytes_of(weights.raw.size()));
    packing_reference::pack(weights.raw.data(), 2, coded.data(),
                            packing::most_escapes_of(weights.raw.size()),
                            &found);
    bytes raw = weights.raw;
    const std::uint64_t most = packing::most_escapes_of(raw.size());
    for (const std::size_t bit : {0U, 15U, 1000U, 2U * 4096 * 8 - 1}) {
        raw[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
        packing::outcome by_host;
        packing_reference::unpack(coded.data(), 2, raw.data(), most, &by_host);
        EXPECT_EQ(by_host.differing, 1U);
        packing::outcome by_lanes;
        kernels(1).unpack(coded.data(), 2, raw.data(), most, &by_lanes);
        EXPECT_EQ(by_lanes.differing, 1U);
        raw = weights.raw;
    }
}

TEST(Packing, TheKernelsCodeAsTheReferenceDoes)
{
    // Escapes of one group alone lie in a certain order.
    for (const contents &each : all_contents(1)) {
        SCOPED_TRACE(each.name);
        packing::outcome a;
        packing::outcome b;
        bytes by_host(packing::group_bytes + packing::group_numbers);
        bytes by_lanes = by_host;
        reference().pack(each.raw.data(), 1, by_host.data(),
                         packing::group_numbers, &a);
        kernels(1).pack(each.raw.data(), 1, by_lanes.data(),
                        packing::group_numbers, &b);
        EXPECT_EQ(a.escapes, b.escapes);
        EXPECT_TRUE(by_host == by_lanes);
    }
}

TEST(Packing, TheKernelsGiveAllBitsBackOfAnyContents)
{
    // More groups than warps, and more blocks than they need.
    for (const contents &each : all_contents(11)) {
        expect_same(each, kernels(1), reference());
        expect_same(each, reference(), kernels(3));
    }
}

TEST(Packing, ReadsNoEscapeWithoutRoomWhateverGroupsSay)
{
    const contents random = all_contents(3).back();
    const std::uint64_t most = packing::most_escapes_of(random.raw.size());
    for (const coder &by : {reference(), kernels(1)}) {
        // Memory of exactly this size: AddressSanitizer sees more.
        bytes coded(packing::most_bytes_of(random.raw.size()));
        packing::outcome found;
        by.pack(random.raw.data(), 3, coded.data(), most, &found);
        ASSERT_GT(found.escapes, most);
        bytes raw = random.raw;
        by.unpack(coded.data(), 3, raw.data(), most, &found);
        EXPECT_GT(found.differing, 0U);
        EXPECT_TRUE(raw == random.raw);
        // One group's begin 4 GiB away.
        std::fill_n(coded.begin(), 4, static_cast<unsigned char>(0xff));
        by.unpack(coded.data(), 3, raw.data(), most, nullptr);
    }
}

TEST(Packing, TakesWholeGroups)
{
    EXPECT_FALSE(packing::fits(0));
    EXPECT_FALSE(packing::fits(packing::raw_group_bytes - 2));
    EXPECT_FALSE(packing::fits(packing::raw_group_bytes + 16));
    EXPECT_TRUE(packing::fits(std::uint64_t{2} << 20));
    EXPECT_EQ(packing::bytes_of(4096, 1) % 16, 0U);
    EXPECT_LE(5 * packing::most_bytes_of(std::uint64_t{2} << 20),
              4 * (std::uint64_t{2} << 20));
}

} // namespace

// SPDX-License-Identifier: GPL-2.0-or-later
// Copies cut at seams, which no call of the driver may cross.
#include "store/seam.hpp"

#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

// Memory with seams at these addresses.
struct Seams
{
    std::set<CUdeviceptr> at;

    std::uint64_t run(CUdeviceptr from) const
    {
        const auto next = at.upper_bound(from);
        return next == at.end() ? UINT64_MAX : *next - from;
    }
    std::vector<copy_part> cut(const copy_side &to, const copy_side &from,
                               const copy_part &whole) const
    {
        std::vector<copy_part> parts;
        EXPECT_EQ(cut_at_seams(
                      to, from, whole,
                      [this](CUdeviceptr where) { return run(where); },
                      [&parts](const copy_part &part) {
                          parts.push_back(part);
                          return CUDA_SUCCESS;
                      }),
                  CUDA_SUCCESS);
        return parts;
    }
};

copy_part block(std::uint64_t width, std::uint64_t height = 1,
                std::uint64_t depth = 1)
{
    copy_part whole;
    whole.width = width;
    whole.height = height;
    whole.depth = depth;
    return whole;
}

} // namespace

TEST(Seam, ALineIsCutWhereEitherSideIs)
{
    const Seams seams{{1100, 2030}};
    const auto parts = seams.cut({1000, 0, 0}, {2000, 0, 0}, block(300));
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[0].width, 30u);
    EXPECT_EQ(parts[1].x, 30u);
    EXPECT_EQ(parts[1].width, 70u);
    EXPECT_EQ(parts[2].x, 100u);
    EXPECT_EQ(parts[2].width, 200u);
}

TEST(Seam, RowsThatAreWholeStayTogether)
{
    // Ten rows of 60 bytes, 100 apart: the seam is inside the sixth.
    const Seams seams{{1530}};
    const auto parts = seams.cut({1000, 100, 0}, {}, block(60, 10));
    ASSERT_EQ(parts.size(), 4u);
    EXPECT_EQ(parts[0].height, 5u);
    EXPECT_EQ(parts[1].width, 30u);
    EXPECT_EQ(parts[2].x, 30u);
    EXPECT_EQ(parts[3].y, 6u);
    EXPECT_EQ(parts[3].height, 4u);
}

TEST(Seam, ARowWithTheSeamBehindItGoesAlone)
{
    // With other rows, the driver would look at the bytes between them as well.
    const Seams seams{{1580}};
    const auto parts = seams.cut({1000, 100, 0}, {}, block(60, 10));
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[0].height, 5u);
    EXPECT_EQ(parts[1].height, 1u);
    EXPECT_EQ(parts[1].width, 60u);
    EXPECT_EQ(parts[2].y, 6u);
    EXPECT_EQ(parts[2].height, 4u);
}

TEST(Seam, AFailureEndsItAndIsTheAnswer)
{
    unsigned calls = 0;
    EXPECT_EQ(cut_at_seams(
                  {1000, 0, 0}, {}, block(100),
                  [](CUdeviceptr) { return std::uint64_t{10}; },
                  [&calls](const copy_part &) {
                      return ++calls == 3 ? CUDA_ERROR_INVALID_VALUE
                                          : CUDA_SUCCESS;
                  }),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(calls, 3u);
}

TEST(Seam, PartsOfAnyBlockAreAllOfItOnceAndCrossNothing)
{
    std::mt19937 random(11);
    const auto up_to = [&](std::uint64_t most) { return random() % most + 1; };
    for (int round = 0; round < 3000; round++) {
        const copy_part whole = block(up_to(20), up_to(6), up_to(4));
        copy_side sides[2];
        for (copy_side &side : sides) {
            if (random() % 4 == 0)
                continue;
            side.at = 10000 * (1 + static_cast<CUdeviceptr>(&side - sides));
            side.pitch = whole.width + random() % 5;
            side.slice = side.pitch * (whole.height + random() % 3);
        }
        Seams seams;
        for (std::uint64_t i = random() % 6; i > 0; i--)
            seams.at.insert(10000 * up_to(2) + up_to(600));
        std::set<std::uint64_t> done;
        for (const copy_part &part : seams.cut(sides[0], sides[1], whole)) {
            for (const copy_side &side : sides)
                if (side.at != 0) {
                    ASSERT_GE(seams.run(start_of(side, part)),
                              extent_of(side, part))
                        << round;
                }
            for (std::uint64_t z = part.z; z < part.z + part.depth; z++)
                for (std::uint64_t y = part.y; y < part.y + part.height; y++)
                    for (std::uint64_t x = part.x; x < part.x + part.width;
                         x++) {
                        ASSERT_LT(x, whole.width);
                        ASSERT_LT(y, whole.height);
                        ASSERT_LT(z, whole.depth);
                        ASSERT_TRUE(done.insert((z * 100 + y) * 100 + x).second)
                            << round;
                    }
        }
        ASSERT_EQ(done.size(), whole.width * whole.height * whole.depth)
            << round;
    }
}

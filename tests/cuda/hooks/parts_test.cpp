// SPDX-License-Identifier: GPL-2.0-or-later
// Copies and fills, in the ways that the driver has them described, cut at the
// seam of an allocation.
#include "hooks/fixture.hpp"
#include "hooks/parts.hpp"

#include <algorithm>
#include <set>
#include <vector>

using namespace emuv::cuda;

namespace {

class Parts : public Hooks
{
protected:
    // Every byte of the device's that a copy from the host writes, each once.
    template <typename Copy>
    static void add_bytes(const Copy &copy, std::multiset<CUdeviceptr> &to)
    {
        for (std::size_t y = 0; y < copy.Height; y++)
            for (std::size_t x = 0; x < copy.WidthInBytes; x++)
                to.insert(copy.dstDevice + (copy.dstY + y) * copy.dstPitch +
                          copy.dstXInBytes + x);
    }
};

} // namespace

TEST_F(Parts, OfACopyOfRowsWriteTheSameBytesAndCrossNoSeam)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    CUDA_MEMCPY2D copy{};
    std::vector<char> words(4096);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = words.data();
    copy.srcPitch = 64;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = seam - 1000;
    copy.dstPitch = 100;
    copy.dstY = 1;
    copy.dstXInBytes = 10;
    copy.WidthInBytes = 60;
    copy.Height = 20;
    std::multiset<CUdeviceptr> whole;
    std::multiset<CUdeviceptr> in_parts;
    add_bytes(copy, whole);
    ASSERT_LT(*whole.begin(), seam);
    ASSERT_GT(*whole.rbegin(), seam);
    std::size_t count = 0;
    EXPECT_EQ(as_described(&table_, &copy,
                           [&](const CUDA_MEMCPY2D *part) {
                               std::multiset<CUdeviceptr> these;
                               add_bytes(*part, these);
                               EXPECT_EQ(*these.begin() < seam,
                                         *these.rbegin() < seam);
                               in_parts.insert(these.begin(), these.end());
                               count++;
                               return CUDA_SUCCESS;
                           }),
              CUDA_SUCCESS);
    EXPECT_GT(count, 1U);
    EXPECT_EQ(in_parts, whole);
}

TEST_F(Parts, BehindOneThatFailsAreNotTried)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    unsigned tried = 0;
    EXPECT_EQ(in_line(&table_, seam - 100, 0, 300,
                      [&](std::size_t, std::size_t) {
                          tried++;
                          return CUDA_ERROR_INVALID_VALUE;
                      }),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(tried, 1U);
}

TEST_F(Parts, OfAFillAreWholeElements)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    std::vector<std::pair<CUdeviceptr, std::size_t>> parts;
    const auto keep = [&](CUdeviceptr at, std::size_t width, std::size_t) {
        parts.emplace_back(at, width);
        return CUDA_SUCCESS;
    };
    EXPECT_EQ(as_filled(&table_, seam - 100, 0, 4, 50, 1, keep), CUDA_SUCCESS);
    EXPECT_EQ(parts, (std::vector<std::pair<CUdeviceptr, std::size_t>>{
                         {seam - 100, 25}, {seam, 25}}));
    // The driver has an answer of its own to what is wrong.
    for (const auto &[at, width] :
         {std::pair<CUdeviceptr, std::size_t>{seam - 98, 50},
          {seam - 100, SIZE_MAX / 2}}) {
        parts.clear();
        EXPECT_EQ(as_filled(&table_, at, 0, 4, width, 1, keep), CUDA_SUCCESS);
        EXPECT_EQ(parts, (std::vector{std::pair(at, width)}));
    }
}

TEST_F(Parts, WithinOneKindOfMemoryAreTheWhole)
{
    const CUdeviceptr at = allocate_across();
    const CUdeviceptr seam = at + vram_bytes;
    for (const auto &[to, bytes] :
         {std::pair<CUdeviceptr, std::size_t>{at, vram_bytes},
          {seam, 32 * MiB},
          {seam - 100, 32 * MiB + 101}}) { // past the end: the driver refuses
        std::vector<std::size_t> sizes;
        in_line(&table_, to, 0, bytes, [&](std::size_t, std::size_t part) {
            sizes.push_back(part);
            return CUDA_SUCCESS;
        });
        EXPECT_EQ(sizes, std::vector{bytes});
    }
}

TEST_F(Parts, OfASideThatOnlyIsSaidToBeTheHostsAreCutAllTheSame)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = reinterpret_cast<const void *>(seam - 100);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    std::vector<char> words(300);
    copy.dstHost = words.data();
    copy.WidthInBytes = 300;
    copy.Height = 1;
    std::vector<CUDA_MEMCPY2D> parts;
    as_described(&table_, &copy, [&](const CUDA_MEMCPY2D *part) {
        parts.push_back(*part);
        return CUDA_SUCCESS;
    });
    ASSERT_EQ(parts.size(), 2U);
    for (const CUDA_MEMCPY2D &each : parts) {
        EXPECT_EQ(each.srcMemoryType, CU_MEMORYTYPE_UNIFIED);
        EXPECT_EQ(each.dstMemoryType, CU_MEMORYTYPE_HOST);
    }
    EXPECT_EQ(parts[1].srcDevice, seam);
    EXPECT_EQ(parts[1].dstXInBytes, 100U);
}

TEST_F(Parts, AreLookedForOnlyWhereThereIsASeam)
{
    CUdeviceptr at = 0;
    ASSERT_EQ(table_.allocate(&at, 8 * MiB), CUDA_SUCCESS);
    EXPECT_EQ(with_seams(&table_), nullptr);
    EXPECT_FALSE(touches_ram(table_, at));
    CUdeviceptr across = 0;
    ASSERT_EQ(table_.allocate(&across, vram_bytes), CUDA_SUCCESS);
    EXPECT_EQ(with_seams(&table_), &table_);
    EXPECT_EQ(with_seams(nullptr), nullptr);
    EXPECT_TRUE(touches_ram(table_, across)) << "part of it is";
    EXPECT_FALSE(touches_ram(table_, at));
    EXPECT_FALSE(touches_ram(table_, 0x1234));
}

// SPDX-License-Identifier: GPL-2.0-or-later
// A chunk shared by small allocations.
#include "store/slab.hpp"

#include <array>
#include <map>
#include <random>

#include <gtest/gtest.h>

using namespace emuv::cuda;

TEST(Slab, PiecesAreAlignedAndApart)
{
    slab chunk;
    std::uint64_t first = 1;
    std::uint64_t second = 1;
    ASSERT_TRUE(chunk.take(1, first));
    ASSERT_TRUE(chunk.take(513, second));
    EXPECT_EQ(first, 0u);
    EXPECT_EQ(second, slab::alignment);
    ASSERT_TRUE(chunk.take(1, first));
    EXPECT_EQ(first, 3 * slab::alignment);
}

TEST(Slab, HoldsAChunkAndNoMore)
{
    slab chunk;
    std::uint64_t offset = 0;
    EXPECT_FALSE(chunk.take(chunk_bytes + 1, offset));
    ASSERT_TRUE(chunk.take(chunk_bytes, offset));
    EXPECT_FALSE(chunk.empty());
    EXPECT_FALSE(chunk.take(1, offset));
    chunk.give(offset, chunk_bytes);
    EXPECT_TRUE(chunk.empty());
}

TEST(Slab, NeighboursThatAreGivenBackAreOneGap)
{
    const std::uint64_t third = chunk_bytes / 4;
    // Whichever order they go in.
    for (const auto &order :
         {std::array{0, 1, 2}, std::array{0, 2, 1}, std::array{1, 0, 2},
          std::array{1, 2, 0}, std::array{2, 0, 1}, std::array{2, 1, 0}}) {
        slab chunk;
        std::array<std::uint64_t, 3> offsets{};
        for (std::uint64_t &offset : offsets)
            ASSERT_TRUE(chunk.take(third, offset));
        for (const int which : order)
            chunk.give(offsets[static_cast<std::size_t>(which)], third);
        std::uint64_t whole = 1;
        ASSERT_TRUE(chunk.empty());
        ASSERT_TRUE(chunk.take(chunk_bytes, whole));
        EXPECT_EQ(whole, 0u);
    }
}

TEST(Slab, RandomPiecesNeverOverlapAndAllComeBack)
{
    slab chunk;
    std::mt19937 random(3);
    std::map<std::uint64_t, std::uint64_t> taken;
    for (int i = 0; i < 20000; i++) {
        if (taken.empty() || random() % 2 == 0) {
            const std::uint64_t bytes = random() % (chunk_bytes / 16) + 1;
            std::uint64_t offset = 0;
            if (!chunk.take(bytes, offset))
                continue;
            ASSERT_EQ(offset % slab::alignment, 0u);
            ASSERT_LE(offset + bytes, chunk_bytes);
            const auto after = taken.lower_bound(offset);
            ASSERT_TRUE(after == taken.end() || offset + bytes <= after->first);
            ASSERT_TRUE(after == taken.begin() ||
                        std::prev(after)->first + std::prev(after)->second <=
                            offset);
            taken[offset] = bytes;
        } else {
            auto which = taken.begin();
            std::advance(which, random() % taken.size());
            chunk.give(which->first, which->second);
            taken.erase(which);
        }
    }
    for (const auto &[offset, bytes] : taken)
        chunk.give(offset, bytes);
    EXPECT_TRUE(chunk.empty());
}

// SPDX-License-Identifier: GPL-2.0-or-later
// All blocks, by address.
#include "movement/blocks.hpp"

#include <map>
#include <random>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t size = 0x1000;

block_ref block_at(CUdeviceptr base)
{
    block_ref made(new block);
    made->base = base;
    made->bytes = size;
    return made;
}

} // namespace

TEST(Blocks, AnAddressIsInTheBlockAroundItAndInNoneBesideIt)
{
    blocks all;
    EXPECT_EQ(all.around(0x10000), nullptr);
    const block_ref one = block_at(0x10000);
    const block_ref other = block_at(0x20000);
    all.add(other);
    all.add(one);
    // The tree answers first, and the table later on.
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ(all.around(0x10000), &*one);
        EXPECT_EQ(all.around(0x10000 + size - 1), &*one);
        EXPECT_EQ(all.around(0x20000), &*other);
        EXPECT_EQ(all.around(0xffff), nullptr);
        EXPECT_EQ(all.around(0x10000 + size), nullptr);
        EXPECT_EQ(all.around(0x20000 + size), nullptr);
        EXPECT_EQ(all.around(UINT64_MAX), nullptr);
    }
}

// Work that goes backwards may be given only the end of its memory.
TEST(Blocks, WhereOneEndsAnAddressMeansThatOneAndTheOneThatBeginsThere)
{
    blocks all;
    const block_ref first = block_at(0x10000);
    const block_ref second = block_at(0x10000 + size);
    const block_ref apart = block_at(0x20000);
    for (const block_ref &each : {first, second, apart})
        all.add(each);
    // The tree answers first, and the table later on.
    for (int i = 0; i < 4; i++) {
        auto meant = all.meant_by(0x10000 + size);
        EXPECT_EQ(meant.around, &*second);
        EXPECT_EQ(meant.before, &*first);
        meant = all.meant_by(0x10000 + 2 * size);
        EXPECT_EQ(meant.around, nullptr);
        EXPECT_EQ(meant.before, &*second);
        meant = all.meant_by(0x20000);
        EXPECT_EQ(meant.around, &*apart);
        EXPECT_EQ(meant.before, nullptr) << "that one ends before";
        meant = all.meant_by(0x20000 + size);
        EXPECT_EQ(meant.around, nullptr);
        EXPECT_EQ(meant.before, &*apart) << "the last of all";
        for (const CUdeviceptr none :
             {CUdeviceptr{0}, CUdeviceptr{0xffff}, CUdeviceptr{0x20001 + size}})
            all.meant_by(none).each([](block &) { ADD_FAILURE(); });
    }
}

TEST(Blocks, WhatWasRemovedIsGivenBackOnceAndFoundNoMore)
{
    blocks all;
    all.add(block_at(0x10000));
    all.add(block_at(0x20000));
    for (int i = 0; i < 4; i++)
        EXPECT_NE(all.around(0x10000), nullptr);
    EXPECT_TRUE(all.remove(0x10000));
    EXPECT_FALSE(all.remove(0x10000));
    for (int i = 0; i < 4; i++)
        EXPECT_EQ(all.around(0x10000), nullptr);
    EXPECT_TRUE(all.remove(0x20000));
    EXPECT_TRUE(all.empty());
    EXPECT_EQ(all.around(0x20000), nullptr);
}

TEST(Blocks, HoweverOftenTheyChangeTheSameIsFoundAsInATree)
{
    std::mt19937_64 random(1);
    blocks all;
    std::map<CUdeviceptr, block_ref> model;
    for (int i = 0; i < 20000; i++) {
        const CUdeviceptr base = (1 + random() % 64) * 2 * size;
        if (random() % 8 == 0) {
            if (model.erase(base) > 0) {
                ASSERT_TRUE(all.remove(base));
            } else {
                const block_ref made = block_at(base);
                all.add(made);
                model[base] = made;
            }
        }
        // Now and then there are look-ups enough for a table.
        for (std::uint64_t j = random() % 3 * (random() % 64); j > 0; j--) {
            const CUdeviceptr address = random() % (132 * size);
            const auto found = model.find(address / (2 * size) * (2 * size));
            const bool inside =
                found != model.end() && address - found->first < size;
            ASSERT_EQ(all.around(address), inside ? &*found->second : nullptr);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Which element an address lies in.
#include "base/around.hpp"

#include <cstdint>
#include <map>

#include <gtest/gtest.h>

using emuv::cuda::any_within;
using emuv::cuda::around;

namespace {

struct sized
{
    std::uint64_t bytes;
};

const std::map<std::uint64_t, sized> all{
    {0x100, {0x10}}, {0x110, {0}}, {0x200, {0x80}}};

std::uint64_t begin_around(std::uint64_t at)
{
    const auto found = around(all, at, &sized::bytes);
    return found == all.end() ? 0 : found->first;
}

} // namespace

TEST(Around, AnEntryHasItsFirstByteToItsLast)
{
    EXPECT_EQ(begin_around(0xff), 0u);
    EXPECT_EQ(begin_around(0x100), 0x100u);
    EXPECT_EQ(begin_around(0x10f), 0x100u);
    EXPECT_EQ(begin_around(0x110), 0u);
    EXPECT_EQ(begin_around(0x200), 0x200u);
    EXPECT_EQ(begin_around(0x27f), 0x200u);
    EXPECT_EQ(begin_around(0x280), 0u);
    EXPECT_EQ(begin_around(UINT64_MAX), 0u);
}

TEST(Around, AnyWithinSeesWhatBeginsBeforeAndWhatBeginsLater)
{
    const auto any = [](std::uint64_t at, std::uint64_t size) {
        return any_within(all, at, size, &sized::bytes);
    };
    EXPECT_FALSE(any(0x80, 0x80));
    EXPECT_TRUE(any(0x80, 0x81));
    EXPECT_TRUE(any(0x10f, 1));
    EXPECT_FALSE(any(0x110, 0xf0)) << "what is empty is not there";
    EXPECT_TRUE(any(0x110, 0xf1));
    EXPECT_TRUE(any(0x27f, 0x1000));
    EXPECT_FALSE(any(0x280, 0x1000));
}

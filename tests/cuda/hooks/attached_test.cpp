// SPDX-License-Identifier: GPL-2.0-or-later
// Contexts that the program holds more than once.
#include "hooks/attached.hpp"

#include <cstdint>

#include <gtest/gtest.h>

using emuv::cuda::attached_contexts;

namespace {

CUcontext context(std::uintptr_t number)
{
    return reinterpret_cast<CUcontext>(number);
}

} // namespace

TEST(AttachedContexts, AreHeldAsOftenAsTheyWereAttached)
{
    attached_contexts all;
    EXPECT_FALSE(all.remove(context(1))) << "it was made, and held once";
    all.add(context(1));
    all.add(context(1));
    all.add(context(2));
    EXPECT_TRUE(all.remove(context(1)));
    EXPECT_TRUE(all.remove(context(1)));
    EXPECT_FALSE(all.remove(context(1)));
    EXPECT_TRUE(all.remove(context(2)));
    EXPECT_FALSE(all.remove(context(2)));
}

TEST(AttachedContexts, AreHeldByNobodyOnceTheyAreGone)
{
    attached_contexts all;
    all.add(context(1));
    all.add(context(1));
    all.add(context(2));
    all.gone(context(1));
    EXPECT_FALSE(all.remove(context(1)));
    EXPECT_TRUE(all.remove(context(2)));
}

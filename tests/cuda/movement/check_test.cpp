// SPDX-License-Identifier: GPL-2.0-or-later
// Findings about a program's kernels.
#include "movement/check.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

std::vector<std::string> told;

void tell(const char *kernel, bool proven, CUresult error)
{
    told.push_back((kernel != nullptr ? kernel : "none") + std::string(" ") +
                   std::to_string(error) + (proven ? " proven" : ""));
}

class CheckTest : public ::testing::Test
{
protected:
    void SetUp() override { told.clear(); }

    void launch(std::uint64_t what, const char *kernel, bool trusted)
    {
        const auto made = std::make_unique<work>();
        made->what = what;
        made->kernel = kernel;
        made->trusted = trusted;
        found.begins(*made);
    }

    check found{tell};
};

TEST_F(CheckTest, LaunchesAndKernelsAreCountedAndCopiesAreNot)
{
    for (int i = 0; i < 3; i++)
        launch(1, "one", true);
    launch(2, "another", true);
    launch(3, nullptr, true);
    const check::result now = found.so_far();
    EXPECT_EQ(now.launches, 4u);
    EXPECT_EQ(now.kernels, 2u);
    EXPECT_EQ(now.untrusted_launches, 0u);
    EXPECT_STREQ(now.untrusted.data(), "");
    EXPECT_FALSE(now.failed);
}

TEST_F(CheckTest, WhatNobodyVouchesForIsNamedOnce)
{
    launch(1, "one", false);
    launch(2, "another", false);
    launch(1, "one", false);
    const check::result now = found.so_far();
    EXPECT_EQ(now.launches, 0u);
    EXPECT_EQ(now.untrusted_launches, 3u);
    EXPECT_EQ(now.untrusted_kernels, 2u);
    EXPECT_STREQ(now.untrusted.data(), "one, another");
}

TEST_F(CheckTest, LongAndManyNamesEndInTime)
{
    const std::string name(1000, 'x');
    launch(1, name.c_str(), false);
    EXPECT_EQ(found.so_far().untrusted.data(), std::string(72, 'x') + "...");
    for (std::uint64_t i = 2; i < 100; i++)
        launch(i, name.c_str(), false);
    const check::result now = found.so_far();
    EXPECT_EQ(now.untrusted_kernels, 99u);
    EXPECT_LT(std::string(now.untrusted.data()).size(), now.untrusted.size());
}

TEST_F(CheckTest, AnErrorIsToldOnceAndEndsTheCount)
{
    launch(1, "one", true);
    found.failed("one", true, CUDA_ERROR_ILLEGAL_ADDRESS);
    found.failed(nullptr, false, CUDA_ERROR_ILLEGAL_ADDRESS);
    launch(2, "another", true);
    EXPECT_EQ(told, std::vector<std::string>{"one 700 proven"});
    EXPECT_TRUE(found.so_far().failed);
    EXPECT_EQ(found.so_far().launches, 1u);
}

} // namespace

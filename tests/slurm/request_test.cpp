// SPDX-License-Identifier: GPL-2.0-or-later
// The value of --emuv-vram.
#include "request.hpp"

#include <stdexcept>

#include <gtest/gtest.h>

using emuv_slurm::read_request;

TEST(request, IsInWholeGiB)
{
    EXPECT_EQ(read_request("48G"), 48U);
    EXPECT_EQ(read_request("48GiB"), 48U);
    EXPECT_EQ(read_request("1.5T"), 1536U);
    EXPECT_EQ(read_request("1P"), 1U << 20);
}

TEST(request, CountsAPartAsAWhole)
{
    EXPECT_EQ(read_request("1M"), 1U);
    EXPECT_EQ(read_request("1024M"), 1U);
    EXPECT_EQ(read_request("1025M"), 2U);
    EXPECT_EQ(read_request("0.5G"), 1U);
}

TEST(request, RefusesWhatIsNoSizeOfAnInstance)
{
    for (const char *const text : {"", "G", "many", "-1G", "48", "0", "0G",
                                   "1023K", "2P", "999999P", "48G "})
        EXPECT_THROW(read_request(text), std::invalid_argument) << text;
}

TEST(request, AsksForTheUnitThatIsMissing)
{
    try {
        read_request("48");
        FAIL();
    } catch (const std::invalid_argument &problem) {
        EXPECT_STREQ(problem.what(),
                     "'48' is less than 1 MiB; a size has a unit, as 48G");
    }
}

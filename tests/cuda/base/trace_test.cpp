// SPDX-License-Identifier: GPL-2.0-or-later
// The record of movement: nothing until a file is open, then an event a line.
#include "base/trace.hpp"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

using emuv::cuda::trace;

namespace {

TEST(Trace, RecordsNothingUntilAFileIsOpen)
{
    trace off;
    EXPECT_FALSE(off.is_on());
    off.span(trace::row::to_ram, "unseen", 1000, 2000, 0, 0, 0);
    off.kernel("unseen", "why");

    const std::string file =
        testing::TempDir() + "trace_test." + std::to_string(getpid());
    {
        trace on;
        on.span(trace::row::to_ram, "too early", 1000, 2000, 0, 0, 0);
        ASSERT_EQ(on.open(file.c_str()), 0);
        EXPECT_TRUE(on.is_on());
        on.span(trace::row::to_ram, "write back", 1000, 3000, 16, 32, 7);
        on.kernel("stranger", "no proof");
    }
    std::ostringstream all;
    all << std::ifstream(file).rdbuf();
    unlink(file.c_str());
    EXPECT_EQ(all.str().find("too early"), std::string::npos);
    EXPECT_NE(all.str().find("\"name\":\"write back\",\"ts\":1.000,"
                             "\"dur\":2.000"),
              std::string::npos)
        << all.str();
    EXPECT_NE(all.str().find("\"kernel\":\"stranger\""), std::string::npos)
        << all.str();
}

TEST(Trace, SaysWhyItsFileCannotBeOpened)
{
    trace record;
    EXPECT_EQ(record.open("/nowhere/at/all"), ENOENT);
    EXPECT_FALSE(record.is_on());
}

} // namespace

// SPDX-License-Identifier: GPL-2.0-or-later
// An estimate is read with what came, and refused where it is none.
#include "report/run.hpp"
#include "report/score.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace emuv::report;
using testing::HasSubstr;

namespace {

constexpr const char *estimate = R"({"schema": 1, "model": "GPT-2",
"mode": "train", "batch": 4, "sample_tokens": 1024, "gpu": "RTX 4070",
"spilled_low_bytes": 0, "spilled_bytes": 1073741824,
"spilled_high_bytes": 3221225472,
"pass_low_ms": 80.0, "pass_ms": 100.0, "pass_high_ms": 200.0,
"estimate": [{"part": "context", "low_bytes": 1, "likely_bytes": 2,
"high_bytes": 3}, {"part": "peak", "low_bytes": 4294967296,
"likely_bytes": 6442450944, "high_bytes": 8589934592}]})";

TEST(ReportScore, HasThePeakAndWhatSpills)
{
    const score is = read_score("e", estimate);
    EXPECT_EQ(is.model, "GPT-2");
    EXPECT_EQ(is.job, "train, batch 4, 1024 tokens");
    EXPECT_EQ(is.peak.likely, 6442450944);
    ASSERT_TRUE(is.spilled && is.pass_ms);
    EXPECT_FALSE(is.token_ms || is.came);
}

TEST(ReportScore, TakesWhatCameAndIsReadAgain)
{
    came is{.peak_vram = 5.0 * (1 << 30),
            .peak_ram = 1.6 * (1 << 30),
            .step_ms = 250,
            .processes = 2,
            .ended = "signal 9"};
    const std::string text = with_came("e", estimate, is);
    const score again = read_score("e", text);
    ASSERT_TRUE(again.came);
    EXPECT_EQ(again.came->peak_vram, is.peak_vram);
    EXPECT_EQ(again.came->step_ms, 250);
    EXPECT_EQ(again.came->processes, 2u);
    EXPECT_EQ(again.came->ended, "signal 9");
    EXPECT_EQ(again.peak.likely, 6442450944);
    const auto lines = lines_of(again);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].what, "memory in all");
    EXPECT_EQ(lines[0].came, "6.6 GiB");
    EXPECT_EQ(lines[0].verdict, "within, 10 % over likely");
    EXPECT_EQ(lines[1].verdict, "within, 60 % over likely");
    EXPECT_EQ(lines[2].came, "250 ms");
    EXPECT_EQ(lines[2].verdict, "above, 150 % over likely");
    // A second run takes the place of the first.
    is.step_ms.reset();
    const score third = read_score("e", with_came("e", text, is));
    EXPECT_FALSE(third.came->step_ms);
    EXPECT_EQ(lines_of(third)[2].came, "not known");
}

std::string refusal(const std::string &text)
{
    try {
        read_score("file", text);
    } catch (const unreadable &problem) {
        return problem.what();
    }
    return "taken";
}

TEST(ReportScore, IsRefusedWhereItIsNoEstimate)
{
    EXPECT_THAT(refusal(""), HasSubstr("file"));
    EXPECT_THAT(refusal("[1]"), HasSubstr("file"));
    EXPECT_THAT(refusal("{}"), HasSubstr("no estimate"));
    EXPECT_THAT(refusal(R"({"estimate": [7, {"part": 3}, {"part": "peak",
        "low_bytes": -1, "likely_bytes": 2, "high_bytes": 3}]})"),
                HasSubstr("no estimate"));
    EXPECT_THAT(refusal(std::string(2 << 20, ' ')), HasSubstr("larger than"));
    EXPECT_THAT(refusal(std::string(1000, '[')), HasSubstr("file"));
}

} // namespace

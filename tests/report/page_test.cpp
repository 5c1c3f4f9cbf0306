// SPDX-License-Identifier: GPL-2.0-or-later
// A page holds what a run tells, loads nothing, and runs nothing that a file
// says.
#include "report/page.hpp"

#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

using namespace emuv::report;
using testing::HasSubstr;
using testing::Not;

namespace {

run sample()
{
    run made;
    made.file = "folder/train.json";
    made.seconds = 10;
    made.part_seconds = 2.5;
    made.peak_vram = 12.0 * (1 << 30);
    made.peak_ram = 4.0 * (1 << 30);
    made.to_vram = 100.0 * (1 << 30);
    made.waited = 2;
    made.devices = {{0,
                     {{"VRAM", {1, 2, 3, 4}}, {"system RAM", {0, 1, 1, 0}}},
                     {{"to VRAM", {5, 5, 0, 0}}, {"to RAM", {0, 0, 1, 0}}}}};
    made.waits = {"waiting", {0, 1, 1, 0}};
    made.moved = {{"to VRAM", "fetch", 3, 100, 1}};
    made.holders = {{.what = "0x7f00", .bytes = 64, .to_vram = 100}};
    made.kernels = {{.name = "gather", .why = "an address from memory"}};
    return made;
}

std::string page_of(const run &of)
{
    return page({&of, 1}, {}, "emuvctl test");
}

TEST(ReportPage, HoldsWhatARunTells)
{
    const std::string is = page_of(sample());
    for (const char *each :
         {"train.json", "12 GiB", "peak in system RAM", "came ahead of its use",
          "0x7f00", "gather", "an address from memory", "Memory held",
          "Over the link", "20 % of the time", "emuvctl test"})
        EXPECT_THAT(is, HasSubstr(each));
}

TEST(ReportPage, OtherCardsHaveTheirChartAndTheirSentences)
{
    EXPECT_THAT(page_of(sample()), Not(HasSubstr("other cards")));
    run lent = sample();
    lent.peak_cards = 3.0 * (1 << 30);
    lent.from_cards = 60.0 * (1 << 30);
    lent.to_cards = 0;
    lent.devices[0].held.push_back({"other cards", {0, 2, 3, 0}});
    lent.devices[0].lent = {{"from cards", {0, 3, 3, 0}},
                            {"to cards", {0, 0, 0, 0}}};
    const std::string is = page_of(lent);
    for (const char *each :
         {"At most 3 GiB lay in the VRAM of other cards",
          "40 GiB came to VRAM over the link", "60 GiB came from other cards",
          "To and from other cards"})
        EXPECT_THAT(is, HasSubstr(each));
}

TEST(ReportPage, LoadsNothingAndRunsNothing)
{
    const std::string is = page_of(sample());
    EXPECT_THAT(is, HasSubstr("default-src 'none'"));
    for (const char *each :
         {"<script", "http://", "https://", "url(", "@import", "<link", "<img",
          "<iframe", "src=", "href="})
        EXPECT_THAT(is, Not(HasSubstr(each)));
}

TEST(ReportPage, IsLightDarkAndPrints)
{
    const std::string is = page_of(sample());
    EXPECT_THAT(is, HasSubstr("prefers-color-scheme: dark"));
    EXPECT_THAT(is, HasSubstr("@media print"));
    EXPECT_THAT(is, HasSubstr("width=device-width"));
    EXPECT_THAT(is, HasSubstr("\"Segoe UI\"")) << "style is not escaped";
}

TEST(ReportPage, ShowsHostileNamesAsText)
{
    run made = sample();
    const std::string hostile =
        "\"><script>alert(1)</script><b onload='x'>&amp;]]>--></style>";
    made.file = hostile;
    made.moved[0].name = hostile;
    made.moved[0].row = hostile;
    made.holders[0].what = hostile;
    made.kernels[0] = {.name = hostile, .why = hostile};
    made.notes = {hostile};
    made.devices[0].held[0].name = hostile;
    made.about = {{"program", hostile}};
    score expected;
    expected.model = expected.job = expected.gpu = hostile;
    const std::string is = page({&made, 1}, expected, hostile);
    EXPECT_THAT(is, Not(HasSubstr("<script")));
    EXPECT_THAT(is, Not(HasSubstr("<b onload")));
    EXPECT_THAT(is, HasSubstr("&lt;script&gt;alert(1)"));
    EXPECT_THAT(is, HasSubstr("&amp;amp;"));
}

// HTML closes its own empty elements alone: any other would stay open.
TEST(ReportPage, HasNoEmptyElementOfHtml)
{
    run empty;
    run bare = sample();
    bare.kernels = {{.name = "", .why = ""}};
    const score expected;
    for (const std::string &is :
         {page_of(empty), page({&bare, 1}, expected, "x")}) {
        const std::regex any("<([a-z]+)[^<>]*/>");
        for (auto each = std::sregex_iterator(is.begin(), is.end(), any);
             each != std::sregex_iterator(); ++each)
            EXPECT_THAT((*each)[1].str(),
                        testing::AnyOf("meta", "path", "rect"))
                << each->str();
    }
}

TEST(ReportPage, ComparesTwoRunsOnTheSameAxes)
{
    const run first = sample();
    run second = sample();
    second.to_vram /= 2;
    second.waited = 0;
    second.seconds = 20;
    const run both[] = {first, second};
    const std::string is = page(both, {}, "emuvctl test");
    EXPECT_THAT(is, HasSubstr("Two runs compared"));
    EXPECT_THAT(is, HasSubstr("50 % less"));
    EXPECT_THAT(is, HasSubstr("100 % more"));
    EXPECT_THAT(is, HasSubstr("Memory held (second)"));
    EXPECT_THAT(is, HasSubstr("No launch waited"));
}

TEST(ReportPage, ComparesATraceWithATape)
{
    run tape = sample();
    tape.from = source::tape;
    const run both[] = {sample(), tape};
    EXPECT_THAT(page(both, {}, "x"), HasSubstr("tape folder/train.json"));
}

TEST(ReportPage, HasTheEstimateBesideThePeakOfTheTrace)
{
    score expected;
    expected.peak = {10.0 * (1 << 30), 15.0 * (1 << 30), 20.0 * (1 << 30)};
    const run made = sample();
    const std::string is = page({&made, 1}, expected, "x");
    EXPECT_THAT(is, HasSubstr("The estimate beside what came"));
    EXPECT_THAT(is, HasSubstr("16 GiB"));
    EXPECT_THAT(is, HasSubstr("within, 7 % over likely"));
}

TEST(ReportPage, HasItsFiguresAsJson)
{
    const run made = sample();
    const auto is = nlohmann::json::parse(summary_json({&made, 1}, {}));
    EXPECT_EQ(is["schema"], 1);
    EXPECT_EQ(is["runs"][0]["kind"], "trace");
    EXPECT_EQ(is["runs"][0]["peak_vram_bytes"], 12ull << 30);
    EXPECT_EQ(is["runs"][0]["events"][0]["name"], "fetch");
    EXPECT_EQ(is["runs"][0]["kernels"][0]["why_not_trusted"],
              "an address from memory");
    EXPECT_TRUE(is["estimate"].is_null());
}

} // namespace

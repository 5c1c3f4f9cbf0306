// SPDX-License-Identifier: GPL-2.0-or-later
// A trace is added up as it comes: whole, cut off, foreign or made to harm.
#include "report/run.hpp"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace emuv::report;
using testing::HasSubstr;

namespace {

constexpr double mib = 1 << 20;

std::string rows()
{
    std::string out = "[\n";
    int tid = 0;
    for (const char *name : {"to VRAM", "to RAM", "waits", "calls"}) {
        tid++;
        out += fmt::format(
            "{}{{\"ph\":\"M\",\"pid\":7,\"tid\":{},\"name\":\"thread_name\","
            "\"args\":{{\"name\":\"{}\"}}}}",
            tid == 1 ? "" : ",\n", tid, name);
    }
    return out;
}

std::string span(int tid, const std::string &name, double at, double lasts,
                 double bytes, const std::string &address = "0x7f0000000000")
{
    return fmt::format(",\n{{\"ph\":\"X\",\"pid\":7,\"tid\":{},\"name\":\"{}\","
                       "\"ts\":{},\"dur\":{},\"args\":{{\"address\":\"{}\","
                       "\"bytes\":{},\"next_use\":3}}}}",
                       tid, name, at, lasts, address, bytes);
}

std::string counter(const std::string &name, double at, double value,
                    const char *unit = "bytes")
{
    return fmt::format(",\n{{\"ph\":\"C\",\"pid\":7,\"name\":\"{}\",\"ts\":{},"
                       "\"args\":{{\"{}\":{}}}}}",
                       name, at, unit, value);
}

const sum &sum_of(const run &in, const std::string &name)
{
    for (const sum &each : in.moved)
        if (each.name == name)
            return each;
    ADD_FAILURE() << "no " << name;
    static const sum none;
    return none;
}

TEST(ReportTrace, AddsUpWhatMovedAndWhatWaited)
{
    const run is = read_trace(
        "t", rows() + span(1, "fetch", 1000000, 500000, 64 * mib) +
                 span(1, "fetch", 2000000, 500000, 64 * mib, "0x7f0004000000") +
                 span(2, "write back", 1000000, 100000, 32 * mib) +
                 span(2, "drop", 1000000, 100000, 16 * mib) +
                 span(2, "called off", 1000000, 100000, 16 * mib) +
                 span(3, "launch", 1500000, 250000, 0) +
                 span(3, "ahead", 1500000, 250000, 0) +
                 span(3, "missed", 1500000, 0, 5 * mib) +
                 span(3, "not expected", 1500000, 0, 3 * mib) +
                 span(4, "map", 1500000, 2000, 64 * mib) + "\n]\n");
    EXPECT_FALSE(is.cut);
    EXPECT_EQ(is.to_vram, 128 * mib);
    EXPECT_EQ(is.to_ram, 32 * mib);
    EXPECT_EQ(is.waited, 0.25) << "held back is not waiting for memory";
    EXPECT_EQ(is.missed, 5 * mib);
    EXPECT_EQ(is.unforeseen, 3 * mib);
    EXPECT_DOUBLE_EQ(is.seconds, 1.5);
    EXPECT_EQ(sum_of(is, "fetch").count, 2u);
    EXPECT_EQ(sum_of(is, "map").row, "calls");
    EXPECT_FALSE(is.peak_vram) << "the trace has no counters";
    ASSERT_EQ(is.devices.size(), 1u) << "the link is known by the moves";
}

TEST(ReportTrace, TakesNeighboursOfOneSizeForOnePiece)
{
    const run is = read_trace(
        "t", rows() + span(1, "fetch", 1, 1, 64 * mib) +
                 span(1, "fetch", 2, 1, 64 * mib, "0x7f0004000000") +
                 span(1, "fetch", 3, 1, 8 * mib, "0x7f0008000000") +
                 span(1, "fetch", 4, 1, 64 * mib, "0x7f0008800000") + "\n]\n");
    ASSERT_EQ(is.holders.size(), 2u);
    EXPECT_EQ(is.holders[0].what, "0x7f0000000000");
    EXPECT_EQ(is.holders[0].bytes, 136 * mib);
    EXPECT_EQ(is.holders[0].moves, 3u);
    EXPECT_EQ(is.holders[1].bytes, 64 * mib);
}

TEST(ReportTrace, HasThePeakOfAllDevicesTogether)
{
    const run is = read_trace(
        "t",
        rows() + counter("VRAM", 1e6, 100) + counter("system RAM", 1e6, 5) +
            counter("VRAM, device 1", 2e6, 200) + counter("VRAM", 3e6, 10) +
            counter("VRAM, device 1", 4e6, 250) + "\n]\n");
    ASSERT_TRUE(is.peak_vram && is.peak_ram);
    EXPECT_EQ(*is.peak_vram, 300);
    EXPECT_EQ(*is.peak_ram, 5);
    EXPECT_EQ(is.devices.size(), 2u);
}

TEST(ReportTrace, TellsOtherCardsFromSystemRam)
{
    std::string lent = span(1, "fetch", 1000000, 500000, 64 * mib);
    lent.insert(lent.rfind("}}"), ",\"card\":1");
    std::string back = span(2, "write back", 1500000, 500000, 8 * mib);
    back.insert(back.rfind("}}"), ",\"card\":1");
    const run is = read_trace(
        "t", rows() + lent + back +
                 span(1, "fetch", 1000000, 500000, 16 * mib) +
                 counter("VRAM", 1e6, 1) + counter("system RAM", 1e6, 5) +
                 counter("other cards", 1e6, 70) + counter("VRAM", 2e6, 1) +
                 counter("other cards", 2e6, 60) +
                 counter("link to VRAM", 1e6, 16 * mib, "bytes/s") +
                 counter("cards to VRAM", 1e6, 64 * mib, "bytes/s") +
                 counter("VRAM to cards", 1e6, 8 * mib, "bytes/s") + "\n]\n");
    EXPECT_EQ(is.to_vram, 80 * mib);
    EXPECT_EQ(is.from_cards, 64 * mib);
    EXPECT_EQ(is.to_cards, 8 * mib);
    EXPECT_EQ(*is.peak_ram, 5);
    EXPECT_EQ(is.peak_cards, 70);
    ASSERT_EQ(is.devices.size(), 1u);
    const device_memory &one = is.devices[0];
    ASSERT_EQ(one.held.size(), 3u);
    EXPECT_EQ(one.held[2].name, "other cards");
    const auto sum = [&](const track &of) {
        double bytes = 0;
        for (const double each : of.values)
            bytes += each * is.part_seconds;
        return bytes;
    };
    EXPECT_NEAR(sum(one.crossed[0]), 16 * mib, 1);
    ASSERT_EQ(one.lent.size(), 2u);
    EXPECT_NEAR(sum(one.lent[0]), 64 * mib, 1);
    EXPECT_NEAR(sum(one.lent[1]), 8 * mib, 1);
}

TEST(ReportTrace, OfATraceWithoutALenderNoOtherCardIsDrawn)
{
    const run is = read_trace("t", rows() + counter("VRAM", 1e6, 1) +
                                       counter("system RAM", 1e6, 5) + "\n]\n");
    ASSERT_EQ(is.devices.size(), 1u);
    EXPECT_EQ(is.devices[0].held.size(), 2u);
    EXPECT_TRUE(is.devices[0].lent.empty());
    EXPECT_FALSE(is.peak_cards);
}

TEST(ReportTrace, DrawsTheLinkByItsCounters)
{
    // A rate stands where it begins to hold, behind the levels of its end.
    const run is = read_trace(
        "t", rows() + counter("VRAM", 1e6, 1) +
                 counter("link to VRAM", 1e6, 0, "bytes/s") +
                 counter("VRAM", 2e6, 1) +
                 counter("link to VRAM", 1e6, 5000, "bytes/s") + "\n]\n");
    ASSERT_EQ(is.devices.size(), 1u);
    double bytes = 0;
    for (const double each : is.devices[0].crossed[0].values)
        bytes += each * is.part_seconds;
    EXPECT_NEAR(bytes, 5000, 1);
}

TEST(ReportTrace, KeepsWhatStandsBeforeACut)
{
    const std::string whole =
        rows() + span(1, "fetch", 1, 1, 64) + span(1, "fetch", 2, 1, 64);
    for (std::size_t less = 1; less < 90; less++) {
        const run is = read_trace("t", whole.substr(0, whole.size() - less));
        EXPECT_TRUE(is.cut);
        EXPECT_EQ(sum_of(is, "fetch").count, 1u) << less;
    }
    const run ends = read_trace("t", whole);
    EXPECT_TRUE(ends.cut) << "the array's end is missing";
    EXPECT_EQ(sum_of(ends, "fetch").count, 2u);
}

TEST(ReportTrace, ReadsChromesObjectsAsWell)
{
    const run is = read_trace(
        "t", "{\"other\":[{\"ph\":\"X\"}],\"traceEvents\":" + rows() +
                 span(1, "fetch", 1, 1, 64) + "]}");
    EXPECT_FALSE(is.cut);
    EXPECT_EQ(is.to_vram, 64);
}

TEST(ReportTrace, LeavesOutFiguresThatCannotBe)
{
    const run is = read_trace(
        "t", rows() + span(1, "fetch", -1, 1, 64) +
                 span(1, "fetch", 1e300, 1, 64) + span(1, "fetch", 1, -5, 64) +
                 span(1, "fetch", 1, 1, 1e30) + span(9, "fetch", 1, 1, 64) +
                 counter("VRAM, device 99", 1, 1) + span(1, "fetch", 1, 1, 64) +
                 "\n]\n");
    EXPECT_EQ(is.to_vram, 64);
    EXPECT_THAT(is.notes,
                testing::Contains(HasSubstr("4 events have impossible")));
    EXPECT_THAT(is.notes,
                testing::Contains(HasSubstr("2 events are not emuV's")));
}

TEST(ReportTrace, NamesOnlySoManyEvents)
{
    std::string text = rows();
    for (int i = 0; i < 500; i++)
        text += span(1, fmt::format("name {}", i), i, 1, 1);
    const run is = read_trace("t", text + "\n]\n");
    EXPECT_EQ(is.moved.size(), 64u);
    EXPECT_EQ(sum_of(is, "others").count, 437u);
}

TEST(ReportTrace, FollowsOnlySoManyPieces)
{
    std::string text = rows();
    for (int i = 0; i < 70000; i++)
        text += span(1, "fetch", i, 1, 4, fmt::format("{:#x}", 4096 + i * 64));
    const run is = read_trace("t", text + "\n]\n");
    EXPECT_FALSE(is.holders_are_all);
    EXPECT_LE(is.holders.size(), 10u);
    EXPECT_EQ(is.to_vram, 280000) << "sums are of all";
}

TEST(ReportTrace, EndsAtATextThatIsTooLong)
{
    const run is = read_trace(
        "t", rows() + span(1, "fetch", 1, 1, 64) +
                 span(1, std::string(200000, 'x'), 1, 1, 64) + "\n]\n");
    EXPECT_TRUE(is.cut);
    EXPECT_THAT(is.why_cut, HasSubstr("more than 64 KiB"));
    EXPECT_EQ(is.to_vram, 64);
}

TEST(ReportTrace, EndsWhereItNestsTooDeeply)
{
    const run is = read_trace("t", rows() + span(1, "fetch", 1, 1, 64) + "," +
                                       std::string(1000, '['));
    EXPECT_TRUE(is.cut);
    EXPECT_THAT(is.why_cut, HasSubstr("nested too deeply"));
}

std::string refusal(const std::string &text)
{
    try {
        read_trace("file", text);
    } catch (const unreadable &problem) {
        return problem.what();
    }
    return "taken";
}

TEST(ReportTrace, RefusesWhatIsNone)
{
    EXPECT_THAT(refusal(""), HasSubstr("not a trace"));
    EXPECT_THAT(refusal("[]"), HasSubstr("JSON, but no trace"));
    EXPECT_THAT(refusal("{\"a\": 1}"), HasSubstr("JSON, but no trace"));
    EXPECT_THAT(refusal("[INFO] epoch 1"), HasSubstr("not a trace"));
    EXPECT_THAT(refusal(R"([{"ph":"X","name":"aten::mm","ts":1,"dur":2}])"),
                HasSubstr("none of emuV's"));
}

TEST(ReportTrace, OfWhichNothingMovedIsSaidToBeSo)
{
    const run is = read_trace("t", rows() + "\n]\n");
    EXPECT_TRUE(is.moved.empty());
    EXPECT_THAT(is.notes, testing::Contains(HasSubstr("Nothing moved")));
}

} // namespace

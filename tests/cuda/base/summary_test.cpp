// SPDX-License-Identifier: GPL-2.0-or-later
// A device's published figures in words: advice only where they support it.
#include "base/summary.hpp"

#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t GiB = 1ull << 30;
constexpr std::uint64_t ms = 1'000'000;

// Eight steps of 40 ms, of which 30 are computing and 8 the link's. 1.5 GiB of
// 7.5 lie in system RAM, and the card has 24.
device_statistics moving()
{
    device_statistics made;
    made.charged = {6 * GiB, 3 * GiB, 6 * GiB, 3 * GiB};
    made.link_rate = 50'000'000'000;
    made.card_bytes = 24 * GiB;
    made.share_bytes = 6 * GiB;
    made.virtual_bytes = 48 * GiB;
    made.in_ram_bytes = 3 * GiB / 2;
    made.is = treatment::moving;
    made.round = 612;
    made.steps = 100;
    made.samples = 8;
    for (int i = 0; i < 8; i++)
        made.kept[i] = {.took_ns = 40 * ms,
                        .link_ns = 8 * ms,
                        .mapping_ns = ms,
                        .program_ns = ms,
                        .fetched_bytes = 3 * GiB / 2,
                        .evicted_bytes = GiB / 8,
                        .used_bytes = 15 * GiB / 2,
                        .steps = 1,
                        .launches = 612};
    return made;
}

std::string all_of(const device_statistics &of,
                   mobility memory = mobility::moves)
{
    std::string text;
    for (const auto &line : describe(summarize(of, memory), memory)) {
        EXPECT_LE(line.size(), 79u) << line;
        text += line + "\n";
    }
    return text;
}

constexpr mobility every_mobility[] = {mobility::moves,      mobility::unasked,
                                       mobility::off,        mobility::pages,
                                       mobility::impossible, mobility::checked};

bool has(const std::string &text, const char *part)
{
    return text.find(part) != std::string::npos;
}

TEST(Summary, ThePartsOfAStepAddUpToAllOfIt)
{
    const summary all = summarize(moving(), mobility::moves);
    EXPECT_EQ(all.steps, 8u);
    EXPECT_DOUBLE_EQ(all.took_ns, 40e6);
    EXPECT_DOUBLE_EQ(all.computing_ns, 30e6);
    EXPECT_DOUBLE_EQ(all.computing_ns + all.link_ns + all.mapping_ns +
                         all.standing_ns + all.program_ns,
                     all.took_ns);
    EXPECT_NEAR(all.link_share(all.fetched_bytes), 0.805, 0.001);
    // 1.5 GiB have no room: 32 ms at that rate.
    EXPECT_NEAR(all.limit_ns, 32.2e6, 0.1e6);
}

TEST(Summary, ComputingThatReadsOverTheLinkIsNoLimit)
{
    device_statistics of = moving();
    for (auto &each : of.kept) {
        each.missed_bytes = GiB;
        each.used_bytes = of.share_bytes;
    }
    EXPECT_EQ(summarize(of, mobility::moves).limit_ns, 0);
    EXPECT_FALSE(has(all_of(of), "limit"));
}

TEST(Summary, NobodyKnowsTheLimitOfGraphsThatRunAsAWhole)
{
    device_statistics of = moving();
    for (auto &each : of.kept) {
        each.untrusted_ns = each.took_ns / 2;
        each.used_bytes = of.share_bytes;
    }
    of.kernels = 1;
    of.listed_steps = 8;
    copy_text(of.most_costly[0].why, "a graph with events");
    EXPECT_EQ(summarize(of, mobility::moves).limit_ns, 0);
    EXPECT_TRUE(has(all_of(of), "with what it reads over the link"));
    const std::string advice = summarize(of, mobility::moves).advice;
    EXPECT_TRUE(has(advice, "try the program without graphs")) << advice;
    of.in_ram_bytes = 0; // it reads nothing over the link
    EXPECT_GT(summarize(of, mobility::moves).limit_ns, 0);
    EXPECT_FALSE(has(summarize(of, mobility::moves).advice, "graphs"));
}

TEST(Summary, WaitsOfTheStepBeforeMakeNoPartNegative)
{
    device_statistics of = moving();
    for (auto &each : of.kept)
        each.link_ns = 100 * ms;
    const summary all = summarize(of, mobility::moves);
    EXPECT_DOUBLE_EQ(all.computing_ns, 0);
    EXPECT_NEAR(all.link_ns + all.mapping_ns + all.program_ns, all.took_ns, 1);
}

TEST(Summary, ShortStepsThatShareAnEntryAreCountedOneByOne)
{
    device_statistics of = moving();
    for (auto &each : of.kept)
        each.steps = each.steps * 4;
    const summary all = summarize(of, mobility::moves);
    EXPECT_EQ(all.steps, 32u);
    EXPECT_DOUBLE_EQ(all.took_ns, 10e6);
}

TEST(Summary, OfARingThatHasGoneRoundAllEntriesCountOnce)
{
    device_statistics of = moving();
    for (auto &each : of.kept)
        each = {.took_ns = 5 * ms, .steps = 1};
    of.samples = 1000;
    EXPECT_EQ(summarize(of, mobility::moves).steps,
              device_statistics::max_kept);
}

TEST(Summary, WhereTheCardHasRoomALargerShareIsTheAdvice)
{
    EXPECT_EQ(summarize(moving(), mobility::moves).advice,
              "raise the share by 1.5 GiB: nothing would cross the link");
}

TEST(Summary, WhereTheCardLacksRoomSoMuchLessIsTheAdvice)
{
    device_statistics of = moving();
    of.card_bytes = 7 * GiB;
    const std::string advice = summarize(of, mobility::moves).advice;
    EXPECT_TRUE(has(advice, "the card lacks 512 MiB")) << advice;
}

TEST(Summary, CheckpointingIsAdvisedOnlyWhereWritingBackCostsMoreThanAForward)
{
    device_statistics of = moving();
    of.card_bytes = of.share_bytes;
    EXPECT_FALSE(has(summarize(of, mobility::moves).advice, "checkpointing"));
    for (auto &each : of.kept) {
        each.evicted_bytes = each.fetched_bytes;
        each.link_ns = 24 * ms;
    }
    // 14 ms of computing: a third is 4.7.
    const std::string advice = summarize(of, mobility::moves).advice;
    EXPECT_TRUE(has(advice, "checkpointing would be faster")) << advice;
    EXPECT_TRUE(has(advice, "4.7 ms")) << advice;
    EXPECT_TRUE(has(advice, "24.0 ms")) << advice;
}

TEST(Summary, WithoutFiguresThereIsNoAdvice)
{
    device_statistics of = moving();
    of.samples = 3; // too few steps
    EXPECT_EQ(summarize(of, mobility::moves).advice, "");
    of = moving();
    for (auto &each : of.kept)
        each.link_ns = ms; // nothing stands out
    EXPECT_EQ(summarize(of, mobility::moves).advice, "");
    EXPECT_EQ(summarize(device_statistics(), mobility::moves).advice, "");
    EXPECT_EQ(summarize(device_statistics(), mobility::unasked).advice, "");
}

TEST(Summary, AKernelThatStopsMovementIsNamedWithItsCost)
{
    device_statistics of = moving();
    for (auto &each : of.kept) {
        each.standing_ns = 9 * ms;
        each.untrusted_ns = 12 * ms;
        each.untrusted_launches = 24;
    }
    of.kernels = 1;
    of.listed_steps = 10;
    copy_text(of.most_costly[0].name, "fmha_cutlassF");
    copy_text(of.most_costly[0].why, "it loads an address");
    of.most_costly[0].launches = 240;
    of.most_costly[0].busy_ns = 120 * ms;
    of.most_costly[0].waited_ns = 90 * ms;
    const std::string text = all_of(of);
    EXPECT_TRUE(has(text, "fmha_cutlassF")) << text;
    EXPECT_TRUE(has(text, "24.0 launches, 12.0 ms, 9.0 ms before them"))
        << text;
    EXPECT_TRUE(has(text, "for: it loads an address")) << text;
    EXPECT_TRUE(has(summarize(of, mobility::moves).advice, "--move=check"));
}

TEST(Summary, WhereNothingLeftVramThatIsSaidAndNoMore)
{
    device_statistics of;
    of.charged.vram = of.charged.most_vram = GiB;
    of.share_bytes = 2 * GiB;
    const std::string text = all_of(of);
    EXPECT_TRUE(has(text, "all of its memory is in VRAM")) << text;
    EXPECT_FALSE(has(text, "step")) << text;
    EXPECT_EQ(summarize(of, mobility::moves).advice, "");
}

TEST(Summary, WhereNothingMovesMovingIsTheAdvice)
{
    device_statistics of = moving();
    of.samples = 0;
    const std::string advice = summarize(of, mobility::unasked).advice;
    EXPECT_TRUE(has(advice, "try --move: 3 GiB lie in system RAM")) << advice;
    EXPECT_TRUE(has(advice, "raise the share by 3 GiB")) << advice;
    EXPECT_TRUE(has(all_of(of, mobility::unasked), "nothing moves"));
}

// Nothing is asked for that the user's own settings rule out.
TEST(Summary, AdviceFitsTheSettingsInForce)
{
    device_statistics of = moving();
    of.samples = 0;
    struct expectation
    {
        mobility memory;
        const char *line;
        const char *advice;
    };
    for (const expectation &each :
         {expectation{mobility::off, "nothing moves (--move=off)",
                      "Without --move=off (EMUV_MOVE=0)"},
          {mobility::pages, "nothing moves (--store pages)",
           "without --store pages (EMUV_STORE)"},
          {mobility::impossible, "nothing moves (no HOST_NUMA memory)", ""},
          {mobility::checked, "nothing moves (--move=check)", ""}}) {
        const std::string advice = summarize(of, each.memory).advice;
        EXPECT_FALSE(has(advice, "try --move")) << advice;
        EXPECT_TRUE(has(advice, each.advice)) << advice;
        EXPECT_EQ(has(advice, "raise the share by 3 GiB"),
                  each.memory != mobility::checked)
            << advice;
        EXPECT_TRUE(has(all_of(of, each.memory), each.line))
            << all_of(of, each.memory);
    }
    EXPECT_EQ(summarize(of, mobility::impossible).advice,
              "raise the share by 3 GiB: nothing would cross the link");
    EXPECT_EQ(summarize(of, mobility::checked).advice, "");
}

TEST(Summary, WhyMovementEndedIsSaid)
{
    device_statistics of = moving();
    of.is = treatment::ended;
    copy_text(of.stopped, "the program uses several contexts on one device");
    EXPECT_TRUE(has(all_of(of), "several contexts"));
}

TEST(Summary, ThePartsOfTheTextAreInOrder)
{
    device_statistics of = moving();
    of.allocations = 1;
    of.listed_steps = 2;
    of.most_crossing[0] = {0x7f1234000000, 2 * GiB, GiB, 4 * GiB, 2 * GiB};
    const std::string text = all_of(of);
    std::size_t at = 0;
    for (const char *part :
         {"VRAM 6 GiB of 6 GiB", "system RAM 3 GiB of 48 GiB", "it moves ahead",
          "a step takes 40.0 ms, of the last 8 (612 launches",
          "computing          30.0 ms  75 %",
          "link                8.0 ms  20 %",
          "to VRAM            1.5 GiB a step, 40.3 GB/s: 81 % of the link",
          "limit              32.2 ms  81 %  is reached",
          "0x7f1234000000          2 GiB      1 GiB      2 GiB      1 GiB"}) {
        const std::size_t found = text.find(part, at);
        ASSERT_NE(found, std::string::npos) << part << "\nnot in\n" << text;
        at = found;
    }
}

// Of the 1.5 GiB that a step fetches, another card has a half.
device_statistics lent()
{
    device_statistics made = moving();
    made.charged.ram = made.charged.most_ram = GiB;
    made.charged.lent[1] = {30 * GiB, 2 * GiB, 3 * GiB};
    made.on_cards_bytes = GiB;
    made.with_card[1] = {64 * GiB, 4 * GiB};
    made.with_ram = {32 * GiB, 2 * GiB};
    for (auto &each : made.kept)
        each.with_cards = {3 * GiB / 4, GiB / 16};
    return made;
}

TEST(Summary, WithALenderEachPlaceIsToldOfWithItsTraffic)
{
    const std::string text = all_of(lent());
    for (const char *part :
         {"VRAM 6 GiB of 6 GiB, system RAM 1 GiB of 48 GiB",
          "  beyond VRAM        HELD         OF    AT MOST      FETCHED      "
          "EVICTED",
          "  peer:1            2 GiB     30 GiB      3 GiB       64 GiB       "
          " 4 GiB",
          "  system RAM        1 GiB     48 GiB      1 GiB       32 GiB       "
          " 2 GiB",
          "1 GiB of the program's memory lie on other cards, 512 MiB in system "
          "RAM",
          "to VRAM            768 MiB a step, 20.1 GB/s: 40 % of the link",
          "to RAM              64 MiB a step, 1.7 GB/s: 3 % of the link",
          "from cards         768 MiB a step, 20.1 GB/s\n",
          "to cards            64 MiB a step, 1.7 GB/s\n"})
        EXPECT_TRUE(has(text, part)) << part << "\nnot in\n" << text;
}

TEST(Summary, WithoutALenderNoOtherCardIsSpokenOf)
{
    const std::string text = all_of(moving());
    EXPECT_FALSE(has(text, "cards")) << text;
    EXPECT_FALSE(has(text, "peer")) << text;
}

TEST(Summary, OnlyWhatLiesInSystemRamHasToCrossTheLink)
{
    // Of 1.5 GiB beyond the share another card has room for all.
    EXPECT_DOUBLE_EQ(summarize(lent(), mobility::moves).limit_ns, 30e6);
    EXPECT_NEAR(summarize(moving(), mobility::moves).limit_ns, 32.2e6, 0.1e6);
}

TEST(Summary, WhatLiesOnOtherCardsAloneIsNotTakenForVram)
{
    device_statistics of = lent();
    of.charged.ram = of.charged.most_ram = 0;
    EXPECT_FALSE(has(all_of(of), "all of its memory is in VRAM"));
    EXPECT_TRUE(has(all_of(of, mobility::unasked),
                    "what lies beyond VRAM is read there"));
    EXPECT_TRUE(has(summarize(of, mobility::unasked).advice,
                    "try --move: 2 GiB lie beyond VRAM"));
}

TEST(Summary, OfACardThatLendsItIsSaidHowMuch)
{
    device_statistics of;
    of.charged.vram = of.charged.most_vram = 3 * GiB;
    of.charged.lends = 2 * GiB;
    EXPECT_TRUE(has(all_of(of), "2 GiB of that VRAM are lent"));
}

// Readers tame a page's lists; its numbers may be any.
TEST(Summary, AnyNumbersMakeWholeLines)
{
    std::mt19937_64 random(7);
    for (int i = 0; i < 500; i++) {
        device_statistics of;
        auto *const words = reinterpret_cast<std::uint64_t *>(&of);
        for (std::size_t at = 0; at < sizeof of / 8; at++)
            words[at] = random() % 3 == 0
                            ? std::numeric_limits<std::uint64_t>::max()
                            : random() >> random() % 64;
        of.is = treatment(random() % 5);
        of.allocations = static_cast<std::uint32_t>(random() % 6);
        of.kernels = static_cast<std::uint32_t>(random() % 6);
        for (const mobility memory : every_mobility) {
            const summary all = summarize(of, memory);
            EXPECT_FALSE(describe(all, memory).empty());
            EXPECT_GE(all.computing_ns, 0);
        }
    }
}

TEST(Summary, TellsOfCodedCopies)
{
    device_statistics of = moving();
    EXPECT_EQ(all_of(of).find("coded"), std::string::npos);
    of.packed = {.raw_bytes = 10 * GiB,
                 .coded_bytes = 7 * GiB,
                 .refused_bytes = GiB,
                 .fetched_bytes = 70 * GiB,
                 .saved_bytes = 30 * GiB};
    const std::string text = all_of(of);
    EXPECT_NE(text.find("  coded: 10 GiB in 7 GiB (0.70); 30 GiB less crossed "
                        "the link so\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("  not coded: 1 GiB, which would take more than four "
                        "fifths\n"),
              std::string::npos)
        << text;
    of.packed.raw_bytes = of.packed.coded_bytes = UINT64_MAX;
    of.packed.saved_bytes = UINT64_MAX;
    all_of(of); // no line is too long
}

} // namespace

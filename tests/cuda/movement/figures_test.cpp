// SPDX-License-Identifier: GPL-2.0-or-later
// The figures that a mover publishes of itself.
#include "movement/figures.hpp"

#include <string>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t lag = 4; // work in a round

// A program that goes round, and the page that tells of it.
class Figures : public testing::Test
{
protected:
    // One round of work, which ends so much later.
    void go_round(std::uint64_t took_ns, const char *untrusted = nullptr)
    {
        now_ += took_ns;
        for (std::uint64_t i = 0; i < lag; i++) {
            flights::landing one;
            one.which.step = ++step_;
            one.which.lag = lag;
            one.which.trusted = untrusted == nullptr || i > 0;
            one.which.kernel = untrusted;
            one.which.why = "it loads an address";
            one.busy_ns = 2 * ms;
            all_.landed(one, step_, now_);
        }
    }
    void publish() { all_.publish({treatment::moving, 7, 3, 2, large_}, now_); }

    device_statistics page_;
    figures all_{&page_};
    std::vector<block_ref> large_;
    std::uint64_t step_ = 0;
    std::uint64_t now_ = 1000 * ms;
};

TEST_F(Figures, AStepIsARoundWithItsBytesAndItsTime)
{
    go_round(30 * ms); // the first tells how long a round is,
    go_round(30 * ms); // the next one begins a sample
    all_.moved({100, 10}, -1);
    all_.missed(1);
    go_round(30 * ms);
    EXPECT_TRUE(all_.is_due(now_));
    publish();
    EXPECT_EQ(page_.turn % 2, 0u);
    EXPECT_EQ(page_.is, treatment::moving);
    EXPECT_EQ(page_.in_ram_bytes, 7u);
    EXPECT_EQ(page_.round, lag);
    ASSERT_EQ(page_.samples, 1u);
    EXPECT_EQ(page_.kept[0].steps, 1u);
    EXPECT_EQ(page_.kept[0].took_ns, 30 * ms);
    EXPECT_EQ(page_.kept[0].launches, lag);
    EXPECT_EQ(page_.kept[0].fetched_bytes, 100u);
    EXPECT_EQ(page_.kept[0].evicted_bytes, 10u);
    EXPECT_EQ(page_.kept[0].missed_bytes, 1u);
    EXPECT_FALSE(all_.is_due(now_));
}

// Work may run before it is in flight: its launch has not returned yet.
TEST_F(Figures, WorkIsHandedOverUntilItHasDeparted)
{
    EXPECT_FALSE(all_.is_handing_over());
    all_.begins();
    all_.begins(); // another thread's
    EXPECT_TRUE(all_.is_handing_over());
    all_.handed_over();
    EXPECT_TRUE(all_.is_handing_over());
    all_.handed_over();
    EXPECT_FALSE(all_.is_handing_over());
}

TEST_F(Figures, EachPlaceHasItsTrafficAndAStepThatWithOtherCards)
{
    go_round(30 * ms);
    all_.moved({1000, 500}, 2); // before the first sample: it counts for ever
    go_round(30 * ms);
    all_.moved({100, 10}, -1);
    all_.moved({40, 4}, 2);
    all_.moved({2, 1}, 0);
    go_round(30 * ms);
    publish();
    EXPECT_EQ(page_.in_ram_bytes, 7u);
    EXPECT_EQ(page_.on_cards_bytes, 3u);
    EXPECT_EQ(page_.in_file_bytes, 2U);
    ASSERT_EQ(page_.samples, 1u);
    EXPECT_EQ(page_.kept[0].fetched_bytes, 142u);
    EXPECT_EQ(page_.kept[0].evicted_bytes, 15u);
    EXPECT_EQ(page_.kept[0].with_cards, (moved_bytes{42, 5}));
    EXPECT_EQ(page_.with_ram, (moved_bytes{100, 10}));
    EXPECT_EQ(page_.with_card[0], (moved_bytes{2, 1}));
    EXPECT_EQ(page_.with_card[1], moved_bytes{});
    EXPECT_EQ(page_.with_card[2], (moved_bytes{1040, 504}));
}

TEST_F(Figures, ShortStepsShareAnEntry)
{
    for (int i = 0; i < 202; i++)
        go_round(ms);
    publish();
    ASSERT_GT(page_.samples, 0u);
    EXPECT_GE(page_.kept[0].steps, 20u);
    EXPECT_EQ(page_.kept[0].took_ns, page_.kept[0].steps * ms);
}

TEST_F(Figures, TheRingKeepsTheLastEntries)
{
    for (int i = 0; i < 40; i++) {
        go_round((i + 30) * ms);
        publish();
    }
    EXPECT_GT(page_.samples, device_statistics::max_kept);
    EXPECT_EQ(
        page_.kept[(page_.samples - 1) % device_statistics::max_kept].took_ns,
        69 * ms);
}

TEST_F(Figures, WhatIsUsedTwiceInAStepCountsOnce)
{
    go_round(30 * ms);
    go_round(30 * ms);
    const std::uint64_t ended = step_ - lag + 1; // its work ended a step
    all_.uses(ended, 50);                        // last used before that
    all_.uses(ended + 1, 50);                    // and again
    all_.uses(0, 25);                            // never before
    go_round(30 * ms);
    publish();
    EXPECT_EQ(page_.kept[0].used_bytes, 75u);
}

TEST_F(Figures, KernelsThatStopMovementAreListedTheCostliestFirst)
{
    static const char *const names[] = {"cheap", "dear"};
    publish();
    for (int i = 0; i < 60; i++) {
        go_round(30 * ms, names[i % 2]);
        all_.stood(names[1], "it loads an address", ms);
        publish();
    }
    ASSERT_EQ(page_.kernels, 2u);
    EXPECT_STREQ(page_.most_costly[0].name, "dear");
    EXPECT_STREQ(page_.most_costly[0].why, "it loads an address");
    EXPECT_GT(page_.most_costly[0].waited_ns, 0u);
    EXPECT_EQ(page_.most_costly[1].waited_ns, 0u);
    EXPECT_GT(page_.kept[0].untrusted_ns, 0u);
}

TEST_F(Figures, AllocationsThatCrossAreListedTheMostCrossingFirst)
{
    for (std::uint64_t i = 0; i < 8; i++) {
        const block_ref made(new block);
        made->base = 0x1000 * (i + 1);
        made->bytes = i;
        large_.push_back(made);
    }
    publish();
    for (int i = 0; i < 60; i++) {
        for (const block_ref &each : large_)
            each->fetched_bytes += each->bytes;
        go_round(30 * ms);
        publish();
    }
    ASSERT_EQ(page_.allocations, device_statistics::max_listed);
    EXPECT_EQ(page_.most_crossing[0].address, 0x8000u);
    EXPECT_EQ(page_.most_crossing[4].address, 0x4000u);
    EXPECT_NEAR(static_cast<double>(page_.most_crossing[0].fetched_bytes),
                7.0 * static_cast<double>(page_.listed_steps), 14);
}

TEST_F(Figures, TheEndOfMovementIsPublishedWithItsReason)
{
    all_.stop("the device reports an error");
    EXPECT_EQ(page_.is, treatment::ended);
    EXPECT_STREQ(page_.stopped, "the device reports an error");
}

TEST_F(Figures, WithoutAPageNothingIsPublished)
{
    figures none(nullptr);
    none.stop("why");
    none.landed({}, 1, now_);
    none.stood("kernel", "why", ms);
    EXPECT_FALSE(none.is_due(now_));
}

} // namespace

// SPDX-License-Identifier: GPL-2.0-or-later
// Work in flight: when it has ended, and how long it took.
#include "base/captures.hpp"
#include "base/thread.hpp"
#include "movement/flights.hpp"
#include "wait_until.hpp"

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

const auto one = reinterpret_cast<CUstream>(0x100);
const auto other = reinterpret_cast<CUstream>(0x200);

// A driver whose events end when they are told to.
struct FlightsTest : testing::Test
{
    FlightsTest()
    {
        static FlightsTest *asked;
        asked = this;
        calls.cuEventQuery = [](CUevent event) {
            asked->questions++;
            const std::unique_lock free(asked->mutex, std::try_to_lock);
            EXPECT_TRUE(free.owns_lock());
            if (asked->departs_meanwhile != 0)
                asked->depart(other,
                              std::exchange(asked->departs_meanwhile, 0));
            return asked->done.contains(event) ? asked->answer
                                               : CUDA_ERROR_NOT_READY;
        };
        calls.cuEventRecord = [](CUevent event, CUstream stream) {
            if (const auto meanwhile =
                    std::exchange(asked->while_recording, nullptr))
                meanwhile();
            asked->recorded.emplace_back(stream, event);
            return asked->record_answer;
        };
        all.open(nullptr);
    }

    static CUevent event(std::uintptr_t number)
    {
        return reinterpret_cast<CUevent>(number);
    }

    void add(CUstream stream, std::uintptr_t number, bool fails = false,
             std::uint64_t expected_ns = 0)
    {
        EXPECT_TRUE(depart(stream, number, fails, expected_ns));
        all.arrive();
    }

    bool depart(CUstream stream, std::uintptr_t number, bool fails = false,
                std::uint64_t expected_ns = 0, bool brief = false)
    {
        flight made;
        made.event = event(number);
        made.begun_ns = made.handed_over_ns = brief ? set_up_ns : now_ns();
        made.failed = fails;
        made.expected_ns = expected_ns;
        made.brief = brief;
        how = all.depart(stream, std::move(made));
        return how == flights::departure::followed;
    }

    // A kernel that is known to end soon. All of them are handed over at the
    // same time, however long it takes to get here.
    void add_brief(CUstream stream, std::uintptr_t number,
                   std::uint64_t expected_ns = 0)
    {
        EXPECT_TRUE(depart(stream, number, false, expected_ns, true));
        all.arrive();
    }

    // Work that takes the device surely so long.
    void add_sure(CUstream stream, std::uintptr_t number,
                  std::uint64_t least_ns)
    {
        flight made;
        made.event = event(number);
        made.begun_ns = made.handed_over_ns = now_ns();
        made.least_ns = made.expected_ns = least_ns;
        EXPECT_EQ(all.depart(stream, std::move(made)),
                  flights::departure::followed);
        all.arrive();
    }

    std::vector<flights::landing> land()
    {
        std::unique_lock lock(mutex);
        return all.land(lock, failed);
    }

    std::vector<std::uintptr_t> landed()
    {
        std::vector<std::uintptr_t> numbers;
        for (const flights::landing &each : land())
            numbers.push_back(
                reinterpret_cast<std::uintptr_t>(each.which.event));
        return numbers;
    }

    driver calls{};
    std::set<CUevent> done;
    std::vector<std::pair<CUstream, CUevent>> recorded;
    CUresult record_answer = CUDA_SUCCESS;
    flights::departure how = flights::departure::followed;
    CUresult answer = CUDA_SUCCESS;
    unsigned questions = 0;
    std::uintptr_t departs_meanwhile = 0; // on the other stream
    std::function<void()> while_recording;
    const std::uint64_t set_up_ns = now_ns();
    std::mutex mutex;
    bool failed = false;
    flights all{calls};
};

using numbers = std::vector<std::uintptr_t>;

TEST_F(FlightsTest, WorkEndsInItsStreamsOrder)
{
    add(one, 1);
    add(one, 2);
    add(one, 3);
    add(other, 4);
    done = {event(1), event(3), event(4)};
    EXPECT_EQ(landed(), (numbers{1, 4}));
    EXPECT_EQ(landed(), numbers{});
    EXPECT_FALSE(failed);
    done.insert(event(2));
    const auto rest = land();
    ASSERT_EQ(rest.size(), 2u);
    EXPECT_TRUE(rest[0].is_first);
    EXPECT_FALSE(rest[1].is_first);
    EXPECT_TRUE(all.empty());
}

// The driver may delay an event until the device goes on, and for that another
// thread may have to launch.
TEST_F(FlightsTest, WhileAnEventIsRecordedForOthersWorkDeparts)
{
    bool has_departed = false;
    add_brief(one, 1);
    while_recording = [&] { has_departed = depart(other, 2); };
    all.mark();
    EXPECT_TRUE(has_departed);
    // The same holds for a launch that records an event for others.
    add_brief(one, 3);
    has_departed = false;
    while_recording = [&] { has_departed = depart(one, 4); };
    add(other, 5);
    EXPECT_TRUE(has_departed);
    done = {event(1), event(2), event(3), event(4), event(5)};
    EXPECT_EQ(landed(), (numbers{1, 3, 4, 2, 5}));
}

// Otherwise its event would be given to other work before it is recorded.
TEST_F(FlightsTest, WhatIsYetToBeMarkedDoesNotEndByTheEventOfLaterWork)
{
    numbers meanwhile{0};
    add_brief(one, 1);
    while_recording = [&] {
        add(one, 2);
        done = {event(2)};
        meanwhile = landed();
    };
    all.mark();
    EXPECT_EQ(meanwhile, numbers{});
    done = {event(1), event(2)};
    EXPECT_EQ(landed(), (numbers{1, 2}));
    EXPECT_FALSE(failed);
}

TEST_F(FlightsTest, TheOldestIsThatOfItsStream)
{
    EXPECT_EQ(all.oldest(one), nullptr);
    add(one, 1);
    add(other, 2);
    add(one, 3);
    ASSERT_NE(all.oldest(one), nullptr);
    EXPECT_EQ(all.oldest(one)->event, event(1));
    EXPECT_EQ(all.oldest(other)->event, event(2));
    done = {event(1), event(2)};
    EXPECT_EQ(landed(), (numbers{1, 2}));
    EXPECT_EQ(all.oldest(one)->event, event(3));
    EXPECT_EQ(all.oldest(other), nullptr);
}

TEST_F(FlightsTest, IsAheadByTheWorkThatIsSureBehindTheOldestOfItsStream)
{
    const std::uint64_t now = now_ns();
    EXPECT_FALSE(all.is_ahead(one, 0, now));
    add_sure(one, 1, 100);
    EXPECT_FALSE(all.is_ahead(one, 0, now));
    add_sure(one, 2, 20);
    add_sure(other, 3, 7);
    add_sure(one, 4, 3);
    EXPECT_TRUE(all.is_ahead(one, 22, now));
    EXPECT_FALSE(all.is_ahead(one, 23, now));
    EXPECT_FALSE(all.is_ahead(other, 0, now));
    done = {event(1)};
    EXPECT_EQ(landed(), numbers{1});
    EXPECT_TRUE(all.is_ahead(one, 2, now));
    EXPECT_FALSE(all.is_ahead(one, 3, now));
    done = {event(2), event(4)};
    EXPECT_EQ(landed(), (numbers{2, 4}));
    EXPECT_FALSE(all.is_ahead(one, 0, now));
}

TEST_F(FlightsTest, WorkThatOnlySeemsLongIsAheadOnceItHasWaitedThatLong)
{
    const std::uint64_t before = now_ns();
    add(one, 1, false, 1000);
    add(one, 2, false, 1000);
    const std::uint64_t after = now_ns();
    EXPECT_FALSE(all.is_ahead(one, 500, before));
    EXPECT_TRUE(all.is_ahead(one, 500, after + 501));
    EXPECT_FALSE(all.is_ahead(one, 1000, after + 10000));
    EXPECT_FALSE(all.is_ahead(one, 250, before));
    EXPECT_TRUE(all.is_ahead(one, 249, before));
}

TEST_F(FlightsTest, WorkTakesAtLeastTheTimeFromOneLookToTheNext)
{
    add(one, 1);
    EXPECT_TRUE(land().empty());
    const std::uint64_t looked = now_ns();
    while (now_ns() == looked)
        ;
    const std::uint64_t again = now_ns();
    EXPECT_TRUE(land().empty());
    done = {event(1)};
    const auto ended = land();
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_GE(ended[0].busy_ns, ended[0].least_ns);
    EXPECT_GE(ended[0].least_ns, again - looked);
}

TEST_F(FlightsTest, WorkIsBusyFromTheEndBeforeItInItsStream)
{
    add(one, 1);
    add(one, 2); // before the other stream has any
    usleep(3000);
    add(other, 3);
    usleep(3000);
    done = {event(1)};
    const auto first = land();
    ASSERT_EQ(first.size(), 1u);
    EXPECT_GE(first[0].busy_ns, 6000000u);
    done = {event(2), event(3)};
    const auto rest = land();
    ASSERT_EQ(rest.size(), 2u);
    EXPECT_EQ(rest[0].which.event, event(2));
    EXPECT_LT(rest[0].busy_ns, rest[1].busy_ns);
    EXPECT_GE(rest[1].busy_ns, 3000000u);
}

TEST_F(FlightsTest, WhatEndsTogetherHasItsTimeOnce)
{
    add(one, 1);
    add(one, 2);
    usleep(1);
    done = {event(1), event(2)};
    const auto both = land();
    ASSERT_EQ(both.size(), 2u);
    EXPECT_GT(both[0].busy_ns, 0u);
    EXPECT_EQ(both[1].busy_ns, 0u);
}

TEST_F(FlightsTest, NobodyIsAskedWhereThereIsNoWork)
{
    EXPECT_EQ(landed(), numbers{});
    EXPECT_EQ(questions, 0u);
}

TEST_F(FlightsTest, OfVeryManyOnlySomeAreAskedForAtOnce)
{
    for (std::uintptr_t i = 1; i <= 100; i++) {
        add(one, i);
        done.insert(event(i));
    }
    const auto first = landed().size();
    EXPECT_LT(first, 100u);
    EXPECT_EQ(first, questions);
    EXPECT_EQ(first + landed().size(), 100u);
}

TEST_F(FlightsTest, AnErrorIsAnEndAndIsTold)
{
    add(one, 1);
    done = {event(1)};
    answer = CUDA_ERROR_ILLEGAL_ADDRESS;
    EXPECT_EQ(landed(), numbers{1});
    EXPECT_TRUE(failed);
}

TEST_F(FlightsTest, WhatIsAloneHasATimeBetweenItsEnds)
{
    const std::uint64_t begun = now_ns();
    add(one, 1);
    EXPECT_EQ(landed(), numbers{}); // somebody has looked
    usleep(2000);
    EXPECT_EQ(landed(), numbers{});
    done = {event(1)};
    const auto ended = land();
    ASSERT_EQ(ended.size(), 1u);
    ASSERT_TRUE(ended[0].took);
    EXPECT_GE(ended[0].took->most_ns, 2000000u);
    EXPECT_LE(ended[0].took->most_ns, now_ns() - begun);
    // Somebody looked after those two milliseconds, before it had ended.
    EXPECT_GE(ended[0].took->least_ns, 2000000u);
    EXPECT_LE(ended[0].took->least_ns, ended[0].took->most_ns);
}

TEST_F(FlightsTest, OfTwoThatEndTogetherTheSecondBeganSinceTheLastLook)
{
    add(one, 1);
    add(one, 2);
    usleep(5000);
    const std::uint64_t looked = now_ns();
    EXPECT_EQ(landed(), numbers{});
    done = {event(1), event(2)};
    const auto ended = land();
    const std::uint64_t since = now_ns() - looked;
    ASSERT_EQ(ended.size(), 2u);
    ASSERT_TRUE(ended[0].took && ended[1].took);
    EXPECT_GE(ended[0].took->most_ns, 5000000u);
    EXPECT_EQ(ended[1].took->least_ns, 0u);
    EXPECT_LE(ended[1].took->most_ns, since);
}

TEST_F(FlightsTest, WhatDepartsWhileTheDriverIsAskedIsBesideIt)
{
    add(one, 1);
    departs_meanwhile = 2;
    done = {event(1), event(2)};
    const auto first = land();
    ASSERT_EQ(first.size(), 1u);
    EXPECT_FALSE(first[0].took);
    EXPECT_EQ(landed(), numbers{2});
}

TEST_F(FlightsTest, WhatHasDepartedIsNotThereUntilItArrives)
{
    EXPECT_FALSE(all.any_departed());
    EXPECT_TRUE(depart(one, 1, false, 20));
    EXPECT_TRUE(depart(one, 2, false, 3));
    EXPECT_TRUE(all.any_departed());
    EXPECT_EQ(all.departed_ns(), 23u);
    EXPECT_TRUE(all.empty());
    all.arrive();
    EXPECT_FALSE(all.any_departed());
    EXPECT_EQ(all.departed_ns(), 0u);
    ASSERT_NE(all.oldest(one), nullptr);
    EXPECT_EQ(all.oldest(one)->event, event(1));
    ASSERT_TRUE(all.is_ahead(one, 2, now_ns() + 1000));
}

TEST_F(FlightsTest, NothingDepartsFromAClosedOne)
{
    EXPECT_TRUE(depart(one, 1));
    all.close();
    EXPECT_FALSE(depart(one, 2));
    all.arrive();
    EXPECT_EQ(all.abandon().size(), 1u) << "what had departed before";
    all.open(nullptr);
    EXPECT_TRUE(depart(one, 3));
}

TEST_F(FlightsTest, OneEventStandsForAllBriefWorkBeforeIt)
{
    add_brief(one, 1);
    add_brief(one, 2);
    add(one, 3);
    ASSERT_EQ(recorded.size(), 1u);
    EXPECT_EQ(recorded[0], std::make_pair(one, event(3)));
    // The events of 1 and 2 are not recorded, and say nothing.
    done = {event(1), event(2)};
    EXPECT_EQ(landed(), numbers{});
    EXPECT_EQ(questions, 1u);
    usleep(3);
    done = {event(3)};
    const auto ended = land();
    ASSERT_EQ(ended.size(), 3u);
    EXPECT_TRUE(ended[0].is_first);
    EXPECT_FALSE(ended[1].is_first);
    EXPECT_GT(ended[0].busy_ns, 0u);
    EXPECT_EQ(ended[0].busy_ns, ended[1].busy_ns);
    EXPECT_EQ(ended[0].busy_ns, ended[2].busy_ns);
    for (const flights::landing &each : ended) {
        ASSERT_TRUE(each.took);
        EXPECT_EQ(each.took->least_ns, 0u) << "another may have had it all";
    }
    EXPECT_TRUE(all.empty());
}

TEST_F(FlightsTest, BriefWorkIsMarkedBeforeWhatMayTakeLong)
{
    add_brief(one, 1);
    add_brief(one, 2);
    flight next;
    next.brief = true;
    all.mark_before(one, next);
    EXPECT_TRUE(recorded.empty());
    next.brief = false;
    all.mark_before(one, next);
    ASSERT_EQ(recorded.size(), 1u);
    EXPECT_EQ(recorded[0], std::make_pair(one, event(2)));
    add(one, 3);
    done = {event(2)};
    EXPECT_EQ(landed(), (numbers{1, 2}));
}

TEST_F(FlightsTest, BriefWorkIsMarkedBeforeThatOfAnotherStream)
{
    add_brief(one, 1);
    flight next;
    next.brief = true;
    all.mark_before(other, next);
    EXPECT_EQ(recorded, (std::vector{std::make_pair(one, event(1))}));
    add_brief(other, 2);
    // This work departs before anybody has called mark_before().
    add_brief(one, 3);
    EXPECT_EQ(recorded.back(), std::make_pair(other, event(2)));
    done = {event(1), event(2), event(3)};
    EXPECT_EQ(landed(), (numbers{1, 2}));
    all.mark();
    all.arrive();
    EXPECT_EQ(landed(), numbers{3});
}

TEST_F(FlightsTest, BriefWorkThatNothingFollowsIsMarkedAfterAWhile)
{
    add_brief(one, 1);
    EXPECT_TRUE(wait_until([&] { return !recorded.empty(); },
                           [&] { EXPECT_EQ(landed(), numbers{}); }));
    ASSERT_EQ(recorded.size(), 1u);
    done = {event(1)};
    EXPECT_EQ(landed(), numbers{1});
}

TEST_F(FlightsTest, OneEventStandsForSoMuchWorkAtMost)
{
    for (std::uintptr_t i = 1; i <= flights::max_unmarked; i++)
        add_brief(one, i);
    ASSERT_EQ(recorded.size(), 1u);
    EXPECT_EQ(recorded[0].second, event(flights::max_unmarked));
    add_brief(one, 100, flights::max_unmarked_ns / 2);
    add_brief(one, 101, flights::max_unmarked_ns / 4);
    EXPECT_EQ(recorded.size(), 1u);
    add_brief(one, 102, flights::max_unmarked_ns / 4);
    ASSERT_EQ(recorded.size(), 2u);
    EXPECT_EQ(recorded[1].second, event(102));
    done = {event(flights::max_unmarked), event(102)};
    EXPECT_EQ(landed().size(), flights::max_unmarked + 3);
}

TEST_F(FlightsTest, EveryPieceHasItsEventWhileTheProgramCaptures)
{
    open_captures++;
    add_brief(one, 1);
    open_captures--;
    EXPECT_EQ(recorded, (std::vector{std::make_pair(one, event(1))}));
    done = {event(1)};
    EXPECT_EQ(landed(), numbers{1});
}

TEST_F(FlightsTest, AStreamThatGoesLeavesNothingUnmarked)
{
    add_brief(one, 1);
    all.leave(other);
    EXPECT_TRUE(recorded.empty());
    EXPECT_TRUE(all.any_unmarked());
    all.leave(one);
    EXPECT_EQ(recorded, (std::vector{std::make_pair(one, event(1))}));
    EXPECT_FALSE(all.any_unmarked());
}

// A stream that is about to be captured, or to go, waits for the recording.
TEST_F(FlightsTest, WhatIsBeingMarkedIsUnmarkedUntilItsEventIsRecorded)
{
    static flights *seen;
    static bool unmarked_meanwhile;
    seen = &all;
    unmarked_meanwhile = false;
    calls.cuEventRecord = [](CUevent, CUstream) {
        unmarked_meanwhile = seen->any_unmarked();
        return CUDA_SUCCESS;
    };
    add_brief(one, 1);
    all.mark();
    EXPECT_TRUE(unmarked_meanwhile);
    EXPECT_FALSE(all.any_unmarked());
}

TEST_F(FlightsTest, WhatCannotBeMarkedIsLostWithAllThatItWasToStandFor)
{
    record_answer = CUDA_ERROR_INVALID_HANDLE;
    EXPECT_FALSE(depart(one, 1));
    EXPECT_EQ(how, flights::departure::lost);
    EXPECT_EQ(landed(), numbers{});
    EXPECT_FALSE(failed) << "nothing that was followed";
    add_brief(one, 2);
    EXPECT_FALSE(depart(one, 3));
    EXPECT_EQ(landed(), numbers{});
    EXPECT_TRUE(failed);
}

TEST_F(FlightsTest, WhatOneEventStandsForIsAskedForWithItAlone)
{
    for (std::uintptr_t i = 1; i <= 500; i++)
        add_brief(one, i);
    for (const auto &[stream, event] : recorded)
        done.insert(event);
    const std::size_t marked = recorded.size(); // the last few may be unmarked
    EXPECT_EQ(landed().size(), marked * flights::max_unmarked);
    EXPECT_EQ(questions, marked);
}

TEST_F(FlightsTest, BesideAnotherStreamNobodyKnowsHowLongItTook)
{
    add(one, 1);
    add(other, 2);
    done = {event(1), event(2)};
    const auto together = land();
    ASSERT_EQ(together.size(), 2u);
    for (const flights::landing &each : together)
        EXPECT_FALSE(each.took);
    // Work that began since then is alone again.
    usleep(1);
    add(one, 3);
    done.insert(event(3));
    const auto ended = land();
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_TRUE(ended[0].took);
}

TEST_F(FlightsTest, HowLongWhatFailedToBeginTookIsNotKnown)
{
    add(one, 1, true);
    done = {event(1)};
    const auto ended = land();
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_FALSE(ended[0].took);
}

// In nanoseconds. Work is known to take longer here than any test does.
constexpr std::uint64_t second = 1000000000;

TEST_F(FlightsTest, ItIsKnownHowLongAStreamIsBusyYet)
{
    add(one, 1, false, 5000 * second);
    add(one, 2, false, 3000 * second);
    const std::uint64_t start = now_ns();
    EXPECT_EQ(all.until_idle_ns(other, start), 0U);
    const std::uint64_t left = all.until_idle_ns(one, start);
    EXPECT_GT(left, 0U);
    EXPECT_LE(left, 8000 * second);
    EXPECT_EQ(all.until_idle_ns(one, start + second), left - second);
    EXPECT_EQ(all.until_idle_ns(one, start + left), 0U);
    EXPECT_EQ(all.until_idle_ns(one, start + left + flights::max_overdue_ns),
              UINT64_MAX)
        << "it takes longer than is known";
}

TEST_F(FlightsTest, ItIsKnownHowLongItIsUntilAStreamComesToWork)
{
    const auto is_third = [&](const flight &each) {
        return each.event == event(3);
    };
    add(one, 1, false, 5000 * second);
    add(one, 2, false, 3000 * second);
    const std::uint64_t start = now_ns();
    EXPECT_EQ(all.until_ns(start, is_third), UINT64_MAX);
    add(one, 3, false, 70000 * second);
    add(one, 4, false, 1000 * second);
    const std::uint64_t left = all.until_ns(start, is_third);
    EXPECT_GT(left, 0U);
    EXPECT_LE(left, 8000 * second) << "its own time is yet to come";
    add(other, 3, false, 1);
    EXPECT_EQ(all.until_ns(now_ns(), is_third), 0U) << "the first counts";
}

TEST_F(FlightsTest, WhatIsAbandonedIsAskedForNoMore)
{
    add(one, 1);
    add(other, 2);
    EXPECT_EQ(all.abandon().size(), 2u);
    EXPECT_TRUE(all.empty());
    EXPECT_EQ(landed(), numbers{});
    EXPECT_EQ(questions, 0u);
}

} // namespace

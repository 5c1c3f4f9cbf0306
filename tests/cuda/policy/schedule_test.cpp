// SPDX-License-Identifier: GPL-2.0-or-later
// A program's next touches, as far as its past tells them.
#include "policy/schedule.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include <gtest/gtest.h>

using emuv::cuda::schedule;
using emuv::cuda::touch;

namespace {

// One step a number: it touches unit 0 of the block of that number.
bool step(schedule &past, std::uint64_t what)
{
    const touch touches[] = {{what << 32, 0, 0}};
    return past.note(what, touches, 1);
}

void circle(schedule &past, std::uint64_t first, std::uint64_t count)
{
    for (std::uint64_t i = 0; i < count; i++)
        step(past, first + i);
}

std::uint64_t next(const schedule &past, std::uint64_t what)
{
    return past.next_use(what << 32, 0);
}

} // namespace

TEST(Schedule, NothingIsExpectedOfAPastThatDoesNotRepeat)
{
    schedule past;
    circle(past, 1, 100);
    EXPECT_FALSE(past.predicts());
    EXPECT_EQ(next(past, 5), schedule::never);
}

TEST(Schedule, ACircleIsKnownFromItsThirdRoundOn)
{
    schedule past;
    for (int round = 0; round < 3; round++)
        circle(past, 1, 20);
    ASSERT_TRUE(past.predicts());
    for (std::uint64_t what = 1; what <= 20; what++)
        EXPECT_EQ(next(past, what), what);
    EXPECT_TRUE(step(past, 1));
    EXPECT_EQ(next(past, 2), 1u);
    EXPECT_EQ(next(past, 1), 20u);
    EXPECT_EQ(next(past, 21), schedule::never);
}

TEST(Schedule, FewKindsOfStepsInNoOrderAreNoPastToGoBy)
{
    schedule past;
    std::mt19937 random(5);
    for (int i = 0; i < 1000; i++)
        step(past, 1 + random() % 8);
    unsigned predicted = 0;
    for (int i = 0; i < 1000; i++) {
        step(past, 1 + random() % 8);
        predicted += past.predicts() ? 1 : 0;
    }
    EXPECT_LT(predicted, 10u);
    EXPECT_EQ(past.lag(), 0u);
    // And are one again soon after they are in one.
    for (int round = 0; round < 30; round++)
        circle(past, 1, 8);
    EXPECT_TRUE(past.predicts());
    EXPECT_GT(past.lag(), 0u);
}

TEST(Schedule, AStepTooManyOrTooFewIsSteppedOver)
{
    schedule past;
    for (int round = 0; round < 4; round++)
        circle(past, 1, 20);
    circle(past, 1, 5);
    step(past, 777); // never seen before
    EXPECT_TRUE(step(past, 6));
    EXPECT_FALSE(step(past, 8)); // 7 is left out
    EXPECT_TRUE(step(past, 9));
    EXPECT_EQ(next(past, 10), 1u);
    EXPECT_EQ(past.surprises(), 1u);
}

TEST(Schedule, ShapesThatTakeTurnsAreFoundAgain)
{
    schedule past;
    for (int round = 0; round < 3; round++) {
        circle(past, 1, 20);
        circle(past, 1, 20);
        circle(past, 101, 20);
    }
    circle(past, 1, 8);
    EXPECT_EQ(next(past, 9), 1u);
    circle(past, 101, 8);
    EXPECT_EQ(next(past, 109), 1u) << "what came instead is known, too";
}

TEST(Schedule, TheLastTimeIsFoundHoweverLongAllCameAsForeseen)
{
    for (const int rounds : {5, 50, 500, 5000}) {
        schedule past;
        for (int round = 0; round < rounds; round++)
            circle(past, 1, 20);
        for (int round = 0; round < 3; round++)
            circle(past, 101, 20); // of which the first is not kept
        circle(past, 1, 10);
        ASSERT_TRUE(past.predicts());
        EXPECT_EQ(past.lag(), 60u);
        EXPECT_EQ(next(past, 11), 1u);
    }
}

TEST(Schedule, WhatWasForgottenAndComesAgainIsExpectedByWhatCameSince)
{
    schedule past;
    for (int round = 0; round < 4; round++)
        circle(past, 1, 20);
    past.forget(std::uint64_t{5} << 32);
    EXPECT_EQ(next(past, 5), schedule::never);
    for (int round = 0; round < 2; round++)
        circle(past, 1, 20);
    EXPECT_EQ(next(past, 5), 5u);
    EXPECT_EQ(next(past, 4), 4u);
}

TEST(Schedule, OnlyTheUnitsThatWereTouchedAreExpected)
{
    schedule past;
    const touch front[] = {{1, 0, 3}};
    const touch back[] = {{1, 4, 7}};
    for (int round = 0; round < 20; round++) {
        past.note(1, front, 1);
        past.note(2, back, 1);
    }
    ASSERT_TRUE(past.predicts());
    EXPECT_EQ(past.next_use(1, 3), 1u);
    EXPECT_EQ(past.next_use(1, 4), 2u);
    EXPECT_EQ(past.next_use(1, 8), schedule::never);
}

namespace {

constexpr std::uint64_t weights = 100; // of a model, in as many layers
constexpr std::uint64_t text = 1000;   // the first block of activations

// A pass through the model. It runs kernels that no pass ran before, or the
// same ones in each layer. Its activations are in four places in turn.
void pass(schedule &past, std::uint64_t number, bool layers_alike)
{
    for (std::uint64_t layer = 1; layer <= weights; layer++) {
        const std::uint64_t kernels =
            (number << 32) + (layers_alike ? 0 : layer * 100);
        const touch product[] = {{layer << 32, 0, 0}, {text << 32, 0, 0}};
        past.note(kernels + layer * 100, product, 2);
        for (std::uint64_t i = 1; i <= 7; i++) {
            const touch other[] = {{(text + i % 4) << 32, 0, 0}};
            past.note(kernels + i, other, 1);
        }
    }
}

} // namespace

TEST(Schedule, AModelsWeightsAreForeseenWhateverRuns)
{
    for (const bool layers_alike : {false, true}) {
        schedule past;
        std::uint64_t number = 1;
        for (int round = 0; round < 4; round++)
            pass(past, number++, layers_alike);
        EXPECT_TRUE(past.predicts());
        // The first layers are near, and the last one was just there.
        EXPECT_LE(next(past, 1), 20u);
        EXPECT_LT(next(past, 1), next(past, 2));
        EXPECT_LT(next(past, 2), next(past, 50));
        EXPECT_LT(next(past, 50), next(past, weights));
        EXPECT_NE(next(past, weights), schedule::never);
        const std::uint64_t surprises = past.surprises();
        for (int round = 0; round < 4; round++)
            pass(past, number++, layers_alike);
        EXPECT_LE(past.surprises() - surprises, 4u);
    }
}

namespace {

// Tuning with texts of any length: a layer's products are done again before its
// backward pass, on operands at other addresses with each text.
class tuned_model
{
public:
    static constexpr std::uint64_t layers = 16;
    static constexpr std::uint64_t products = 7;

    // @param number  of the text: the same does the same
    void tune(std::uint64_t number)
    {
        std::mt19937 random(static_cast<unsigned>(number));
        std::vector<std::uint64_t> places(products + layers);
        for (std::size_t i = 0; i < places.size(); i++)
            places[i] = 1 + i;
        std::shuffle(places.begin(), places.end(), random);
        const auto place = [&](std::uint64_t i) { return places[i] << 32; };
        const auto forth = [&](std::uint64_t layer) {
            for (std::uint64_t i = 0; i < products; i++) {
                const bool first = i == 0;
                run(number, 100 + i,
                    {weights(layer, i), place(first ? products + layer : i - 1),
                     place(i)});
                between(number, place(i), place((i + 1) % products));
            }
        };
        for (std::uint64_t layer = 0; layer < layers; layer++)
            forth(layer);
        for (std::uint64_t layer = layers; layer-- > 0;) {
            forth(layer);
            for (std::uint64_t i = products; i-- > 0;) {
                run(number, 200 + i, {weights(layer, i), place(i)});
                between(number, place(i), place((i + 1) % products));
            }
        }
        ran_ = 0;
    }

    // The part of that text's work at which the layer after next was foreseen,
    // right to a layer or less.
    double tune_and_count(std::uint64_t number)
    {
        counts_ = true;
        foreseen_ = all_ = 0;
        tune(number);
        counts_ = false;
        return static_cast<double>(foreseen_) / static_cast<double>(all_);
    }

    schedule past;

private:
    static constexpr std::uint64_t layer_long = products * 11;

    static std::uint64_t weights(std::uint64_t layer, std::uint64_t product)
    {
        return (1000 + layer * products + product) << 32;
    }
    void between(std::uint64_t number, std::uint64_t from, std::uint64_t to)
    {
        for (std::uint64_t i = 0; i < 10; i++)
            run(number, i, {from, to});
    }
    void run(std::uint64_t number, std::uint64_t kernel,
             const std::vector<std::uint64_t> &bases)
    {
        std::uint64_t what = (number << 20) + kernel;
        std::vector<touch> touches;
        for (const std::uint64_t base : bases) {
            what = (what ^ base) * 0x9e3779b97f4a7c15u;
            touches.push_back({base, 0, 2});
        }
        past.note(what, touches.data(), touches.size());
        const std::uint64_t layer = ran_++ / layer_long;
        // Of the way forth, whose layers are as long as each other.
        if (!counts_ || layer + 2 >= layers)
            return;
        const std::uint64_t due = (layer + 2) * layer_long + 1 - ran_;
        const std::uint64_t said = past.next_use(weights(layer + 2, 0), 0);
        all_++;
        foreseen_ += said != schedule::never &&
                     (said > due ? said - due : due - said) <= layer_long;
    }

    std::uint64_t ran_ = 0;
    bool counts_ = false;
    std::uint64_t all_ = 0;
    std::uint64_t foreseen_ = 0;
};

} // namespace

TEST(Schedule, WeightsAreForeseenWhereAllElseIsElsewhereInEachRound)
{
    tuned_model model;
    std::uint64_t number = 1;
    for (int round = 0; round < 3; round++)
        model.tune(number++);
    EXPECT_TRUE(model.past.varies());
    for (int round = 0; round < 5; round++)
        EXPECT_GT(model.tune_and_count(number++), 0.9);
    EXPECT_TRUE(model.past.varies());
}

TEST(Schedule, RoundsThatComeToBeAlikeAreKnownStepByStep)
{
    tuned_model model;
    for (std::uint64_t number = 1; number < 6; number++)
        model.tune(number);
    for (int round = 0; round < 3; round++)
        model.tune(6);
    EXPECT_TRUE(model.past.predicts());
    EXPECT_FALSE(model.past.varies());
    const std::uint64_t surprises = model.past.surprises();
    model.tune(6);
    EXPECT_EQ(model.past.surprises(), surprises);
    // And to vary again.
    model.tune(7);
    model.tune(8);
    EXPECT_GT(model.tune_and_count(9), 0.9);
}

TEST(Schedule, ACircleIsKnownThoughLandmarksWereLostLongAgo)
{
    schedule past;
    circle(past, 100, 10);
    circle(past, 1, 20);
    for (int round = 0; round < 4; round++)
        circle(past, 1, 20);
    // They come again, once, in another order.
    for (std::uint64_t what = 110; what-- > 100;)
        step(past, what);
    // Work that is new in each round says nothing about the place.
    for (std::uint64_t round = 0; round < 60; round++) {
        circle(past, 1000, 20);
        step(past, 2000 + round);
    }
    EXPECT_TRUE(past.predicts());
    EXPECT_FALSE(past.varies());
    EXPECT_LE(next(past, 1000), 2u);
}

TEST(Schedule, WhatIsTouchedSeldomInNoOrderIsNoPastToGoBy)
{
    constexpr unsigned all = 40000;
    // The fewest are touched hardly seldom enough, and so often by chance.
    for (const unsigned blocks : {70u, 200u, 1000u}) {
        schedule past;
        std::mt19937 random(5);
        unsigned predicted = 0;
        for (unsigned i = 0; i < all; i++) {
            const touch seldom[] = {{(1 + random() % blocks) << 32, 0, 0}};
            past.note(1000000 + i, seldom, 1);
            predicted += past.predicts() ? 1 : 0;
        }
        EXPECT_LT(predicted, all / 100) << blocks;
    }
}

TEST(Schedule, WhatIsRememberedOfANextUseIsWhatLookingAgainWouldFind)
{
    schedule past;
    std::mt19937 random(11);
    std::array<schedule::memo, 61> known;
    std::array<unsigned, 61> behind{};
    unsigned found = 0;
    for (int round = 0; round < 200; round++) {
        // Three shapes take turns, with steps too many or too few.
        const std::uint64_t first = 1 + random() % 3 * 20;
        for (std::uint64_t i = 0; i < 20; i++) {
            if (random() % 50 == 0)
                continue;
            const std::uint64_t before = past.steps();
            step(past, random() % 50 == 0 ? 1 + random() % 60 : first + i);
            const auto steps = static_cast<unsigned>(past.steps() - before);
            for (std::uint64_t what = 1; what <= 60; what++) {
                const auto again = next(past, what);
                const auto kept = past.next_use(what << 32, 0, known[what]);
                found += kept != schedule::never ? 1 : 0;
                behind[what] = again == kept ? 0 : behind[what] + steps;
                // A use may be new where there was none, and is seen soon.
                if (kept != schedule::never) {
                    ASSERT_EQ(kept, again);
                }
                ASSERT_LE(behind[what], 48u);
            }
        }
    }
    EXPECT_GT(found, 10000u);
}

TEST(Schedule, AMillionStepsAreKeptInAFewDozenBytesEach)
{
    schedule past;
    for (int round = 0; round < 3; round++)
        circle(past, 1, 400000);
    EXPECT_TRUE(past.predicts());
    EXPECT_EQ(next(past, 400000), 400000u);
    EXPECT_LT(past.footprint() / past.steps(), 160u);
}

TEST(Schedule, AfterFourMillionStepsTheOlderHalfIsForgottenAndNoMore)
{
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "one thread, and a minute of it";
#endif
    schedule past;
    for (int round = 0; round < 50; round++)
        circle(past, 1, 100000);
    EXPECT_TRUE(past.predicts());
    EXPECT_LT(past.footprint(), std::uint64_t{160} << 22);
    EXPECT_EQ(next(past, 7), 7u);
    // They count all the same: but for the first round, which was new.
    EXPECT_EQ(past.steps(), 4900000u);
}

TEST(Schedule, TheUsesOfARoundAreThoseThatComeNext)
{
    schedule past;
    for (int round = 0; round < 5; round++)
        circle(past, 1, 20);
    circle(past, 1, 6);
    ASSERT_EQ(past.lag(), 20u);
    for (std::uint64_t what = 1; what <= 20; what++) {
        std::vector<std::uint64_t> at;
        past.uses(what << 32, [&](std::uint64_t step, const touch &given) {
            EXPECT_EQ(given.first, 0u);
            EXPECT_EQ(given.last, 0u);
            at.push_back(step);
        });
        // A round ago they were as far behind as now.
        ASSERT_EQ(at.size(), 1u);
        EXPECT_EQ(at[0] + past.lag(), past.steps() - 1 + next(past, what));
    }
    past.uses(21ull << 32, [](std::uint64_t, const touch &) { FAIL(); });
}

TEST(Schedule, TellsWhatIsUsedAnew)
{
    schedule past;
    const auto round = [&past] {
        for (std::uint64_t what = 1; what <= 20; what++) {
            const touch given{what << 32, 0, 0, what % 4 == 0};
            past.note(what, &given, 1);
        }
    };
    for (int i = 0; i < 5; i++)
        round();
    ASSERT_EQ(past.lag(), 20u);
    unsigned told = 0;
    for (std::uint64_t what = 1; what <= 20; what++)
        past.uses(what << 32, [&](std::uint64_t, const touch &given) {
            EXPECT_EQ(given.anew, what % 4 == 0) << what;
            told++;
        });
    EXPECT_GT(told, 16u);
}

TEST(Schedule, WorkThatNeverComesAgainIsNotKeptForEach)
{
    schedule past;
    constexpr std::uint64_t count = 100000;
    for (std::uint64_t what = 1; what <= count; what++) {
        const touch given{1ull << 32, static_cast<std::uint32_t>(what % 64),
                          static_cast<std::uint32_t>(what % 64)};
        past.note(what, &given, 1);
    }
    // The numbers by which it is told that it came, and little else.
    EXPECT_LT(past.footprint(), count * 4 * sizeof(std::uint64_t));
}

TEST(Schedule, AGapIsKnownFromItsLastUseToItsNext)
{
    schedule past;
    // Unit 1 is touched twice in a round of 20: 6 steps apart, and 14.
    const auto round = [&](std::uint64_t steps) {
        for (std::uint64_t i = 0; i < steps; i++)
            step(past, i == 6 ? 1 : 100 + i);
    };
    for (int i = 0; i < 6; i++) {
        step(past, 1);
        round(19);
    }
    step(past, 1);
    schedule::memo known;
    for (std::uint64_t i = 0; i < 19; i++) {
        step(past, i == 6 ? 1 : 100 + i);
        const std::uint64_t left = past.next_use(1ull << 32, 0, known);
        ASSERT_NE(left, schedule::never);
        EXPECT_EQ(known.gap, i < 6 ? 7u : 13u) << i;
        EXPECT_EQ(left, i < 6 ? 6 - i : 19 - i) << i;
    }
}

TEST(Schedule, RepeatsWhereTheSameMemoryIsUsedWhateverTheKernels)
{
    schedule past;
    std::uint64_t kernel = 0;
    const auto round = [&](std::uint64_t from) {
        for (std::uint64_t i = 0; i < 20; i++) {
            const touch given{(from + i) << 32, 0, 0};
            past.note(100 + 10 * from + i + 1000 * (kernel++ % 40), &given, 1);
        }
    };
    for (int i = 0; i < 8; i++)
        round(1);
    EXPECT_TRUE(past.repeats(20));
    EXPECT_TRUE(past.repeats(40));
    EXPECT_FALSE(past.repeats(10));
    EXPECT_FALSE(past.repeats(1000)); // there was no such round
}

TEST(Schedule, DoesNotRepeatWhereRoundsUseOtherMemoryInTurns)
{
    schedule past;
    for (int i = 0; i < 8; i++)
        circle(past, i % 2 == 0 ? 1 : 101, 20);
    EXPECT_FALSE(past.repeats(20));
    EXPECT_TRUE(past.repeats(40));
}

TEST(Schedule, DoesNotRepeatWhereMemoryWasFreedInEveryOtherRound)
{
    schedule past;
    for (std::uint64_t i = 0; i < 8 * 20; i++) {
        const touch given{(1 + i % 20) << 32, 0, 0, i / 20 % 2 == 1};
        past.note(1 + i % 20, &given, 1);
    }
    EXPECT_FALSE(past.repeats(20));
    EXPECT_TRUE(past.repeats(40));
}

TEST(Schedule, RepeatsThoughAStepIsMissing)
{
    schedule past;
    for (int i = 0; i < 6; i++)
        circle(past, 1, 640);
    circle(past, 1, 320);
    circle(past, 322, 319);
    EXPECT_TRUE(past.repeats(640));
}

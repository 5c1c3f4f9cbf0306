// SPDX-License-Identifier: LGPL-2.1-or-later
#include "policy/reuse.hpp"

#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace emuv::cuda {
namespace {

constexpr std::uint64_t never = reuse::never;

// A program that makes its fields anew in each round, somewhere else each time.
// Of three kernels the first names a field, and the last its successor.
class rotating
{
public:
    explicit rotating(std::size_t fields) : places_(fields + 1), free_(fields)
    {
        for (std::size_t i = 0; i < fields; i++)
            at_.push_back(i);
    }

    void field(std::size_t i)
    {
        past.begin(1);
        past.use(places_[at_[i]], 1);
        past.begin(2);
        past.begin(3);
        past.use(places_[free_], 1);
        std::swap(free_, at_[i]);
        places_[free_] = {}; // freed
    }
    void round()
    {
        for (std::size_t i = 0; i < at_.size(); i++)
            field(i);
        past.begin(4);
    }
    std::uint64_t next_use(std::size_t field) const
    {
        return past.next_use(places_[at_[field]]);
    }

    reuse past;

private:
    std::vector<reuse::memory> places_;
    std::vector<std::size_t> at_; // of each field, now
    std::size_t free_;
};

// Works of four kinds, each of which uses one of 64 pieces of memory.
void use_at_random(reuse &past, int works)
{
    std::array<reuse::memory, 64> all;
    std::uint64_t random = 1;
    for (int i = 0; i < works; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        past.begin(random >> 62);
        past.use(all[random >> 40 & 63], 1);
    }
}

// One work uses all of them.
template <std::size_t count>
void use_together(reuse &past, std::array<reuse::memory, count> &units)
{
    past.begin(1);
    for (reuse::memory &each : units)
        past.use(each, 1);
}

TEST(Reuse, NothingIsForetoldOfMemoryThatNothingUsed)
{
    reuse past;
    EXPECT_EQ(past.next_use({}), never);
    EXPECT_FALSE(past.tells());
}

TEST(Reuse, IsForetoldWhereverTheProgramPutsItsMemory)
{
    constexpr std::size_t fields = 12;
    rotating program(fields);
    for (int i = 0; i < 20; i++)
        program.round();
    EXPECT_TRUE(program.past.tells());
    // The next round begins with the first one's field, and goes on in order.
    for (std::size_t i = 0; i < fields; i++)
        EXPECT_EQ(program.next_use(i), 3 * i + 1) << i;
    program.field(0);
    EXPECT_EQ(program.next_use(1), 1u);
    EXPECT_EQ(program.next_use(0), 3 * (fields - 1) + 1 + 1);
}

TEST(Reuse, IsForetoldByTheAddressThatNamesIt)
{
    reuse past;
    reuse::memory soon;
    reuse::memory late;
    for (int i = 0; i < 40; i++) {
        past.begin(1);
        past.use(soon, 1);
        past.use(late, 2);
        past.begin(2);
        past.use(soon, 1);
        for (std::uint64_t kind = 3; kind < 10; kind++)
            past.begin(kind);
    }
    past.begin(1);
    past.use(soon, 1);
    past.use(late, 2);
    EXPECT_EQ(past.next_use(soon), 1u);
    EXPECT_EQ(past.next_use(late), 9u);
}

TEST(Reuse, LongerContextsTellApartWhatShorterOnesDoNot)
{
    // Two halves of a round end alike for more than the shortest context.
    reuse past;
    reuse::memory one;
    reuse::memory other;
    const auto half = [&](std::uint64_t begin, reuse::memory &of, int idle) {
        past.begin(begin);
        for (std::uint64_t kind = 10; kind < 20; kind++)
            past.begin(kind);
        past.use(of, 1);
        for (int i = 0; i < idle; i++)
            past.begin(30);
    };
    for (int i = 0; i < 40; i++) {
        half(1, one, 5);
        past.begin(40);
        past.use(one, 1);
        half(2, other, 90);
        past.begin(41);
        past.use(other, 1);
    }
    half(1, one, 0);
    EXPECT_EQ(past.next_use(one), 6u);
    for (int i = 0; i < 5; i++)
        past.begin(30);
    past.begin(40);
    past.use(one, 1);
    half(2, other, 0);
    EXPECT_EQ(past.next_use(other), 91u);
}

TEST(Reuse, WhatIsLateIsExpectedForAMomentAndThenNoMore)
{
    reuse past;
    reuse::memory of;
    for (int i = 0; i < 100; i++) {
        past.begin(1);
        past.use(of, 1);
        for (int j = 0; j < 31; j++)
            past.begin(2);
    }
    past.begin(3);
    EXPECT_EQ(past.next_use(of), 1u);
    for (int i = 0; i < 4; i++)
        past.begin(3);
    EXPECT_EQ(past.next_use(of), never);
}

TEST(Reuse, TellsNothingWhereUsesComeAtRandom)
{
    reuse past;
    use_at_random(past, 20000);
    EXPECT_FALSE(past.tells());
}

TEST(Reuse, TellsAgainOnceTheProgramDoesSomethingElse)
{
    rotating program(12);
    for (int i = 0; i < 20; i++)
        program.round();
    ASSERT_TRUE(program.past.tells());
    use_at_random(program.past, 2000);
    EXPECT_FALSE(program.past.tells());
    for (int i = 0; i < 100; i++)
        program.round();
    EXPECT_TRUE(program.past.tells());
}

TEST(Reuse, UnitsThatAreUsedTogetherAreForetoldAlike)
{
    reuse past;
    std::array<reuse::memory, 8> units;
    for (int i = 0; i < 100; i++) {
        use_together(past, units);
        past.begin(2);
    }
    for (const reuse::memory &each : units)
        EXPECT_EQ(past.next_use(each), 1u);
}

TEST(Reuse, EachSliceThatAnotherWorkUsesCounts)
{
    // One work uses all slices. Ten more use one each, and nothing else.
    reuse past;
    std::array<reuse::memory, 10> slices;
    for (int i = 0; i < 100; i++) {
        use_together(past, slices);
        for (std::uint64_t j = 0; j < slices.size(); j++) {
            past.begin(10 + j);
            past.use(slices[j], 1);
        }
        for (std::uint64_t j = 0; j < 40; j++)
            past.begin(30);
    }
    // Their distances differ, and one context cannot foretell them all.
    use_together(past, slices);
    EXPECT_FALSE(past.tells());
}

} // namespace
} // namespace emuv::cuda

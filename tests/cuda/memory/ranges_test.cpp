// SPDX-License-Identifier: GPL-2.0-or-later
// Address ranges that we make: finished, or not at all.
#include "account/tiers.hpp"
#include "memory/ranges_fixture.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

using namespace emuv::cuda;

namespace {

struct Ranges : RangesFixture
{
    range make(std::uint64_t bytes, placing where)
    {
        range made;
        EXPECT_EQ(all->make(bytes, 0, where, made), CUDA_SUCCESS);
        return made;
    }
};

} // namespace

TEST_F(Ranges, OneIsMappedOpenAndChargedWhenItIsThere)
{
    const range made = make(63 * MiB, placing::vram_first);
    EXPECT_EQ(made.bytes, 64 * MiB);
    EXPECT_FALSE(made.spilled);
    EXPECT_EQ(made.context, reinterpret_cast<CUcontext>(0x10));
    EXPECT_EQ(card.accessible[made.base], 64 * MiB);
    expect_used(64 * MiB, 0);
    EXPECT_FALSE(all->has_seams());
    EXPECT_EQ(all->drop(made.base), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Ranges, WhatDoesNotFitInVramLiesBehindItInSystemRam)
{
    const range made = make(100 * MiB, placing::vram_first);
    EXPECT_TRUE(made.spilled);
    expect_used(64 * MiB, 36 * MiB);
    EXPECT_EQ(card.host_used, 36 * MiB);
    EXPECT_TRUE(all->has_seams());
    const auto first = all->stretch_at(made.base);
    ASSERT_TRUE(first);
    EXPECT_FALSE(first->in_ram);
    EXPECT_EQ(first->bytes, 64 * MiB);
    EXPECT_EQ(first->left, 100 * MiB);
    const auto last = all->stretch_at(made.base + 100 * MiB - 1);
    ASSERT_TRUE(last);
    EXPECT_TRUE(last->in_ram);
    EXPECT_EQ(last->left, 1u);
    EXPECT_FALSE(all->stretch_at(made.base + 100 * MiB));
    EXPECT_EQ(all->drop(made.base), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Ranges, WhereMemoryMovesThePartInVramHasWholeHandles)
{
    trace record;
    mover moves({.calls = card.calls,
                 .shares = *shares,
                 .record = record,
                 .tell = [](const char *) {}});
    moves.fix_all("it is to start no thread");
    movers some({&moves});
    ranges those({card.calls, *shares, host, some, spills});
    range made;
    ASSERT_EQ(those.make(100 * MiB, 0, placing::vram_first, made),
              CUDA_SUCCESS);
    expect_used(52 * MiB, 48 * MiB); // two of 26 MiB, of 64
    EXPECT_EQ(those.drop(made.base), CUDA_SUCCESS);
    // All of the share counts, if there is no other room.
    ASSERT_EQ(those.make(190 * MiB, 0, placing::vram_first, made),
              CUDA_SUCCESS);
    expect_used(64 * MiB, 126 * MiB);
    EXPECT_EQ(those.drop(made.base), CUDA_SUCCESS);
    expect_nothing_left();
}

namespace {

// A driver that puts ranges where it likes: one behind another, in the first 4
// GiB. It may heed hints that are multiples of 32 MiB.
struct PlacedRanges : Ranges
{
    PlacedRanges()
    {
        card_of = &card;
        next = 256 * MiB;
        heeds = false;
        card.calls.cuMemAddressReserve = [](CUdeviceptr *at, std::size_t bytes,
                                            std::size_t, CUdeviceptr hint,
                                            unsigned long long) {
            const std::lock_guard guard(card_of->lock);
            const bool heeded = heeds && hint != 0 && hint % (32 * MiB) == 0;
            *at = heeded ? hint : next;
            next += heeded ? 0 : bytes;
            card_of->reserved[*at] = bytes;
            return CUDA_SUCCESS;
        };
        moves.fix_all("it is to start no thread");
    }
    // @return in the order of their addresses
    std::vector<range> make_three()
    {
        std::vector<range> made(3);
        for (range &each : made)
            EXPECT_EQ(those.make(8 * MiB, 0, placing::vram_first, each),
                      CUDA_SUCCESS);
        std::sort(made.begin(), made.end(),
                  [](const range &one, const range &other) {
                      return one.base < other.base;
                  });
        return made;
    }
    void drop(const std::vector<range> &all_made)
    {
        for (const range &each : all_made)
            EXPECT_EQ(those.drop(each.base), CUDA_SUCCESS);
        expect_nothing_left();
    }

    static inline FakeDriver *card_of;
    static inline CUdeviceptr next;
    static inline bool heeds;
    trace record;
    mover moves{{.calls = card.calls,
                 .shares = *shares,
                 .record = record,
                 .tell = [](const char *) {}}};
    movers some{{&moves}};
    ranges those{{card.calls, *shares, host, some, spills}};
};

} // namespace

TEST_F(PlacedRanges, ThoseThatMoveLieWhereAddressesLookLikeNothingElse)
{
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer keeps programs out of that part";
#endif
    heeds = true;
    const std::vector<range> made = make_three();
    EXPECT_GE(made.front().base, CUdeviceptr{0x2100} << 32);
    for (std::size_t i = 0; i < made.size(); i++) {
        EXPECT_TRUE(made[i].moves);
        if (i > 0) {
            EXPECT_GT(made[i].base - made[i - 1].base, 8 * MiB)
                << "none adjoins one";
        }
    }
    drop(made);
}

TEST_F(PlacedRanges, ThoseThatLieWhereNoLaunchIsSearchedForThemStay)
{
    const std::vector<range> made = make_three();
    for (const range &each : made) {
        EXPECT_LT(each.base, CUdeviceptr{1} << 32);
        EXPECT_FALSE(each.moves);
    }
    EXPECT_FALSE(moves.stretch_at(made[0].base)) << "its mover has it not";
    drop(made);
}

TEST_F(Ranges, OneForSystemRamTakesNoVram)
{
    const range made = make(10 * MiB, placing::ram);
    EXPECT_TRUE(made.spilled);
    expect_used(0, 10 * MiB);
    EXPECT_EQ(all->drop(made.base), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Ranges, OneThatCannotBeFinishedIsNotThere)
{
    const auto fails = [this](std::uint64_t bytes, CUresult why) {
        range made{.base = 42};
        EXPECT_EQ(all->make(bytes, 0, placing::vram_first, made), why);
        EXPECT_EQ(made.base, 42u);
        expect_nothing_left();
    };
    fails(194 * MiB, CUDA_ERROR_OUT_OF_MEMORY);
    fails(UINT64_MAX, CUDA_ERROR_OUT_OF_MEMORY);
    card.host_bytes = 20 * MiB;
    fails(100 * MiB, CUDA_ERROR_OUT_OF_MEMORY);
    card.fail_access = true;
    fails(70 * MiB, CUDA_ERROR_UNKNOWN);
    card.fail_access = false;
    card.fail_map = true;
    fails(MiB, CUDA_ERROR_UNKNOWN);
}

TEST_F(Ranges, OneIsDroppedOnce)
{
    const range made = make(2 * MiB, placing::vram_first);
    EXPECT_EQ(all->drop(made.base + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(all->drop(made.base), CUDA_SUCCESS);
    EXPECT_EQ(all->drop(made.base), CUDA_ERROR_INVALID_VALUE);
    expect_nothing_left();
}

TEST_F(Ranges, APeerReadsThoseThatAreThereAndThoseThatCome)
{
    static std::vector<CUdeviceptr> opened; // to device 1
    static decltype(card.calls.cuMemSetAccess) real;
    opened.clear();
    real = card.calls.cuMemSetAccess;
    card.calls.cuMemSetAccess = [](CUdeviceptr at, std::size_t bytes,
                                   const CUmemAccessDesc *access,
                                   std::size_t count) {
        for (std::size_t i = 0; i < count; i++)
            if (access[i].location.id == 1 &&
                access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                opened.push_back(at);
        return real(at, bytes, access, count);
    };
    const range first = make(2 * MiB, placing::vram_first);
    EXPECT_TRUE(opened.empty());
    all->peer_enabled(1, 0, reads_by::context, true);
    const range second = make(2 * MiB, placing::ram_for_good);
    EXPECT_EQ(opened, (std::vector{first.base, second.base}));
    all->peer_enabled(1, 0, reads_by::pool, true);
    opened.clear();
    all->peer_enabled(1, 0, reads_by::context, false);
    const range third = make(2 * MiB, placing::vram_first);
    EXPECT_EQ(opened, std::vector{third.base}) << "by the pool, still";
    all->peer_enabled(1, 0, reads_by::pool, false);
    const range fourth = make(2 * MiB, placing::vram_first);
    EXPECT_EQ(opened.size(), 1u);
    for (const range &each : {first, second, third, fourth})
        EXPECT_EQ(all->drop(each.base), CUDA_SUCCESS);
    expect_nothing_left();
}

namespace {

struct Kept final : relief // system RAM that somebody holds for later
{
    Kept(ranges &of, CUdeviceptr at) : all(of), base(at) {}

    bool give_up(int) override { return all.drop(base) == CUDA_SUCCESS; }
    bool make_way(int, std::uint64_t) override { return false; }

    ranges &all;
    const CUdeviceptr base;
};

} // namespace

TEST_F(Ranges, WhereThereIsNoRoomAReliefMakesSome)
{
    Kept kept(*all, make(100 * MiB, placing::ram).base);
    shares->add(kept);
    const range made = make(128 * MiB, placing::ram);
    expect_used(0, 128 * MiB);
    EXPECT_EQ(all->drop(made.base), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Ranges, WhatDoesNotFitLiesOnAnotherCardWhileThatHasMemory)
{
    file_ledger lends(rows, 1, 64 * MiB, 0);
    tiered_ledger tiers(*limits, {{1, 64 * MiB, &lends}});
    budget both({.calls = card.calls, .ledgers = {&tiers}});
    ranges some({card.calls, both, host, none, spills});
    range first;
    ASSERT_EQ(some.make(100 * MiB, 0, placing::vram_first, first),
              CUDA_SUCCESS);
    EXPECT_EQ(card.card_used, 64 * MiB);
    EXPECT_EQ(card.peer_used, 36 * MiB);
    EXPECT_EQ(card.host_used, 0U);
    EXPECT_EQ(lends.read().physical_used_bytes, 36 * MiB);
    // Its ledger has 28 MiB more, and the card itself has not.
    card.peer_bytes = 40 * MiB;
    range second;
    ASSERT_EQ(some.make(20 * MiB, 0, placing::vram_first, second),
              CUDA_SUCCESS);
    EXPECT_EQ(card.peer_used, 36 * MiB);
    EXPECT_EQ(card.host_used, 20 * MiB);
    EXPECT_EQ(lends.read().physical_used_bytes, 36 * MiB);
    EXPECT_EQ(some.drop(first.base), CUDA_SUCCESS);
    EXPECT_EQ(some.drop(second.base), CUDA_SUCCESS);
    EXPECT_EQ(lends.read().physical_used_bytes, 0U);
    expect_nothing_left();
}

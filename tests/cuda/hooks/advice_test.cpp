// SPDX-License-Identifier: GPL-2.0-or-later
// A program that says things of its memory, in C and in C++. The library stands
// before the simulated driver, is absent, or is loaded later. Run by ctest, a
// part at a time, with 32 MiB of VRAM and 64 MiB of system RAM.
#include <emuv/stack.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" int advice_in_c(const void *memory, uint64_t bytes, uint64_t *key,
                           emuv_advice_place *place, emuv_advice_stats *stats);

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

template <typename Function>
Function *look_up(const char *name, Function *)
{
    static void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    return reinterpret_cast<Function *>(dlsym(driver, name));
}
#define CU(name) (look_up(#name, static_cast<decltype(::name) *>(nullptr)))

std::uint64_t sum(const emuv_advice_place &of)
{
    return of.bytes[EMUV_TIER_VRAM] + of.bytes[EMUV_TIER_RAM] +
           of.bytes[EMUV_TIER_CARD];
}

// Programs that are built keep to these.
static_assert(sizeof(emuv_advice_memory) == 40);
static_assert(offsetof(emuv_advice_memory, address) == 8);
static_assert(offsetof(emuv_advice_memory, bytes) == 16);
static_assert(offsetof(emuv_advice_memory, priority) == 24);
static_assert(offsetof(emuv_advice_memory, key) == 32);
static_assert(sizeof(emuv_advice_place) == 72);
static_assert(offsetof(emuv_advice_place, bytes) == 8);
static_assert(sizeof(emuv_advice_stats) == 120);
static_assert(offsetof(emuv_advice_stats, accesses) == 8);
static_assert(offsetof(emuv_advice_stats, hit_bytes) == 16);
static_assert(offsetof(emuv_advice_stats, fetches) == 80);
static_assert(offsetof(emuv_advice_stats, moving_ns) == 112);
static_assert(sizeof(emuv_advice_calls) == 56);
static_assert(offsetof(emuv_advice_calls, enter) == 8);
static_assert(offsetof(emuv_advice_calls, text) == 48);

// The library is there.
class AdviceProgram : public ::testing::Test
{
protected:
    void SetUp() override
    {
        ASSERT_TRUE(emuv::stack::is_there());
        ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
        ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
        ASSERT_EQ(CU(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
        for (CUdeviceptr &each : memory_)
            ASSERT_EQ(CU(cuMemAlloc_v2)(&each, 16 * MiB), CUDA_SUCCESS);
    }
    void TearDown() override
    {
        for (const CUdeviceptr each : memory_)
            if (each != 0)
                CU(cuMemFree_v2)(each);
        if (context_ != nullptr)
            CU(cuDevicePrimaryCtxRelease_v2)(0);
    }
    [[nodiscard]] const void *at(std::size_t which) const
    {
        return reinterpret_cast<const void *>(memory_[which]);
    }

    CUcontext context_ = nullptr;
    CUdeviceptr memory_[4] = {};
};

TEST(AdviceWithoutTheLibrary, IsAnsweredThatNobodyIsThere)
{
    ASSERT_FALSE(emuv::stack::is_there());
    std::uint64_t key = 7;
    emuv_advice_place place{};
    emuv_advice_stats stats{};
    place.tier = 3;
    EXPECT_EQ(advice_in_c(&place, 1, &key, &place, &stats), EMUV_ADVICE_ABSENT);
    EXPECT_EQ(key, EMUV_ADVICE_NONE);
    EXPECT_EQ(emuv_advice_forget(1), EMUV_ADVICE_ABSENT);
    EXPECT_EQ(emuv_advice_prefetch(1), EMUV_ADVICE_ABSENT);
    EXPECT_EQ(emuv_advice_where(1, &place), EMUV_ADVICE_ABSENT);
    EXPECT_EQ(place.tier, 0U) << "the answer is empty";
    EXPECT_EQ(emuv_advice_statistics(1, &stats), EMUV_ADVICE_ABSENT);
    EXPECT_EQ(emuv_advice_statistics(EMUV_ADVICE_ALL, nullptr),
              EMUV_ADVICE_VALUE);
    EXPECT_STREQ(emuv_advice_text(EMUV_ADVICE_ABSENT),
                 "emuV's library is not loaded");
    emuv::stack all;
    EXPECT_FALSE(all.add("weights", &place, 1));
    EXPECT_FALSE(all.prefetch("weights"));
    EXPECT_EQ(sum(all.where("weights")), 0U);
    EXPECT_EQ(all.stats("weights").accesses, 0U);
    EXPECT_TRUE(all.remove("weights"));
}

// It has been looked for before, in vain.
TEST(AdviceOfALibraryThatComesLater, IsHeardAndStaysWhenItIsClosed)
{
    ASSERT_FALSE(emuv::stack::is_there());
    const int here = 0;
    std::uint64_t key = 0;
    ASSERT_EQ(emuv_advice_register(&key, &here, 1, 0), EMUV_ADVICE_ABSENT);
    const char *const path = std::getenv("EMUV_ADVICE_TEST_LIBRARY");
    ASSERT_NE(path, nullptr);
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    EXPECT_TRUE(emuv::stack::is_there());
    EXPECT_EQ(emuv_advice_register(&key, &here, 1, 0), EMUV_ADVICE_IDLE);
    EXPECT_EQ(dlclose(library), 0);
    EXPECT_EQ(emuv_advice_register(&key, &here, 1, 0), EMUV_ADVICE_IDLE);
    EXPECT_EQ(emuv_advice_prefetch(1), EMUV_ADVICE_IDLE);
}

TEST(AdviceBeforeCuInit, IsAnsweredThatTheLibraryStandsAside)
{
    ASSERT_TRUE(emuv::stack::is_there());
    int here = 0;
    std::uint64_t key = 7;
    EXPECT_EQ(emuv_advice_register(&key, &here, 1, 0), EMUV_ADVICE_IDLE);
    EXPECT_EQ(key, EMUV_ADVICE_NONE);
    EXPECT_EQ(emuv_advice_prefetch(1), EMUV_ADVICE_IDLE);
    EXPECT_EQ(emuv_advice_forget(1), EMUV_ADVICE_IDLE);
}

TEST_F(AdviceProgram, InCIsHeard)
{
    std::uint64_t key = 0;
    emuv_advice_place place{};
    emuv_advice_stats stats{};
    ASSERT_EQ(advice_in_c(at(0), 16 * MiB, &key, &place, &stats),
              EMUV_ADVICE_OK);
    EXPECT_EQ(place.size, sizeof place);
    EXPECT_EQ(sum(place), 16 * MiB);
    EXPECT_EQ(stats.accesses, 1U);
    EXPECT_EQ(stats.hit_bytes[EMUV_TIER_VRAM] + stats.hit_bytes[EMUV_TIER_RAM],
              16 * MiB);
    EXPECT_EQ(emuv_advice_access(key), EMUV_ADVICE_KEY) << "it is forgotten";
}

TEST_F(AdviceProgram, InCPlusPlusIsHeardUntilTheObjectGoes)
{
    std::uint64_t key = 0;
    {
        const emuv::advised_memory part(at(1), MiB);
        key = part.key();
        EXPECT_TRUE(part.access());
        EXPECT_TRUE(part.prefetch());
        EXPECT_EQ(part.stats().accesses, 1U);
    }
    EXPECT_EQ(emuv_advice_access(key), EMUV_ADVICE_KEY);
    emuv::stack all;
    all.add("a", at(0), 16 * MiB);
    all.add("a", at(1), 16 * MiB);
    EXPECT_EQ(all.size(), 1U);
    EXPECT_TRUE(all.demote("a"));
    EXPECT_THROW(all.prefetch("b"), std::out_of_range);
    EXPECT_THROW(all.add("c", at(0), 17 * MiB), emuv::advice_error);
    EXPECT_THROW(all.add("a", at(0), 17 * MiB), emuv::advice_error);
    EXPECT_EQ(all.size(), 1U);
    EXPECT_TRUE(all.access("a")) << "as it was registered before";
}

// Of C, of C++, and of two libraries in one process.
TEST_F(AdviceProgram, OfPartsThatKnowNothingOfEachOtherDoesNotMeet)
{
    std::uint64_t mine = 0;
    std::uint64_t other = 0;
    ASSERT_EQ(emuv_advice_register(&mine, at(0), MiB, 0), EMUV_ADVICE_OK);
    ASSERT_EQ(emuv_advice_register(&other, at(0), MiB, 0), EMUV_ADVICE_OK);
    const emuv::advised_memory third(at(0), MiB);
    EXPECT_NE(mine, other);
    EXPECT_NE(mine, third.key());
    EXPECT_NE(other, third.key());
    EXPECT_EQ(emuv_advice_forget(other), EMUV_ADVICE_OK);
    EXPECT_EQ(emuv_advice_access(mine), EMUV_ADVICE_OK);
    std::uint64_t next = 0;
    ASSERT_EQ(emuv_advice_register(&next, at(0), MiB, 0), EMUV_ADVICE_OK);
    EXPECT_NE(next, other) << "whoever forgot it may still say it";
    EXPECT_EQ(emuv_advice_access(other), EMUV_ADVICE_KEY);
    EXPECT_EQ(emuv_advice_forget(mine), EMUV_ADVICE_OK);
    EXPECT_EQ(emuv_advice_forget(next), EMUV_ADVICE_OK);
}

TEST_F(AdviceProgram, ThatIsWrongIsAnsweredInWords)
{
    std::uint64_t key = 7;
    EXPECT_EQ(emuv_advice_register(&key, nullptr, 1, 0), EMUV_ADVICE_ADDRESS);
    EXPECT_EQ(key, EMUV_ADVICE_NONE);
    EXPECT_EQ(emuv_advice_register(&key, at(0), 16 * MiB + 1, 0),
              EMUV_ADVICE_RANGE);
    EXPECT_EQ(
        emuv_advice_register(&key, at(0), static_cast<std::uint64_t>(-1), 0),
        EMUV_ADVICE_RANGE);
    EXPECT_EQ(emuv_advice_register(&key, at(0), 1, 101), EMUV_ADVICE_VALUE);
    EXPECT_EQ(emuv_advice_register(nullptr, at(0), 1, 0), EMUV_ADVICE_VALUE);
    EXPECT_EQ(emuv_advice_access(EMUV_ADVICE_NONE), EMUV_ADVICE_KEY);
    EXPECT_EQ(emuv_advice_access(~std::uint64_t{0}), EMUV_ADVICE_KEY);
    EXPECT_EQ(emuv_advice_tell(nullptr, 1, EMUV_HINT_ACCESS),
              EMUV_ADVICE_VALUE);
    EXPECT_EQ(emuv_advice_tell(nullptr, 0, EMUV_HINT_ACCESS), EMUV_ADVICE_OK);
    key = 1;
    EXPECT_EQ(emuv_advice_tell(&key, 1, 8), EMUV_ADVICE_VALUE);
    EXPECT_EQ(emuv_advice_tell(&key, 1, -1), EMUV_ADVICE_VALUE);
    EXPECT_EQ(emuv_advice_where(1, nullptr), EMUV_ADVICE_VALUE);
    for (int result = 0; result >= EMUV_ADVICE_PINNED; result--)
        EXPECT_STRNE(emuv_advice_text(result), emuv_advice_text(1)) << result;
    EXPECT_STREQ(emuv_advice_text(EMUV_ADVICE_PINNED - 1), emuv_advice_text(1));
    EXPECT_STREQ(emuv_advice_text(INT32_MIN), emuv_advice_text(1));
    ASSERT_EQ(emuv_advice_register(&key, at(3), 1, 0), EMUV_ADVICE_OK);
    ASSERT_EQ(CU(cuMemFree_v2)(memory_[3]), CUDA_SUCCESS);
    memory_[3] = 0;
    EXPECT_EQ(emuv_advice_access(key), EMUV_ADVICE_FREED);
    emuv_advice_place place{};
    place.tier = 3;
    EXPECT_EQ(emuv_advice_where(key, &place), EMUV_ADVICE_FREED);
    EXPECT_EQ(place.tier, 0U) << "the answer is empty";
    EXPECT_EQ(emuv_advice_forget(key), EMUV_ADVICE_OK);
}

// Later versions may give them a meaning.
TEST_F(AdviceProgram, WithFlagsThatMeanNothingYetIsRefused)
{
    const emuv_advice_calls *const library = emuv_advice_library();
    emuv_advice_memory memory{};
    memory.size = sizeof memory;
    memory.address = memory_[0];
    memory.bytes = MiB;
    memory.flags = 1;
    EXPECT_EQ(library->enter(&memory), EMUV_ADVICE_VALUE);
    memory.flags = 0;
    memory.reserved = 1;
    EXPECT_EQ(library->enter(&memory), EMUV_ADVICE_VALUE);
    memory.reserved = 0;
    EXPECT_EQ(library->enter(nullptr), EMUV_ADVICE_VALUE);
    ASSERT_EQ(library->enter(&memory), EMUV_ADVICE_OK);
    EXPECT_EQ(library->hint(&memory.key, 1, EMUV_HINT_ACCESS, 1),
              EMUV_ADVICE_VALUE);
    EXPECT_EQ(library->forget(memory.key), EMUV_ADVICE_OK);
}

TEST_F(AdviceProgram, OfAnOlderOrNewerHeaderGetsWhatBothKnow)
{
    const emuv_advice_calls *const library = emuv_advice_library();
    const emuv::advised_memory part(at(0), MiB);
    struct
    {
        emuv_advice_place known;
        std::uint64_t newer;
    } place{};
    place.known.size = sizeof place;
    place.newer = 5;
    ASSERT_EQ(library->where(part.key(), &place.known), EMUV_ADVICE_OK);
    EXPECT_EQ(sum(place.known), MiB);
    EXPECT_EQ(place.newer, 5U) << "it means nothing to the library";
    EXPECT_EQ(place.known.size, sizeof place.known) << "so much is known";
    emuv_advice_place older{};
    older.size = 16; // up to the first tier
    older.bytes[1] = 77;
    ASSERT_EQ(library->where(part.key(), &older), EMUV_ADVICE_OK);
    EXPECT_EQ(older.size, 16U);
    EXPECT_EQ(older.bytes[1], 77U) << "it was not the caller's to write";
}

// A size that nobody has filled in.
TEST_F(AdviceProgram, WithASizeThatIsNoneIsRefusedAndNothingIsWritten)
{
    const emuv_advice_calls *const library = emuv_advice_library();
    const emuv::advised_memory part(at(0), MiB);
    for (const std::uint32_t size : {0U, 7U, 4097U, 0xfffffff0U}) {
        emuv_advice_place place{};
        place.size = size;
        place.tier = 9;
        EXPECT_EQ(library->where(part.key(), &place), EMUV_ADVICE_VALUE);
        EXPECT_EQ(place.tier, 9U);
        emuv_advice_stats stats{};
        stats.size = size;
        EXPECT_EQ(library->stats(part.key(), &stats), EMUV_ADVICE_VALUE);
        emuv_advice_memory memory{};
        memory.size = size;
        EXPECT_EQ(library->enter(&memory), EMUV_ADVICE_VALUE);
    }
}

TEST_F(AdviceProgram, InTheChildOfAForkIsAnsweredThatTheLibraryStandsAside)
{
    const emuv::advised_memory part(at(0), MiB);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        std::uint64_t key = part.key();
        emuv_advice_place place{};
        const bool idle =
            emuv_advice_access(key) == EMUV_ADVICE_IDLE &&
            emuv_advice_where(key, &place) == EMUV_ADVICE_IDLE &&
            emuv_advice_forget(key) == EMUV_ADVICE_IDLE &&
            emuv_advice_register(&key, &key, 1, 0) == EMUV_ADVICE_IDLE;
        _exit(idle ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(part.access());
}

} // namespace

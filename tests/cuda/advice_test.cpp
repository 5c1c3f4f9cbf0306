// SPDX-License-Identifier: GPL-2.0-or-later
// A program that says things of its memory, in C and in C++, with the library
// before the simulated driver and without it. Run by ctest with 32 MiB of VRAM
// and 64 MiB of system RAM.
#include <emuv/stack.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

extern "C" int advice_in_c(uint64_t key, const void *memory, uint64_t bytes,
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

class AdviceProgram : public ::testing::Test
{
protected:
    void SetUp() override
    {
        if (!emuv::stack::is_there())
            GTEST_SKIP() << "the library is not there";
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
    if (emuv::stack::is_there())
        GTEST_SKIP() << "the library is there";
    emuv_advice_place place{};
    emuv_advice_stats stats{};
    EXPECT_EQ(advice_in_c(1, &place, 1, &place, &stats), EMUV_ADVICE_ABSENT);
    EXPECT_EQ(emuv_advice_forget(1), EMUV_ADVICE_ABSENT);
    EXPECT_EQ(emuv_advice_where(1, &place), EMUV_ADVICE_ABSENT);
    EXPECT_EQ(emuv_advice_statistics(1, &stats), EMUV_ADVICE_ABSENT);
    EXPECT_STREQ(emuv_advice_text(EMUV_ADVICE_ABSENT),
                 "emuV's library is not loaded");
    emuv::stack all;
    all.add("weights", &place, 1);
    EXPECT_FALSE(all.prefetch("weights"));
    EXPECT_EQ(all.at("weights").where().bytes[EMUV_TIER_VRAM], 0U);
    EXPECT_TRUE(all.remove("weights"));
}

TEST(AdviceBeforeCuInit, IsAnsweredThatTheLibraryStandsAside)
{
    if (!emuv::stack::is_there())
        GTEST_SKIP() << "the library is not there";
    int here = 0;
    EXPECT_EQ(emuv_advice_register(1, &here, 1, 0), EMUV_ADVICE_IDLE);
    EXPECT_EQ(emuv_advice_prefetch(1), EMUV_ADVICE_IDLE);
}

TEST_F(AdviceProgram, InCIsHeard)
{
    emuv_advice_place place{};
    emuv_advice_stats stats{};
    ASSERT_EQ(advice_in_c(7, at(0), 16 * MiB, &place, &stats), EMUV_ADVICE_OK);
    EXPECT_EQ(place.bytes[EMUV_TIER_VRAM] + place.bytes[EMUV_TIER_RAM],
              16 * MiB);
    EXPECT_EQ(stats.accesses, 1U);
    EXPECT_EQ(stats.hit_bytes[EMUV_TIER_VRAM] + stats.hit_bytes[EMUV_TIER_RAM],
              16 * MiB);
    EXPECT_EQ(emuv_advice_access(7), EMUV_ADVICE_KEY) << "it is forgotten";
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
    EXPECT_EQ(all.size(), 1U);
}

TEST_F(AdviceProgram, ThatIsWrongIsAnsweredInWords)
{
    EXPECT_EQ(emuv_advice_register(1, nullptr, 1, 0), EMUV_ADVICE_ADDRESS);
    EXPECT_EQ(emuv_advice_register(1, at(0), 16 * MiB + 1, 0),
              EMUV_ADVICE_RANGE);
    EXPECT_EQ(emuv_advice_register(1, at(0), static_cast<std::uint64_t>(-1), 0),
              EMUV_ADVICE_RANGE);
    EXPECT_EQ(emuv_advice_register(0, at(0), 1, 0), EMUV_ADVICE_VALUE);
    EXPECT_EQ(emuv_advice_tell(nullptr, 1, EMUV_HINT_ACCESS),
              EMUV_ADVICE_VALUE);
    EXPECT_EQ(emuv_advice_tell(nullptr, 0, EMUV_HINT_ACCESS), EMUV_ADVICE_OK);
    const std::uint64_t key = 1;
    EXPECT_EQ(emuv_advice_tell(&key, 1, 8), EMUV_ADVICE_VALUE);
    EXPECT_EQ(emuv_advice_tell(&key, 1, -1), EMUV_ADVICE_VALUE);
    EXPECT_EQ(emuv_advice_where(1, nullptr), EMUV_ADVICE_VALUE);
    emuv_advice_place none{};
    EXPECT_EQ(emuv_advice_where(1, &none), EMUV_ADVICE_VALUE) << "no size";
    for (int result = 0; result >= EMUV_ADVICE_PINNED; result--)
        EXPECT_STRNE(emuv_advice_text(result), emuv_advice_text(1)) << result;
    EXPECT_STREQ(emuv_advice_text(EMUV_ADVICE_PINNED - 1), emuv_advice_text(1));
    EXPECT_STREQ(emuv_advice_text(INT32_MIN), emuv_advice_text(1));
    ASSERT_EQ(emuv_advice_register(1, at(3), 1, 0), EMUV_ADVICE_OK);
    ASSERT_EQ(CU(cuMemFree_v2)(memory_[3]), CUDA_SUCCESS);
    memory_[3] = 0;
    EXPECT_EQ(emuv_advice_access(1), EMUV_ADVICE_FREED);
    EXPECT_EQ(emuv_advice_forget(1), EMUV_ADVICE_OK);
}

TEST_F(AdviceProgram, OfAnOlderOrNewerHeaderGetsWhatBothKnow)
{
    ASSERT_EQ(emuv_advice_register(1, at(0), MiB, 0), EMUV_ADVICE_OK);
    struct
    {
        emuv_advice_place known;
        std::uint64_t newer;
    } place{};
    place.known.size = sizeof place;
    place.newer = 5;
    ASSERT_EQ(emuv_advice_where(1, &place.known), EMUV_ADVICE_OK);
    EXPECT_EQ(place.newer, 0U);
    EXPECT_EQ(place.known.size, sizeof place);
    emuv_advice_place whole{};
    whole.size = 16; // up to the first tier
    whole.bytes[1] = 77;
    ASSERT_EQ(emuv_advice_where(1, &whole), EMUV_ADVICE_OK);
    EXPECT_EQ(whole.bytes[1], 77U) << "it was not the caller's to write";
    EXPECT_EQ(emuv_advice_forget(1), EMUV_ADVICE_OK);
}

} // namespace

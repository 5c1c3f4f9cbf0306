// SPDX-License-Identifier: GPL-2.0-or-later
// Barriers in streams: what is asked of the driver, and when the device goes
// on.
#include "idle_driver.hpp"
#include "movement/barriers.hpp"

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

using emuv::cuda::barriers;
using emuv::cuda::driver;

namespace {

const auto context = reinterpret_cast<CUcontext>(0x10);
const auto stream = reinterpret_cast<CUstream>(0x20);

// A driver whose streams do as they are told, at once or once they may.
struct BarriersTest : testing::Test
{
    BarriersTest()
    {
        all_streams.clear();
        calls = idle_driver();
        calls.cuStreamCreateWithPriority = [](CUstream *made, unsigned, int) {
            *made = reinterpret_cast<CUstream>(0x30);
            return CUDA_SUCCESS;
        };
        calls.cuStreamWriteValue32_v2 = [](CUstream on, CUdeviceptr at,
                                           cuuint32_t value, unsigned) {
            all_streams[on].push_back({false, at, value});
            run(on);
            return CUDA_SUCCESS;
        };
        calls.cuStreamWaitValue32_v2 = [](CUstream on, CUdeviceptr at,
                                          cuuint32_t value, unsigned flags) {
            EXPECT_EQ(flags, CU_STREAM_WAIT_VALUE_GEQ);
            all_streams[on].push_back({true, at, value});
            run(on);
            return CUDA_SUCCESS;
        };
        calls.cuStreamSynchronize = [](CUstream on) {
            run(on);
            return CUDA_SUCCESS;
        };
    }

    struct request
    {
        bool waits;
        CUdeviceptr at;
        std::uint32_t value;
    };
    static void run(CUstream on)
    {
        auto &queue = all_streams[on];
        while (!queue.empty()) {
            auto &word = *reinterpret_cast<std::uint32_t *>(queue.front().at);
            const std::uint32_t value = queue.front().value;
            if (!queue.front().waits)
                word = value;
            else if (static_cast<std::int32_t>(word - value) < 0)
                return;
            queue.pop_front();
        }
    }
    // True if the program's stream waits.
    static bool stops()
    {
        run(stream);
        return !all_streams[stream].empty();
    }

    static inline std::map<CUstream, std::deque<request>> all_streams;
    driver calls{};
};

} // namespace

TEST_F(BarriersTest, TheDeviceWaitsUntilItIsLetGo)
{
    barriers all(calls);
    all.begin(context);
    all.open();
    const auto one = all.take();
    ASSERT_NE(one, barriers::none);
    EXPECT_FALSE(all.is_reached(one));
    EXPECT_TRUE(all.raise(one, stream));
    EXPECT_TRUE(stops());
    EXPECT_TRUE(all.is_reached(one));
    all.lower(one);
    EXPECT_FALSE(stops());
}

TEST_F(BarriersTest, TheDeviceGoesOnWhereItWasLetGoBefore)
{
    barriers all(calls);
    all.begin(context);
    all.open();
    const auto one = all.take();
    all.lower(one);
    EXPECT_TRUE(all.raise(one, stream));
    EXPECT_FALSE(stops());
}

TEST_F(BarriersTest, AsManyAsThereAreAreToldApart)
{
    barriers all(calls);
    all.begin(context);
    all.open();
    std::set<barriers::ticket> taken;
    for (std::size_t i = 0; i < barriers::most; i++)
        taken.insert(all.take());
    EXPECT_EQ(taken.size(), barriers::most);
    EXPECT_EQ(taken.count(barriers::none), 0U);
    EXPECT_EQ(all.take(), barriers::none);
    const auto back = *taken.begin();
    all.lower(back);
    all.put(back);
    const auto next = all.take();
    ASSERT_NE(next, barriers::none);
    EXPECT_EQ(taken.count(next), 0U);
    EXPECT_TRUE(all.raise(next, stream));
    EXPECT_TRUE(stops()) << "another's word does not count";
    EXPECT_TRUE(all.is_reached(back)) << "it came before";
}

TEST_F(BarriersTest, AnotherContextHasWordsOfItsOwn)
{
    static std::vector<void *> made;
    made.clear();
    calls.cuMemHostAlloc = [](void **at, std::size_t bytes, unsigned) {
        *at = std::calloc(1, bytes);
        made.push_back(*at);
        return CUDA_SUCCESS;
    };
    const auto other = reinterpret_cast<CUcontext>(0x11);
    {
        barriers all(calls);
        all.begin(context);
        all.open();
        all.context_ends();
        all.context_stays();
        all.begin(context);
        all.open();
        ASSERT_EQ(made.size(), 1U) << "it has not gone";
        all.begin(other);
        all.open();
        ASSERT_EQ(made.size(), 2U);
        all.context_ends();
        all.begin(other);
        all.open();
        ASSERT_EQ(made.size(), 3U) << "another one with the same handle";
    }
    // Those went with their contexts; the last ones were given back.
    std::free(made[0]);
    std::free(made[1]);
}

// Movement may end, and begin anew, before the device comes to what was let go.
TEST_F(BarriersTest, WhatWasLetGoPassesHoweverLate)
{
    barriers all(calls);
    all.begin(context);
    all.open();
    std::vector<barriers::ticket> taken;
    for (std::size_t i = 0; i < barriers::most; i++)
        taken.push_back(all.take());
    for (const auto each : taken)
        all.lower(each);
    all.begin(context);
    all.open();
    for (std::size_t i = 0; i < barriers::most; i++)
        all.lower(all.take());
    for (const auto each : taken) {
        EXPECT_TRUE(all.raise(each, stream));
        EXPECT_FALSE(stops()) << each;
    }
}

TEST_F(BarriersTest, ThereAreNoneWhereTheDriverHasNoSuchOperations)
{
    calls.cuStreamWaitValue32_v2 = nullptr;
    barriers all(calls);
    all.begin(context);
    all.open();
    EXPECT_EQ(all.take(), barriers::none);
}

TEST_F(BarriersTest, ThereAreNoneWhereTheDriverOnlySaysThatItHas)
{
    calls.cuStreamWriteValue32_v2 = succeed;
    barriers all(calls);
    all.begin(context);
    all.open();
    EXPECT_EQ(all.take(), barriers::none);
}

TEST_F(BarriersTest, ThereAreNoneWhereTheDriverRefusesThem)
{
    calls.cuStreamWaitValue32_v2 = [](CUstream, CUdeviceptr, cuuint32_t,
                                      unsigned) {
        return CUDA_ERROR_NOT_SUPPORTED;
    };
    barriers all(calls);
    all.begin(context);
    all.open();
    EXPECT_EQ(all.take(), barriers::none);
}

TEST_F(BarriersTest, ThereAreNoneWhereTheDriverDoesNotWait)
{
    calls.cuStreamWaitValue32_v2 = succeed;
    barriers all(calls);
    all.begin(context);
    all.open();
    EXPECT_EQ(all.take(), barriers::none);
}

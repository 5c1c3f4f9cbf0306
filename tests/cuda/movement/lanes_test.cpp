// SPDX-License-Identifier: GPL-2.0-or-later
// Copies between VRAM and system RAM: the order of calls of the driver.
#include "movement/lanes.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

using emuv::cuda::driver;
using emuv::cuda::lanes;

namespace {

constexpr std::uint64_t unit_bytes = std::uint64_t{64} << 20;
constexpr CUdeviceptr vram = 0x100000000;
constexpr CUdeviceptr ram = 0x200000000;
const auto done = reinterpret_cast<CUevent>(0x77);

struct Operation
{
    enum
    {
        copy,
        record,
        write,
        wait,
    } what;
    CUstream on;
    CUdeviceptr at = 0; // the source, for a copy
    std::uint64_t value = 0;
    CUdeviceptr to = 0;
};

// A driver that writes down its calls, and does nothing.
struct LanesTest : testing::Test
{
    LanesTest()
    {
        asked = this;
        calls.cuStreamCreateWithPriority = [](CUstream *stream, unsigned, int) {
            *stream = reinterpret_cast<CUstream>(++asked->streams);
            return CUDA_SUCCESS;
        };
        calls.cuStreamDestroy_v2 = [](CUstream) {
            asked->destroyed++;
            return CUDA_SUCCESS;
        };
        calls.cuStreamSynchronize = [](CUstream) {
            asked->synchronized++;
            return CUDA_SUCCESS;
        };
        calls.cuMemAlloc_v2 = [](CUdeviceptr *at, std::size_t) {
            *at = 0x1000;
            asked->allocated++;
            return CUDA_SUCCESS;
        };
        calls.cuMemFree_v2 = [](CUdeviceptr) {
            asked->allocated--;
            return CUDA_SUCCESS;
        };
        calls.cuMemsetD8Async = [](CUdeviceptr, unsigned char, std::size_t,
                                   CUstream) { return CUDA_SUCCESS; };
        calls.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from,
                                 std::size_t bytes, CUstream on) {
            if (asked->copies_left-- == 0)
                return CUDA_ERROR_UNKNOWN;
            asked->all.push_back({Operation::copy, on, from, bytes, to});
            return CUDA_SUCCESS;
        };
        calls.cuEventRecord = [](CUevent event, CUstream on) {
            EXPECT_EQ(event, done);
            asked->all.push_back({Operation::record, on});
            return CUDA_SUCCESS;
        };
        calls.cuStreamWriteValue32_v2 = [](CUstream on, CUdeviceptr at,
                                           cuuint32_t value, unsigned) {
            if (asked->writes_left-- == 0)
                return CUDA_ERROR_NOT_SUPPORTED;
            asked->all.push_back({Operation::write, on, at, value});
            return CUDA_SUCCESS;
        };
        calls.cuStreamWaitValue32_v2 = [](CUstream on, CUdeviceptr at,
                                          cuuint32_t value, unsigned flags) {
            EXPECT_EQ(flags, CU_STREAM_WAIT_VALUE_GEQ);
            asked->all.push_back({Operation::wait, on, at, value});
            return CUDA_SUCCESS;
        };
    }
    ~LanesTest() override { asked = nullptr; }

    std::vector<Operation> copies() const
    {
        std::vector<Operation> found;
        std::copy_if(
            all.begin(), all.end(), std::back_inserter(found),
            [](const Operation &each) { return each.what == Operation::copy; });
        return found;
    }
    auto count(int what) const
    {
        return std::count_if(
            all.begin(), all.end(),
            [&](const Operation &each) { return each.what == what; });
    }

    // Every byte is copied once, in order, and on one stream.
    void expect_whole() const
    {
        std::uint64_t at = 0;
        for (const Operation &each : copies()) {
            EXPECT_EQ(each.on, copies().front().on);
            EXPECT_EQ(each.at, vram + at);
            EXPECT_EQ(each.to, ram + at);
            at += each.value;
        }
        EXPECT_EQ(at, unit_bytes);
    }

    // Nothing waits for a later call, as if all streams shared one queue.
    void expect_no_deadlock() const
    {
        std::map<CUdeviceptr, std::uint64_t> words;
        for (const Operation &each : all) {
            if (each.what == Operation::write)
                words[each.at] = each.value;
            if (each.what == Operation::wait) {
                EXPECT_GE(words[each.at], each.value);
            }
        }
    }

    static LanesTest *asked;
    driver calls{};
    std::vector<Operation> all;
    std::uintptr_t streams = 0;
    unsigned destroyed = 0;
    unsigned synchronized = 0;
    int allocated = 0;
    int copies_left = 1000;
    int writes_left = 1000;
};

LanesTest *LanesTest::asked = nullptr;

} // namespace

TEST_F(LanesTest, BytesForSystemRamLeaveInPiecesThatGiveTheEngineAway)
{
    lanes both(calls);
    ASSERT_TRUE(both.open(0));
    ASSERT_TRUE(both.write_back(ram, vram, unit_bytes, done));
    expect_whole();
    EXPECT_EQ(copies().size(), unit_bytes / lanes::turn_bytes);
    // Behind each turn, its stream waits for another's answer.
    const CUstream out = copies().front().on;
    for (auto each = all.begin(); each != all.end(); ++each) {
        if (each->what != Operation::copy)
            continue;
        const auto next = std::find_if(
            std::next(each), all.end(), [&](const Operation &other) {
                return other.on == out && (other.what == Operation::wait ||
                                           other.what == Operation::copy);
            });
        ASSERT_NE(next, all.end());
        EXPECT_EQ(next->what, Operation::wait);
        const auto answer =
            std::find_if(all.begin(), all.end(), [&](const Operation &other) {
                return other.what == Operation::write && other.at == next->at &&
                       other.value == next->value;
            });
        ASSERT_NE(answer, all.end());
        EXPECT_NE(answer->on, out);
    }
    both.close();
}

TEST_F(LanesTest, NothingWaitsForWhatIsBegunLater)
{
    lanes both(calls);
    ASSERT_TRUE(both.open(0));
    for (int i = 0; i < 3; i++)
        ASSERT_TRUE(both.write_back(ram, vram, unit_bytes, done));
    EXPECT_GT(count(Operation::wait), 0);
    expect_no_deadlock();
    both.close();
}

TEST_F(LanesTest, TheEndIsRecordedRightBehindTheLastByte)
{
    lanes both(calls);
    ASSERT_TRUE(both.open(0));
    ASSERT_TRUE(both.write_back(ram, vram, unit_bytes, done));
    EXPECT_EQ(count(Operation::record), 1);
    for (std::size_t i = 0; i < all.size(); i++)
        if (all[i].what == Operation::record) {
            EXPECT_EQ(all[i - 1].what, Operation::copy);
            EXPECT_EQ(all[i - 1].to + all[i - 1].value, ram + unit_bytes);
            EXPECT_EQ(all[i].on, all[i - 1].on);
        }
    both.close();
}

TEST_F(LanesTest, WhatIsFetchedComesInOnePiece)
{
    lanes both(calls);
    ASSERT_TRUE(both.open(0));
    ASSERT_TRUE(both.fetch(vram, ram, unit_bytes, done));
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].what, Operation::copy);
    EXPECT_EQ(all[0].value, unit_bytes);
    EXPECT_EQ(all[1].what, Operation::record);
    EXPECT_EQ(all[1].on, all[0].on);
    both.close();
}

TEST_F(LanesTest, DriversWithoutOperationsOnValuesCopyInOnePiece)
{
    calls.cuStreamWaitValue32_v2 = nullptr;
    lanes both(calls);
    ASSERT_TRUE(both.open(0));
    ASSERT_TRUE(both.write_back(ram, vram, unit_bytes, done));
    expect_whole();
    EXPECT_EQ(copies().size(), 1u);
    EXPECT_EQ(count(Operation::write), 0);
    both.close();
}

TEST_F(LanesTest, AQuestionThatFailsIsTheLastAndNobodyWaitsForIt)
{
    for (int good = 0; good < 5; good++) {
        all.clear();
        writes_left = good;
        lanes both(calls);
        ASSERT_TRUE(both.open(0));
        ASSERT_TRUE(both.write_back(ram, vram, unit_bytes, done));
        expect_whole();
        expect_no_deadlock();
        EXPECT_EQ(count(Operation::write), good);
        both.close();
    }
}

TEST_F(LanesTest, ACopyThatFailsHasEndedWhenItIsSaid)
{
    lanes both(calls);
    ASSERT_TRUE(both.open(0));
    const unsigned before = synchronized;
    copies_left = 3;
    EXPECT_FALSE(both.write_back(ram, vram, unit_bytes, done));
    EXPECT_GT(synchronized, before);
    copies_left = 0;
    EXPECT_FALSE(both.fetch(vram, ram, unit_bytes, done));
    EXPECT_EQ(count(Operation::record), 0);
    both.close();
}

TEST_F(LanesTest, NothingIsLeftAfterClosing)
{
    lanes both(calls);
    for (int i = 0; i < 2; i++) {
        ASSERT_TRUE(both.open(0));
        both.close();
    }
    EXPECT_EQ(allocated, 0);
    EXPECT_EQ(destroyed, streams);
}

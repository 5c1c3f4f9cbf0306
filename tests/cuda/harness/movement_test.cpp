// SPDX-License-Identifier: GPL-2.0-or-later
// Programs that come back to their memory again and again, in an order that
// can be learned or not: whatever moves meanwhile, the bytes are right.
#include "fixture.hpp"

#include <algorithm>

namespace harness {
namespace {

class Movement : public Cuda
{
protected:
    struct buffer
    {
        CUdeviceptr at = 0;
        std::size_t words = 0;
        std::uint32_t seed = 0;
        std::uint32_t added = 0;
    };

    void SetUp() override
    {
        Cuda::SetUp();
        if (2 * physical() > reachable())
            GTEST_SKIP() << "more than can be had here";
    }

    // Buffers of twice the physical budget altogether.
    void allocate(std::size_t count)
    {
        const std::size_t bytes =
            2 * physical() / count / (2 * MiB) * (2 * MiB);
        ASSERT_GT(bytes, 0u);
        for (std::size_t i = 0; i < count; ++i) {
            buffer made;
            made.words = bytes / 4;
            made.seed = static_cast<std::uint32_t>(1000 * i + 7);
            OK(cuda().cuMemAlloc(&made.at, bytes));
            OK(fill(made.at, made.words, made.seed));
            buffers.push_back(made);
        }
    }

    void touch(std::size_t index, CUstream stream = nullptr)
    {
        buffer &one = buffers[index];
        one.added += static_cast<std::uint32_t>(index + 1);
        OK(add(one.at, one.words, static_cast<std::uint32_t>(index + 1),
               stream));
    }

    void check_and_free()
    {
        OK(cuda().cuCtxSynchronize());
        for (const buffer &one : buffers) {
            std::vector<std::uint32_t> got(one.words);
            OK(cuda().cuMemcpyDtoH(got.data(), one.at, one.words * 4));
            for (std::size_t i = 0; i < one.words; ++i)
                if (got[i] != pattern(one.seed, i) + one.added)
                    FAIL() << "word " << i << " of " << one.words << " is "
                           << got[i] << ", not "
                           << pattern(one.seed, i) + one.added;
            OK(cuda().cuMemFree(one.at));
        }
        buffers.clear();
    }

    std::vector<buffer> buffers;
};

} // namespace

TEST_F(Movement, InACircle)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    for (int round = 0; round < 12; ++round)
        for (std::size_t i = 0; i < buffers.size(); ++i)
            ASSERT_NO_FATAL_FAILURE(touch(i));
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

TEST_F(Movement, ForthAndBack)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    for (int round = 0; round < 8; ++round) {
        for (std::size_t i = 0; i < buffers.size(); ++i)
            ASSERT_NO_FATAL_FAILURE(touch(i));
        for (std::size_t i = buffers.size(); i-- > 0;)
            ASSERT_NO_FATAL_FAILURE(touch(i));
    }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

TEST_F(Movement, OnTwoStreamsThatKnowNothingOfEachOther)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    CUstream streams[2];
    for (CUstream &each : streams)
        OK(cuda().cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
    OK(cuda().cuCtxSynchronize());
    for (int round = 0; round < 12; ++round)
        for (std::size_t i = 0; i < buffers.size(); ++i)
            ASSERT_NO_FATAL_FAILURE(touch(i, streams[i % 2]));
    for (CUstream each : streams)
        OK(cuda().cuStreamSynchronize(each));
    ASSERT_NO_FATAL_FAILURE(check_and_free());
    for (CUstream each : streams)
        OK(cuda().cuStreamDestroy(each));
}

TEST_F(Movement, InAnOrderThatNeverRepeats)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::mt19937 random(7);
    for (int step = 0; step < 100; ++step)
        ASSERT_NO_FATAL_FAILURE(touch(random() % buffers.size()));
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

TEST_F(Movement, WithShapesThatTakeTurns)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::mt19937 random(8);
    for (int round = 0; round < 20; ++round)
        if (random() % 2)
            for (std::size_t i = 0; i < buffers.size(); ++i)
                ASSERT_NO_FATAL_FAILURE(touch(i));
        else
            for (std::size_t i = 0; i < buffers.size(); i += 2)
                ASSERT_NO_FATAL_FAILURE(touch((i * 3 + 1) % buffers.size()));
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

TEST_F(Movement, WhileMemoryIsFreedAndAllocatedAnew)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::mt19937 random(9);
    for (int round = 0; round < 24; ++round) {
        for (std::size_t i = 0; i < buffers.size(); ++i)
            ASSERT_NO_FATAL_FAILURE(touch(i));
        if (round % 3 != 2)
            continue;
        buffer &old = buffers[random() % buffers.size()];
        OK(cuda().cuMemFree(old.at));
        OK(cuda().cuMemAlloc(&old.at, old.words * 4));
        old.seed = static_cast<std::uint32_t>(random());
        old.added = 0;
        OK(fill(old.at, old.words, old.seed));
    }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

TEST_F(Movement, WhileCopiesReadAndWrite)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::vector<std::uint32_t> data(buffers[0].words);
    for (int round = 0; round < 12; ++round) {
        for (std::size_t i = 0; i < buffers.size(); ++i)
            ASSERT_NO_FATAL_FAILURE(touch(i));
        const std::size_t which = static_cast<std::size_t>(round) % 8;
        buffer &one = buffers[which];
        OK(cuda().cuMemcpyDtoH(data.data(), one.at, data.size() * 4));
        for (std::uint32_t &word : data)
            word += 5;
        one.added += 5;
        OK(cuda().cuMemcpyHtoD(one.at, data.data(), data.size() * 4));
    }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

} // namespace harness

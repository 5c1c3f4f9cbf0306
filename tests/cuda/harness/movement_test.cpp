// SPDX-License-Identifier: GPL-2.0-or-later
// Programs that come back to their memory again and again, in an order that
// can be learned or not. The bytes are right, whichever units move meanwhile.
#include "fixture.hpp"

#include <emuv/advice.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

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
            const std::size_t i =
                first_other_word(got.data(), one.words, one.seed, one.added);
            if (i < one.words)
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

// Without the library nobody hears what the program says.
TEST_F(Movement, WhateverTheProgramSaysOfItsMemory)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    const bool heard = emuv_advice_is_there() != 0;
    const int fine = heard ? EMUV_ADVICE_OK : EMUV_ADVICE_ABSENT;
    std::mt19937 random(31 + seed());
    std::vector<std::uint64_t> keys(buffers.size());
    const auto key = [&](std::size_t index) { return keys[index]; };
    for (std::size_t i = 0; i < buffers.size(); ++i)
        ASSERT_EQ(emuv_advice_register(
                      &keys[i], reinterpret_cast<const void *>(buffers[i].at),
                      buffers[i].words * 4, static_cast<int>(random() % 5)),
                  fine);
    for (int step = 0; step < repeats(300); ++step) {
        const std::size_t next = random() % buffers.size();
        // Bytes that are dead are written anew before they are read.
        const std::size_t dead = random() % buffers.size();
        const auto what = static_cast<int>(random() % (EMUV_HINT_UNPIN + 1));
        if (what == EMUV_HINT_DISCARD) {
            buffer &one = buffers[dead];
            ASSERT_EQ(emuv_advice_discard(key(dead)), fine);
            if (step % 3 == 0) {
                ASSERT_NO_FATAL_FAILURE(touch(next));
            }
            if (step % 2 == 0) {
                ASSERT_EQ(emuv_advice_demote(key(dead)), fine);
            }
            OK(fill(one.at, one.words, one.seed));
            one.added = 0;
        } else {
            const std::uint64_t other = key(random() % buffers.size());
            const int said = emuv_advice_tell(&other, 1, what);
            if (said != EMUV_ADVICE_PINNED) {
                ASSERT_EQ(said, fine) << emuv_advice_text(said);
            }
        }
        ASSERT_NO_FATAL_FAILURE(touch(next));
        if (step % 16 == 0)
            OK(cuda().cuCtxSynchronize());
    }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
    const std::uint64_t first = key(0);
    EXPECT_EQ(emuv_advice_tell(&first, 1, EMUV_HINT_PREFETCH),
              heard ? EMUV_ADVICE_FREED : EMUV_ADVICE_ABSENT);
}

// The driver takes a device's address for the host's, too.
TEST_F(Movement, ByCopiesThatCallAllMemoryTheHosts)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::mt19937 random(17);
    for (int round = 0; round < 12; ++round)
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            ASSERT_NO_FATAL_FAILURE(touch(i));
            OK(cuda().cuCtxSynchronize());
            buffer &to = buffers[random() % buffers.size()];
            if (to.at == buffers[i].at)
                continue;
            CUDA_MEMCPY2D flat = {};
            flat.srcMemoryType = flat.dstMemoryType = CU_MEMORYTYPE_HOST;
            flat.srcHost = reinterpret_cast<const void *>(buffers[i].at);
            flat.dstHost = reinterpret_cast<void *>(to.at);
            flat.srcPitch = flat.dstPitch = flat.WidthInBytes = 4096;
            flat.Height = to.words * 4 / flat.WidthInBytes;
            CUDA_MEMCPY3D deep = {};
            deep.srcMemoryType = deep.dstMemoryType = CU_MEMORYTYPE_HOST;
            deep.srcHost = flat.srcHost;
            deep.dstHost = flat.dstHost;
            deep.srcPitch = deep.dstPitch = deep.WidthInBytes = 4096;
            deep.srcHeight = deep.dstHeight = deep.Height = flat.Height / 2;
            deep.Depth = 2;
            if (round % 2 == 0)
                OK(cuda().cuMemcpy2D(&flat));
            else
                OK(cuda().cuMemcpy3D(&deep));
            const CUdeviceptr at = to.at;
            to = buffers[i];
            to.at = at;
        }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

TEST_F(Movement, WhileAddressesAreAskedAbout)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::mt19937 random(23);
    for (int round = 0; round < 12; ++round)
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            ASSERT_NO_FATAL_FAILURE(touch(i));
            const buffer &one = buffers[random() % buffers.size()];
            const CUdeviceptr at = one.at + random() % (4 * one.words);
            CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MAPPED;
            int mapped = 0; // a boolean, of unknown size
            OK(cuda().cuPointerGetAttribute(&mapped, which, at));
            EXPECT_NE(mapped, 0);
            int all = 0;
            void *data = &all;
            OK(cuda().cuPointerGetAttributes(1, &which, &data, at));
            EXPECT_NE(all, 0);
        }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

// Each write is undone again, so that memory looks unchanged.
TEST_F(Movement, BackToWhatItHeldBefore)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::mt19937 random(11);
    const auto step = [&](std::size_t index, std::uint32_t value) {
        buffer &one = buffers[index];
        one.added += value;
        OK(add(one.at, one.words, value));
    };
    for (int round = 0; round < 30; ++round)
        for (std::size_t i = 0; i < buffers.size(); ++i)
            ASSERT_NO_FATAL_FAILURE(
                step(i, round % 2 == 0 ? 5 : static_cast<std::uint32_t>(-5)));
    for (int round = 0; round < 100; ++round)
        ASSERT_NO_FATAL_FAILURE(
            step(random() % buffers.size(),
                 round % 2 == 0 ? 3 : static_cast<std::uint32_t>(-3)));
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

// Each thread has a default stream of its own, and all have one name.
TEST_F(Movement, ByThreadsOnTheirDefaultStreams)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    OK(cuda().cuCtxSynchronize());
    std::vector<std::thread> threads;
    for (std::size_t first = 0; first < 4; ++first)
        threads.emplace_back([this, first] {
            OK(cuda().cuCtxSetCurrent(context));
            for (int round = 0; round < 12; ++round)
                for (std::size_t i = first; i < buffers.size(); i += 4)
                    touch(i, CU_STREAM_PER_THREAD);
            OK(cuda().cuStreamSynchronize(CU_STREAM_PER_THREAD));
        });
    for (std::thread &each : threads)
        each.join();
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

// An array can be in VRAM only.
TEST_F(Movement, MakesWayForWhatCannotSpill)
{
    const char *const moves = std::getenv("EMUV_MOVE");
    if (moves == nullptr || std::string(moves) == "0")
        GTEST_SKIP() << "memory stands still";
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    CUDA_ARRAY_DESCRIPTOR shape{};
    shape.Width = 1024;
    shape.Height = physical() / 4 / 4096;
    shape.Format = CU_AD_FORMAT_UNSIGNED_INT32;
    shape.NumChannels = 1;
    for (int round = 0; round < 12; ++round) {
        for (std::size_t i = 0; i < buffers.size(); ++i)
            ASSERT_NO_FATAL_FAILURE(touch(i));
        CUarray array = nullptr;
        OK(cuda().cuArrayCreate(&array, &shape));
        ASSERT_NO_FATAL_FAILURE(touch(0));
        OK(cuda().cuArrayDestroy(array));
    }
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

// The end of brief work is seen by the event of the next work. If none comes on
// its stream, movement goes on all the same.
TEST_F(Movement, WhileStreamsComeAreCapturedAndGo)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    OK(cuda().cuCtxSynchronize());
    testing::internal::CaptureStderr();
    for (int round = 0; round < 30; ++round) {
        CUstream stream = nullptr;
        OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (std::size_t i = 1; i < buffers.size(); ++i)
            touch(i, stream);
        OK(cuda().cuStreamSynchronize(stream));
        // The rest of it then runs beside the next stream's work.
        for (int brief = 0; brief < 30; ++brief)
            OK(add(buffers[0].at, 4, 0, stream));
        if (round % 2 == 0) {
            CUgraph nothing = nullptr;
            OK(cuda().cuStreamBeginCapture(stream,
                                           CU_STREAM_CAPTURE_MODE_RELAXED));
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            OK(cuda().cuStreamEndCapture(stream, &nothing));
            OK(cuda().cuGraphDestroy(nothing));
        }
        OK(cuda().cuStreamDestroy(stream));
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

// A launch may wait for work that itself waits for the program: no wait is for
// good.
TEST_F(Movement, WhileHostFunctionsWaitForTheProgram)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    CUstream stream = nullptr;
    OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuda().cuCtxSynchronize());
    std::atomic<int> let_go = 0;
    struct gate
    {
        std::atomic<int> *open;
        int round;
    };
    std::vector<gate> gates;
    for (int round = 0; round < 12; ++round)
        gates.push_back({&let_go, round});
    for (gate &each : gates) {
        for (std::size_t i = 0; i < buffers.size(); ++i)
            ASSERT_NO_FATAL_FAILURE(touch(i, stream));
        OK(cuda().cuLaunchHostFunc(
            stream,
            [](void *given) {
                const auto *own = static_cast<const gate *>(given);
                while (*own->open <= own->round)
                    std::this_thread::sleep_for(std::chrono::microseconds(50));
            },
            &each));
        // All of it behind that, and no room for it before that has ended.
        for (std::size_t i = 0; i < buffers.size(); ++i)
            ASSERT_NO_FATAL_FAILURE(touch(i, stream));
        ++let_go;
    }
    OK(cuda().cuStreamSynchronize(stream));
    ASSERT_NO_FATAL_FAILURE(check_and_free());
    OK(cuda().cuStreamDestroy(stream));
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

// The memory used in between lies elsewhere each time, as with texts that
// differ in length; writes are undone again.
TEST_F(Movement, InTheSameOrderWithOtherThingsInBetween)
{
    constexpr std::size_t between = 4;
    constexpr std::size_t part = 4096;
    const std::size_t count =
        std::min<std::size_t>(32, 2 * physical() / (4 * MiB));
    ASSERT_NO_FATAL_FAILURE(allocate(count));
    std::mt19937 random(12);
    for (int round = 0; round < 5; ++round)
        for (std::size_t i = 0; i + between < count; ++i) {
            ASSERT_NO_FATAL_FAILURE(touch(i));
            for (std::uint32_t value = 1; value <= 12; ++value) {
                const buffer &one = buffers[count - 1 - random() % between];
                const std::size_t from = random() % (one.words - part) / 4 * 4;
                OK(add(one.at + 4 * from, part, value));
                OK(add(one.at + 4 * from, part, 0 - value));
            }
        }
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

// New memory has no bytes yet. It gets them in each way that there is, or is
// freed before that.
TEST_F(Movement, WhileTheProgramTakesEverMoreMemory)
{
    const std::size_t bytes = physical() / 4 / (2 * MiB) * (2 * MiB);
    const std::size_t count =
        std::min<std::size_t>(reachable() / bytes * 3 / 4, 32);
    std::mt19937 random(17 + seed());
    for (std::size_t i = 0; i < count; ++i) {
        buffer made;
        made.words = bytes / 4;
        made.seed = static_cast<std::uint32_t>(1000 * i + 3);
        OK(cuda().cuMemAlloc(&made.at, bytes));
        switch (i % 4) {
        case 0:
            OK(fill(made.at, made.words, made.seed));
            break;
        case 1: {
            std::vector<std::uint32_t> words(made.words);
            fill_words(words.data(), made.words, made.seed);
            OK(cuda().cuMemcpyHtoD(made.at, words.data(), bytes));
            break;
        }
        case 2: {
            const buffer &from = buffers[random() % buffers.size()];
            OK(cuda().cuMemcpyDtoD(made.at, from.at, bytes));
            made.seed = from.seed;
            made.added = from.added;
            break;
        }
        default: {
            OK(cuda().cuMemFree(made.at));
            OK(cuda().cuMemAlloc(&made.at, bytes));
            unsigned kind = 0;
            OK(cuda().cuPointerGetAttribute(
                &kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, made.at));
            EXPECT_EQ(kind, CU_MEMORYTYPE_DEVICE);
            OK(fill(made.at, made.words, made.seed));
        }
        }
        buffers.push_back(made);
        for (int each = 0; each < 3; ++each)
            ASSERT_NO_FATAL_FAILURE(touch(random() % buffers.size()));
    }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

// As a model in training: a layer's activations are freed on the way back.
TEST_F(Movement, WhileMemoryIsFreedAndAllocatedInStreamOrder)
{
    ASSERT_NO_FATAL_FAILURE(allocate(16)); // of which half are kept
    const std::size_t layers = buffers.size() / 2;
    for (std::size_t i = layers; i < buffers.size(); ++i)
        OK(cuda().cuMemFree(buffers[i].at));
    buffers.resize(layers);
    constexpr std::size_t seen_words = 16384;
    CUdeviceptr seen = 0;
    OK(cuda().cuMemAlloc(&seen, layers * seen_words * 4));
    std::mt19937 random(31);
    CUstream stream = nullptr;
    OK(cuda().cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    for (std::uint32_t round = 0; round < 24; ++round) {
        // After a stream is destroyed, any other may use its memory.
        if (round % 8 == 7) {
            OK(cuda().cuStreamDestroy(stream));
            OK(cuda().cuStreamCreate(&stream, CU_STREAM_DEFAULT));
        }
        std::vector<CUdeviceptr> left(layers);
        std::vector<std::size_t> offsets(layers);
        const auto words = [&](std::size_t i) {
            return buffers[i].words + (i % 3) * MiB / 4;
        };
        const auto seed = [&](std::size_t i) {
            return 100 * round + static_cast<std::uint32_t>(i);
        };
        for (std::size_t i = 0; i < layers; ++i) {
            ASSERT_NO_FATAL_FAILURE(touch(i, stream));
            OK(cuda().cuMemAllocAsync(&left[i], words(i) * 4, stream));
            OK(fill(left[i], words(i), seed(i), stream));
        }
        for (std::size_t i = layers; i-- > 0;) {
            ASSERT_NO_FATAL_FAILURE(touch(i, stream));
            offsets[i] = random() % (words(i) - seen_words);
            OK(cuda().cuMemcpyDtoDAsync(seen + i * seen_words * 4,
                                        left[i] + offsets[i] * 4,
                                        seen_words * 4, stream));
            OK(cuda().cuMemFreeAsync(left[i], stream));
        }
        std::vector<std::uint32_t> got(layers * seen_words);
        OK(cuda().cuStreamSynchronize(stream));
        OK(cuda().cuMemcpyDtoH(got.data(), seen, got.size() * 4));
        for (std::size_t i = 0; i < layers; ++i)
            for (std::size_t word = 0; word < seen_words; ++word)
                ASSERT_EQ(got[i * seen_words + word],
                          pattern(seed(i), offsets[i] + word))
                    << "round " << round << ", layer " << i << ", word "
                    << offsets[i] + word;
    }
    CUmemoryPool pool = nullptr;
    OK(cuda().cuDeviceGetDefaultMemPool(&pool, 0));
    cuuint64_t bytes = 1;
    OK(cuda().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                                    &bytes));
    EXPECT_EQ(bytes, 0u);
    OK(cuda().cuMemPoolTrimTo(pool, 0));
    OK(cuda().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                    &bytes));
    EXPECT_EQ(bytes, 0u);
    OK(cuda().cuStreamDestroy(stream));
    OK(cuda().cuMemFree(seen));
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

namespace {

// Kernels that find their memory in ways that no look at their parameters
// shows. They must not be trusted.
class Unforeseen : public Movement
{
protected:
    void SetUp() override
    {
        Movement::SetUp();
        const char *trust = std::getenv("EMUV_TRUST");
        if (trust != nullptr && std::string(trust) == "all")
            GTEST_SKIP() << "these kernels are trusted, wrongly";
        if (!IsSkipped())
            OK(cuda().cuMemAlloc(&table, 4096));
    }
    void TearDown() override
    {
        if (table != 0)
            OK(cuda().cuMemFree(table));
        Movement::TearDown();
    }

    void write_table(const std::vector<CUdeviceptr> &words) const
    {
        OK(cuda().cuMemcpyHtoD(table, words.data(),
                               words.size() * sizeof words[0]));
    }

    void launch_once(const char *name, void **params) const
    {
        CUfunction function = nullptr;
        OK(cuda().cuModuleGetFunction(&function, module, name));
        OK(cuda().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params,
                                 nullptr));
    }

    // Adds to a buffer by a kernel that is not given its address.
    void touch_by(const char *name, std::size_t index, std::uint64_t given,
                  std::uint64_t rest)
    {
        buffer &one = buffers[index];
        CUfunction function = nullptr;
        OK(cuda().cuModuleGetFunction(&function, module, name));
        std::uint64_t count = one.words;
        std::uint32_t value = 3;
        void *params[] = {&given, &count, &value, &rest};
        OK(cuda().cuLaunchKernel(
            function,
            static_cast<unsigned>((count + block_threads - 1) / block_threads),
            1, 1, block_threads, 1, 1, 0, nullptr, params, nullptr));
        one.added += value;
    }

    // Rounds that can be learned, and in each of them some that cannot.
    template <typename Touch>
    void run(Touch unforeseen)
    {
        std::mt19937 random(10);
        for (int round = 0; round < 12; ++round) {
            for (std::size_t i = 0; i < buffers.size(); ++i) {
                ASSERT_NO_FATAL_FAILURE(touch(i));
                if (random() % 8 == 0) {
                    ASSERT_NO_FATAL_FAILURE(
                        unforeseen(random() % buffers.size()));
                }
            }
            // All of the work must see memory as it was when the work began.
            if (round % 4 == 3)
                OK(cuda().cuCtxSynchronize());
        }
        ASSERT_NO_FATAL_FAILURE(check_and_free());
    }

    CUdeviceptr table = 0;
};

} // namespace

TEST_F(Unforeseen, ByATableOfAddressesInMemory)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::vector<CUdeviceptr> words;
    for (const buffer &one : buffers)
        words.push_back(one.at);
    ASSERT_NO_FATAL_FAILURE(write_table(words));
    ASSERT_NO_FATAL_FAILURE(
        run([this](std::size_t i) { touch_by("add_by_table", i, table, i); }));
}

TEST_F(Unforeseen, ByATableThatACopyOfEitherKindBrought)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::vector<CUdeviceptr> words;
    for (const buffer &one : buffers)
        words.push_back(one.at);
    const std::size_t half = words.size() / 2 * sizeof words[0];
    const auto from = reinterpret_cast<CUdeviceptr>(words.data());
    OK(cuda().cuMemcpy(table, from, half));
    OK(cuda().cuMemcpyAsync(table + half, from + half, half, nullptr));
    ASSERT_NO_FATAL_FAILURE(
        run([this](std::size_t i) { touch_by("add_by_table", i, table, i); }));
}

TEST_F(Unforeseen, ByATableThatACopyOfRowsBrought)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    // Two words in each of four rows, and something else between them.
    std::vector<CUdeviceptr> words(16, 7);
    for (std::size_t i = 0; i < buffers.size(); ++i)
        words[i / 2 * 4 + 1 + i % 2] = buffers[i].at;
    CUDA_MEMCPY2D flat = {};
    flat.srcMemoryType = CU_MEMORYTYPE_HOST;
    flat.srcHost = words.data();
    flat.srcXInBytes = sizeof words[0];
    flat.srcPitch = 4 * sizeof words[0];
    flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    flat.dstDevice = table;
    flat.dstPitch = flat.WidthInBytes = 2 * sizeof words[0];
    flat.Height = 2;
    OK(cuda().cuMemcpy2D(&flat));
    CUDA_MEMCPY3D deep = {};
    deep.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    deep.srcDevice = reinterpret_cast<CUdeviceptr>(words.data());
    deep.srcXInBytes = flat.srcXInBytes;
    deep.srcPitch = flat.srcPitch;
    deep.srcHeight = 1;
    deep.srcZ = 2;
    deep.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    deep.dstDevice = table + 4 * sizeof words[0];
    deep.dstPitch = flat.dstPitch;
    deep.dstHeight = 1;
    deep.WidthInBytes = flat.WidthInBytes;
    deep.Height = 1;
    deep.Depth = 2;
    OK(cuda().cuMemcpy3D(&deep));
    ASSERT_NO_FATAL_FAILURE(
        run([this](std::size_t i) { touch_by("add_by_table", i, table, i); }));
}

TEST_F(Unforeseen, ByATableOfManyAddresses)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::vector<CUdeviceptr> words(40000);
    for (std::size_t i = 0; i < words.size(); ++i)
        words[i] = buffers[i * buffers.size() / words.size()].at;
    CUdeviceptr many = 0;
    OK(cuda().cuMemAlloc(&many, words.size() * sizeof words[0]));
    OK(cuda().cuMemcpyHtoD(many, words.data(), words.size() * sizeof words[0]));
    ASSERT_NO_FATAL_FAILURE(run([&](std::size_t i) {
        touch_by("add_by_table", i, many,
                 (i + 1) * words.size() / buffers.size() - 1);
    }));
    OK(cuda().cuMemFree(many));
}

TEST_F(Unforeseen, ByATableInManagedMemory)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    CUdeviceptr words = 0;
    OK(cuda().cuMemAllocManaged(&words, buffers.size() * sizeof(CUdeviceptr),
                                CU_MEM_ATTACH_GLOBAL));
    for (std::size_t i = 0; i < buffers.size(); ++i)
        reinterpret_cast<CUdeviceptr *>(words)[i] = buffers[i].at;
    ASSERT_NO_FATAL_FAILURE(
        run([&](std::size_t i) { touch_by("add_by_table", i, words, i); }));
    OK(cuda().cuMemFree(words));
}

TEST_F(Unforeseen, ByATableInTheHostsMemory)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    void *words = nullptr;
    OK(cuda().cuMemHostAlloc(&words, buffers.size() * sizeof(CUdeviceptr),
                             CU_MEMHOSTALLOC_DEVICEMAP));
    for (std::size_t i = 0; i < buffers.size(); ++i)
        static_cast<CUdeviceptr *>(words)[i] = buffers[i].at;
    ASSERT_NO_FATAL_FAILURE(run([&](std::size_t i) {
        touch_by("add_by_table", i, reinterpret_cast<CUdeviceptr>(words), i);
    }));
    OK(cuda().cuMemFreeHost(words));
}

TEST_F(Unforeseen, ByATableThatAKernelWritesOfWhatItIsGiven)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        std::uint64_t count = 1;
        auto index = static_cast<std::uint32_t>(i);
        void *params[] = {&table, &count, &index, &buffers[i].at};
        ASSERT_NO_FATAL_FAILURE(launch_once("write_batched_ptrs", params));
    }
    ASSERT_NO_FATAL_FAILURE(
        run([this](std::size_t i) { touch_by("add_by_table", i, table, i); }));
}

TEST_F(Unforeseen, ByATableThatAKernelWritesOfNumbers)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        std::uint64_t count = 1;
        CUdeviceptr numbers[] = {buffers[i].at, 64};
        CUdeviceptr at = table + i * sizeof(CUdeviceptr);
        void *params[] = {&count, numbers, &at};
        ASSERT_NO_FATAL_FAILURE(launch_once("fake_arange_cuda_out", params));
    }
    ASSERT_NO_FATAL_FAILURE(
        run([this](std::size_t i) { touch_by("add_by_table", i, table, i); }));
}

TEST_F(Unforeseen, ByAListThatIsFollowed)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::vector<CUdeviceptr> words;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        words.push_back(table + (i + 1) % buffers.size() * 16);
        words.push_back(buffers[i].at);
    }
    ASSERT_NO_FATAL_FAILURE(write_table(words));
    ASSERT_NO_FATAL_FAILURE(
        run([this](std::size_t i) { touch_by("add_by_list", i, table, i); }));
}

TEST_F(Unforeseen, ByAnOffsetFromAnotherAllocation)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    ASSERT_NO_FATAL_FAILURE(run([this](std::size_t i) {
        const CUdeviceptr from = buffers[(i + 3) % buffers.size()].at;
        touch_by("add_by_offset", i, from, buffers[i].at - from);
    }));
}

TEST_F(Unforeseen, ByTheEndOfAnotherAllocation)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    ASSERT_NO_FATAL_FAILURE(run([this](std::size_t i) {
        const buffer &other = buffers[(i + 5) % buffers.size()];
        const CUdeviceptr end = other.at + other.words * 4;
        touch_by("add_by_offset", i, end, buffers[i].at - end);
    }));
}

TEST_F(Unforeseen, ByPartOfAnAddress)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    ASSERT_NO_FATAL_FAILURE(run([this](std::size_t i) {
        touch_by("add_by_part", i, buffers[i].at >> 12, 12);
    }));
}

// Untrusted work waits in its stream until all is mapped: no call of the
// program's that waits for it waits for good.
TEST_F(Unforeseen, BesideCallsThatWaitForTheDevice)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::vector<CUdeviceptr> words;
    for (const buffer &one : buffers)
        words.push_back(one.at);
    ASSERT_NO_FATAL_FAILURE(write_table(words));
    const auto wait = [&](unsigned how) {
        switch (how % 8) {
        case 0:
            OK(cuda().cuCtxSynchronize());
            break;
        case 1: {
            CUdeviceptr small = 0;
            OK(cuda().cuMemAlloc(&small, 4096));
            OK(cuda().cuMemFree(small));
            break;
        }
        case 2: {
            void *host = nullptr;
            OK(cuda().cuMemHostAlloc(&host, 4096, 0));
            OK(cuda().cuMemFreeHost(host));
            break;
        }
        case 3: {
            CUmodule other = nullptr;
            OK(cuda().cuModuleLoadData(&other, kernel_image(cuda().simulated)));
            OK(cuda().cuModuleUnload(other));
            break;
        }
        case 4: {
            std::uint32_t word = 0;
            OK(cuda().cuMemcpyDtoH(&word, table, sizeof word));
            break;
        }
        case 5: {
            CUstream other = nullptr;
            OK(cuda().cuStreamCreate(&other, CU_STREAM_DEFAULT));
            OK(cuda().cuStreamSynchronize(other));
            OK(cuda().cuStreamDestroy(other));
            break;
        }
        case 6: {
            CUgraph nothing = nullptr;
            CUstream other = nullptr;
            OK(cuda().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
            OK(cuda().cuStreamBeginCapture(other,
                                           CU_STREAM_CAPTURE_MODE_RELAXED));
            OK(cuda().cuStreamEndCapture(other, &nothing));
            OK(cuda().cuGraphDestroy(nothing));
            OK(cuda().cuStreamDestroy(other));
            break;
        }
        default:
            OK(cuda().cuStreamSynchronize(nullptr));
            break;
        }
    };
    std::mt19937 random(29);
    for (int round = 0; round < 12; ++round)
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            ASSERT_NO_FATAL_FAILURE(touch(i));
            if (random() % 3 == 0) {
                const std::size_t any = random() % buffers.size();
                ASSERT_NO_FATAL_FAILURE(
                    touch_by("add_by_table", any, table, any));
                ASSERT_NO_FATAL_FAILURE(wait(static_cast<unsigned>(random())));
            }
        }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

// Several streams come to such kernels at about the same time.
TEST_F(Unforeseen, OnSeveralStreamsAtOnce)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::vector<CUdeviceptr> words;
    for (const buffer &one : buffers)
        words.push_back(one.at);
    ASSERT_NO_FATAL_FAILURE(write_table(words));
    OK(cuda().cuCtxSynchronize());
    CUfunction function = nullptr;
    OK(cuda().cuModuleGetFunction(&function, module, "add_by_table"));
    CUstream streams[3];
    for (CUstream &each : streams)
        OK(cuda().cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 12; ++round)
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            // Each has its own part of them.
            CUstream stream = streams[i % 3];
            ASSERT_NO_FATAL_FAILURE(touch(i, stream));
            buffer &one = buffers[i];
            std::uint64_t count = one.words;
            std::uint32_t value = 5;
            std::uint64_t index = i;
            void *params[] = {&table, &count, &value, &index};
            if ((i + static_cast<std::size_t>(round)) % 3 == 0) {
                OK(cuda().cuLaunchKernel(
                    function,
                    static_cast<unsigned>((count + block_threads - 1) /
                                          block_threads),
                    1, 1, block_threads, 1, 1, 0, stream, params, nullptr));
                one.added += value;
            }
        }
    for (CUstream each : streams) {
        OK(cuda().cuStreamSynchronize(each));
        OK(cuda().cuStreamDestroy(each));
    }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

// A write over the link makes an older digest invalid, even if the bytes become
// the same again.
TEST_F(Unforeseen, AndBackToWhatTheyHeldBefore)
{
    ASSERT_NO_FATAL_FAILURE(allocate(8));
    std::vector<CUdeviceptr> words;
    for (const buffer &one : buffers)
        words.push_back(one.at);
    ASSERT_NO_FATAL_FAILURE(write_table(words));
    for (int round = 0; round < 16; ++round) {
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            ASSERT_NO_FATAL_FAILURE(touch(i));
            // Written in place, by a kernel that is not trusted ...
            ASSERT_NO_FATAL_FAILURE(touch_by(
                "add_by_table",
                (i + static_cast<std::size_t>(round)) % buffers.size(), table,
                (i + static_cast<std::size_t>(round)) % buffers.size()));
            OK(cuda().cuCtxSynchronize());
        }
        // ... and set back as a whole, by a trusted one.
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            buffer &one = buffers[i];
            OK(add(one.at, one.words, 0 - one.added));
            one.added = 0;
        }
    }
    ASSERT_NO_FATAL_FAILURE(check_and_free());
}

} // namespace harness

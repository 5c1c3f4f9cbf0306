// SPDX-License-Identifier: GPL-2.0-or-later
// Copies and fills of every shape across large allocations, against the same
// done in host memory.
#include "fixture.hpp"
#include "mirror.hpp"

#include <thread>

namespace harness {
namespace {

class Copies : public Cuda
{
protected:
    // Two buffers, each of a size that, past the budget, must be split.
    std::size_t bytes() const
    {
        return (beyond() ? physical() + physical() / 4 : physical() * 2 / 5) +
               12;
    }
};

TEST_F(Copies, OfEveryShapeMoveTheBytesTheyName)
{
    mirror a, b;
    CUstream stream = nullptr;
    OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_NO_FATAL_FAILURE(a.allocate(bytes(), 1));
    ASSERT_NO_FATAL_FAILURE(b.allocate(bytes(), 2));
    std::mt19937 random(7 + seed());
    for (int i = 0; i < repeats(500); ++i) {
        const bool synchronous = random() % 2;
        // The calls that wait do so on the legacy stream, which is not
        // ordered with this one.
        if (synchronous)
            OK(cuda().cuStreamSynchronize(stream));
        ASSERT_NO_FATAL_FAILURE(random_copy(
            a, b, random, synchronous ? nullptr : stream, synchronous))
            << i;
        std::swap(a, b);
        if (i % 100 == 99) {
            OK(cuda().cuCtxSynchronize());
            ASSERT_NO_FATAL_FAILURE(a.check());
            ASSERT_NO_FATAL_FAILURE(b.check());
        }
    }
    ASSERT_NO_FATAL_FAILURE(a.free());
    ASSERT_NO_FATAL_FAILURE(b.free());
    OK(cuda().cuStreamDestroy(stream));
}

TEST_F(Copies, AcrossAnyPlaceOfAnAllocationAreWhole)
{
    // A row of small writes over every chunk's edge.
    mirror a;
    ASSERT_NO_FATAL_FAILURE(a.allocate(bytes(), 3));
    for (std::size_t edge = 2 * MiB; edge + 64 < a.bytes(); edge += 2 * MiB) {
        std::vector<unsigned char> data(100);
        for (std::size_t i = 0; i < data.size(); ++i)
            data[i] = static_cast<unsigned char>(edge / MiB + i);
        const std::size_t at = std::min(edge - 37, a.bytes() - 100);
        OK(cuda().cuMemcpyHtoD(a.at() + at, data.data(), data.size()));
        std::copy(data.begin(), data.end(),
                  a.model.begin() + static_cast<std::ptrdiff_t>(at));
        OK(cuda().cuMemsetD8(a.at() + edge - 3, 0x5a, 6));
        std::fill_n(a.model.begin() + static_cast<std::ptrdiff_t>(edge - 3), 6,
                    static_cast<unsigned char>(0x5a));
    }
    ASSERT_NO_FATAL_FAILURE(a.check());
    ASSERT_NO_FATAL_FAILURE(a.free());
}

TEST_F(Copies, ReachAnotherDevice)
{
    int devices = 0;
    OK(cuda().cuDeviceGetCount(&devices));
    if (devices < 2)
        GTEST_SKIP() << "one device";
    mirror here;
    const std::size_t n = physical() / 4;
    ASSERT_NO_FATAL_FAILURE(here.allocate(n, 4));
    CUcontext other = nullptr;
    CUdeviceptr there = 0;
    OK(cuda().cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuda().cuCtxPushCurrent(other));
    OK(cuda().cuMemAlloc(&there, n));
    OK(cuda().cuCtxPopCurrent(nullptr));
    OK(cuda().cuMemcpyPeer(there, other, here.at(), context, n));
    OK(cuda().cuMemsetD8(here.at(), 0, n));
    OK(cuda().cuCtxSynchronize());
    OK(cuda().cuMemcpyPeerAsync(here.at(), context, there, other, n, nullptr));
    OK(cuda().cuCtxSynchronize());
    ASSERT_NO_FATAL_FAILURE(here.check());
    OK(cuda().cuCtxPushCurrent(other));
    OK(cuda().cuMemFree(there));
    OK(cuda().cuCtxPopCurrent(nullptr));
    OK(cuda().cuDevicePrimaryCtxRelease(1));
    ASSERT_NO_FATAL_FAILURE(here.free());
}

using Graphs = Cuda;

TEST_F(Graphs, DoTheSameEachTimeOnMemoryBeyondTheBudget)
{
    const std::size_t n =
        (beyond() ? physical() + physical() / 4 : physical() / 2) / 4;
    CUstream stream = nullptr;
    CUdeviceptr at = 0;
    OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuda().cuMemAlloc(&at, n * 4));
    OK(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(fill(at, n, 9, stream));
    OK(add(at, n, 1, stream));
    OK(cuda().cuMemcpyDtoDAsync(at, at + n * 4 - 4096, 4096, stream));
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuda().cuStreamEndCapture(stream, &graph));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; ++round) {
        OK(cuda().cuMemsetD8(at, 0, n * 4));
        OK(cuda().cuCtxSynchronize());
        OK(cuda().cuGraphLaunch(exec, stream));
        OK(cuda().cuStreamSynchronize(stream));
        std::vector<std::uint32_t> got(n);
        OK(cuda().cuMemcpyDtoH(got.data(), at, n * 4));
        for (std::size_t i = 0; i < n; ++i)
            ASSERT_EQ(got[i], pattern(9, i < 1024 ? n - 1024 + i : i) + 1);
    }
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
    OK(cuda().cuMemFree(at));
    OK(cuda().cuStreamDestroy(stream));
}

class Random : public Cuda
{
protected:
    static constexpr int threads = 4;
    static constexpr int operations = repeats(10000);

    static std::size_t chunks(std::size_t bytes)
    {
        return (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
    }

    void work(unsigned course)
    {
        OK(cuda().cuCtxSetCurrent(context));
        CUstream stream = nullptr;
        OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        std::mt19937 random(course);
        std::vector<mirror> held;
        std::size_t bytes = 0;
        // All threads together stay at three quarters of the reachable memory,
        // counted in chunks, since memory outside VRAM comes in those.
        const std::size_t most = reachable() * 3 / 4 / threads;
        auto any = [&]() -> mirror & { return held[random() % held.size()]; };
        for (int i = 0; i < operations / threads; ++i) {
            const auto what = static_cast<unsigned>(random() % 100);
            if (held.size() < 2 || what < 8) {
                std::size_t size = 256 + random() % (physical() / 16);
                if (bytes + chunks(size) > most) {
                    if (held.size() < 2)
                        size = 4096;
                    else
                        continue;
                }
                mirror fresh;
                ASSERT_NO_FATAL_FAILURE(
                    fresh.allocate(size, static_cast<std::uint32_t>(random()),
                                   random() % 4 ? nullptr : stream));
                bytes += chunks(size);
                held.push_back(std::move(fresh));
            } else if (what < 14) {
                mirror &one = any();
                OK(cuda().cuStreamSynchronize(stream));
                ASSERT_NO_FATAL_FAILURE(one.check());
                bytes -= chunks(one.bytes());
                ASSERT_NO_FATAL_FAILURE(one.free());
                std::swap(one, held.back());
                held.pop_back();
            } else if (what < 30) {
                mirror &one = any();
                const auto value = static_cast<std::uint32_t>(random());
                OK(add(one.at(), one.bytes() / 4, value, stream));
                one.add(value);
            } else if (what < 36) {
                mirror &one = any();
                OK(cuda().cuStreamSynchronize(stream));
                ASSERT_NO_FATAL_FAILURE(one.check(random));
            } else {
                const std::size_t first = random() % held.size();
                const std::size_t second =
                    (first + 1 + random() % (held.size() - 1)) % held.size();
                ASSERT_NO_FATAL_FAILURE(random_copy(held[first], held[second],
                                                    random, stream, false))
                    << i;
            }
        }
        OK(cuda().cuStreamSynchronize(stream));
        for (mirror &one : held) {
            ASSERT_NO_FATAL_FAILURE(one.check());
            ASSERT_NO_FATAL_FAILURE(one.free());
        }
        OK(cuda().cuStreamDestroy(stream));
    }
};

TEST_F(Random, ThousandsOfOperationsOnFourThreadsLeaveEveryByteRight)
{
    std::size_t before = 0, after = 0, total = 0;
    OK(cuda().cuMemGetInfo(&before, &total));
    std::vector<std::thread> all;
    for (unsigned i = 0; i < threads; ++i)
        all.emplace_back([this, i] { work(seed() + 1000 + i); });
    for (std::thread &one : all)
        one.join();
    OK(cuda().cuCtxSynchronize());
    OK(cuda().cuMemGetInfo(&after, &total));
    // Behind a limit and in simulation every byte comes back.
    // Elsewhere others come and go as well.
    if (!cuda().simulated && std::getenv("EMUV_TEST_TOTAL") == nullptr)
        return;
    EXPECT_EQ(after, before);
}

} // namespace
} // namespace harness

// SPDX-License-Identifier: GPL-2.0-or-later
// A program whose own allocator divides a few large allocations, and reports
// what it hands out and takes back, as PyTorch's does. Parts that are handed
// out keep their bytes, whatever becomes of the rest.
#include "fixture.hpp"

#include <emuv/advice.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include <dlfcn.h>

namespace harness {
namespace {

class Suballocations : public Cuda
{
protected:
    struct part
    {
        std::size_t bytes = 0;
        std::uint32_t seed = 0; // of what was written there
    };

    void SetUp() override
    {
        Cuda::SetUp();
        if (2 * physical() > reachable())
            GTEST_SKIP() << "more than can be had here";
        void *const library =
            dlopen(EMUV_CACHING_ALLOCATOR, RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library, nullptr) << dlerror();
        report_ = reinterpret_cast<decltype(report_)>(dlsym(library, "report"));
        ASSERT_NE(report_, nullptr);
        heard_ = report_(0, 0, false);
        OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuda().cuMemAlloc(&sum_, 8));
        segment_bytes = physical() / 2;
        for (CUdeviceptr &each : segments) {
            OK(cuda().cuMemAlloc(&each, segment_bytes));
            // It is the program's own, as it divides it at once.
            tell(each, segment_bytes);
            tell(each, -static_cast<std::int64_t>(segment_bytes));
        }
    }
    void TearDown() override
    {
        for (const CUdeviceptr each : segments)
            if (each != 0)
                OK(cuda().cuMemFree(each));
        if (sum_ != 0)
            OK(cuda().cuMemFree(sum_));
        if (stream != nullptr)
            OK(cuda().cuStreamDestroy(stream));
        Cuda::TearDown();
    }

    void tell(CUdeviceptr at, auto signed_bytes)
    {
        const auto bytes = static_cast<std::int64_t>(signed_bytes);
        heard_ += bytes;
        EXPECT_EQ(report_(at, bytes, ++told_ % 2 == 0), heard_)
            << "whoever listens is told as before";
    }
    // The first free bytes of a segment from a place on; 0: there are none.
    CUdeviceptr find(CUdeviceptr segment, std::size_t bytes) const
    {
        CUdeviceptr at = segment;
        for (auto each = parts.lower_bound(segment);
             each != parts.end() && each->first < segment + segment_bytes &&
             each->first - at < bytes;
             ++each)
            at = each->first + each->second.bytes;
        return at + bytes <= segment + segment_bytes ? at : 0;
    }
    void hand_out(CUdeviceptr at, std::size_t bytes)
    {
        parts[at].bytes = bytes;
        tell(at, bytes);
    }
    void take_back(CUdeviceptr at)
    {
        tell(at, -static_cast<std::int64_t>(parts[at].bytes));
        parts.erase(at);
    }
    void write(CUdeviceptr at, std::uint32_t with)
    {
        parts[at].seed = with;
        OK(fill(at, parts[at].bytes / 4, with, stream));
    }
    void check(CUdeviceptr at, const part &of)
    {
        std::vector<std::uint32_t> words(of.bytes / 4);
        fill_words(words.data(), words.size(), of.seed);
        const std::uint64_t expected = sum_of_words(words.data(), words.size());
        std::uint64_t sum = 0;
        OK(cuda().cuMemsetD8Async(sum_, 0, 8, stream));
        OK(checksum(at, of.bytes / 4, sum_, stream));
        OK(cuda().cuMemcpyDtoHAsync(&sum, sum_, 8, stream));
        OK(cuda().cuStreamSynchronize(stream));
        EXPECT_EQ(sum, expected) << "at " << at << ", written with " << of.seed;
    }
    void check_all()
    {
        for (const auto &[at, each] : parts)
            ASSERT_NO_FATAL_FAILURE(check(at, each));
    }
    // Other memory is used, so that what nobody uses leaves VRAM.
    void use_others(CUdeviceptr but)
    {
        for (int round = 0; round < 6; ++round)
            for (const auto &[at, each] : parts)
                if (at != but)
                    OK(add(at, each.bytes / 4, 0, stream));
        OK(cuda().cuStreamSynchronize(stream));
    }
    // A part, in use, of each segment but the first.
    void fill_others()
    {
        for (CUdeviceptr each : segments)
            if (each != segments[0]) {
                hand_out(each, segment_bytes / 2);
                ASSERT_NO_FATAL_FAILURE(write(each, next_++));
            }
    }

    CUstream stream = nullptr;
    std::size_t segment_bytes = 0;
    CUdeviceptr segments[4] = {};
    std::map<CUdeviceptr, part> parts; // handed out
    std::uint32_t next_ = 1;

private:
    std::int64_t (*report_)(unsigned long long, std::int64_t, bool) = nullptr;
    std::int64_t heard_ = 0;
    unsigned told_ = 0;
    CUdeviceptr sum_ = 0;
};

} // namespace

// The library's own answer, where there is one, shows that it hears of it.
TEST_F(Suballocations, AreFreedOnceTheyAreTakenBack)
{
    const std::string move =
        std::getenv("EMUV_MOVE") ? std::getenv("EMUV_MOVE") : "0";
    const char *const cached = std::getenv("EMUV_CACHED");
    const bool hears =
        move != "0" && (!cached || std::string(cached) == "free");
    const CUdeviceptr at = segments[1] + segment_bytes / 2;
    hand_out(segments[1], segment_bytes / 2);
    hand_out(at, segment_bytes / 2);
    ASSERT_NO_FATAL_FAILURE(write(segments[1], 1));
    ASSERT_NO_FATAL_FAILURE(write(at, 2));
    std::uint64_t key = 0;
    const int result = emuv_advice_register(
        &key, reinterpret_cast<const void *>(at), segment_bytes / 2, 0);
    if (!emuv_advice_is_there())
        GTEST_SKIP() << "nobody listens";
    ASSERT_EQ(result, EMUV_ADVICE_OK);
    emuv_advice_place place{};
    EXPECT_EQ(emuv_advice_where(key, &place), EMUV_ADVICE_OK);
    take_back(at);
    ASSERT_NO_FATAL_FAILURE(write(segments[1], 3));
    EXPECT_EQ(emuv_advice_where(key, &place),
              hears ? EMUV_ADVICE_FREED : EMUV_ADVICE_OK);
    EXPECT_EQ(emuv_advice_forget(key), EMUV_ADVICE_OK);
}

TEST_F(Suballocations, KeepTheirBytesWhateverIsTakenBack)
{
    std::mt19937 random(41 + seed());
    // From less than a unit up to most of a segment, in steps of 512 bytes.
    const auto size = [&] {
        const std::size_t most = segment_bytes >> random() % 6;
        return std::max<std::size_t>(most / 2 + random() % (most / 2), 512) /
               512 * 512;
    };
    const auto any = [&] {
        auto one = parts.begin();
        std::advance(one, random() % parts.size());
        return one->first;
    };
    for (int step = 0; step < repeats(400); ++step) {
        const CUdeviceptr segment = segments[random() % 4];
        const std::size_t bytes = size();
        if (const CUdeviceptr at = find(segment, bytes); at != 0) {
            hand_out(at, bytes);
            ASSERT_NO_FATAL_FAILURE(write(at, next_++));
        } else if (!parts.empty()) {
            const CUdeviceptr gone = any();
            const part was = parts[gone];
            take_back(gone);
            // The same again at once: it is as if nothing had been said.
            if (step % 3 == 0) {
                tell(gone, was.bytes);
                parts[gone] = was;
            }
        }
        if (!parts.empty())
            OK(add(any(), 1, 0, stream));
        if (!parts.empty() && step % 4 == 0) {
            const CUdeviceptr one = any();
            ASSERT_NO_FATAL_FAILURE(check(one, parts[one]));
        }
    }
    ASSERT_NO_FATAL_FAILURE(check_all());
}

// A graph uses what was handed out and taken back while it was captured.
TEST_F(Suballocations, OfACaptureAreUsedByItsGraph)
{
    ASSERT_NO_FATAL_FAILURE(fill_others());
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    const CUdeviceptr at = segments[0];
    const part inside{segment_bytes / 2, 77};
    OK(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    hand_out(at, inside.bytes);
    ASSERT_NO_FATAL_FAILURE(write(at, inside.seed));
    take_back(at);
    OK(cuda().cuStreamEndCapture(stream, &graph));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; ++round) {
        OK(cuda().cuGraphLaunch(exec, stream));
        ASSERT_NO_FATAL_FAILURE(use_others(at));
        ASSERT_NO_FATAL_FAILURE(check(at, inside));
    }
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
    ASSERT_NO_FATAL_FAILURE(check_all());
}

// Work that is given memory uses it, in spite of what was said of that.
TEST_F(Suballocations, CountOnceWorkIsGivenThem)
{
    ASSERT_NO_FATAL_FAILURE(fill_others());
    const CUdeviceptr at = segments[0];
    const part written{segment_bytes / 2, 78};
    hand_out(at, written.bytes);
    hand_out(at + written.bytes, written.bytes);
    ASSERT_NO_FATAL_FAILURE(write(at + written.bytes, 79));
    take_back(at);
    ASSERT_NO_FATAL_FAILURE(use_others(at));
    for (int round = 0; round < 3; ++round) {
        OK(fill(at, written.bytes / 4, written.seed, stream));
        ASSERT_NO_FATAL_FAILURE(use_others(at));
        ASSERT_NO_FATAL_FAILURE(check(at, written));
    }
    ASSERT_NO_FATAL_FAILURE(check_all());
}

} // namespace harness

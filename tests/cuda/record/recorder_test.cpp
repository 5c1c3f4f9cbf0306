// SPDX-License-Identifier: GPL-2.0-or-later
// The time that recording takes is not the program's own on a tape, and
// recording disturbs no capture.
#include "base/captures.hpp"
#include "base/thread.hpp"
#include "idle_driver.hpp"
#include "record/recorder.hpp"
#include "tape.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

// When the driver's last call for the recorder ended.
std::uint64_t last_call;
CUstreamCaptureMode mode;
int queries;
int unsafe_calls; // that would end another thread's capture
int records;
bool captures_at_query;

CUresult took_time()
{
    usleep(2000);
    last_call = now_ns();
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        unsafe_calls++;
    return CUDA_SUCCESS;
}

driver slow_driver()
{
    driver calls = idle_driver();
    calls.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode *with) {
        std::swap(mode, *with);
        return CUDA_SUCCESS;
    };
    calls.cuEventCreate = [](CUevent *event, unsigned) {
        static std::uintptr_t next = 1;
        *event = reinterpret_cast<CUevent>(next++);
        return took_time();
    };
    calls.cuEventRecord = [](CUevent, CUstream) {
        records++;
        return took_time();
    };
    calls.cuEventQuery = [](CUevent) {
        queries++;
        if (captures_at_query)
            open_captures++; // as another thread would
        return took_time();
    };
    calls.cuEventElapsedTime = [](float *ms, CUevent, CUevent) {
        *ms = 1;
        return CUDA_SUCCESS;
    };
    calls.cuFuncGetParamInfo = [](CUfunction, std::size_t, std::size_t *,
                                  std::size_t *) {
        return CUDA_ERROR_INVALID_VALUE;
    };
    calls.cuKernelGetParamInfo = [](CUkernel, std::size_t, std::size_t *,
                                    std::size_t *) {
        return CUDA_ERROR_INVALID_VALUE;
    };
    calls.cuFuncGetName = [](const char **name, CUfunction) {
        *name = "k";
        return CUDA_SUCCESS;
    };
    return calls;
}

class Recorder : public testing::Test
{
protected:
    Recorder() : calls_(slow_driver()), to_(calls_, graphs_, out_)
    {
        std::string made =
            (std::filesystem::temp_directory_path() / "emuv-tape-XXXXXX")
                .string();
        if (mkdtemp(made.data()) == nullptr)
            std::abort();
        folder_ = made;
        EXPECT_EQ(out_.open((folder_ / "tape").c_str()), 0);
        mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        queries = unsafe_calls = records = 0;
        captures_at_query = false;
    }
    ~Recorder() override
    {
        open_captures = 0;
        std::filesystem::remove_all(folder_);
    }

    /// A launch, begun and ended.
    /// @return when the program made it
    std::uint64_t launch()
    {
        const std::uint64_t entered = now_ns();
        recorder::launching one;
        to_.begin_launch(one, nullptr, {1, 1, 1, 1, 1, 1, 0}, stream_, nullptr,
                         nullptr);
        recorder::moment when{now_ns(), 0, entered};
        when.end = when.begin;
        to_.end_launch(when, one, stream_, CUDA_SUCCESS);
        return entered;
    }

    emuv::tape::tape read()
    {
        EXPECT_TRUE(to_.finish());
        emuv::tape::tape out;
        emuv::tape::wrong error;
        EXPECT_TRUE(
            emuv::tape::read_file((folder_ / "tape").string(), out, error))
            << error.why;
        return out;
    }

    const driver calls_;
    const graph_calls graphs_{};
    tape_writer out_;
    recorder to_;
    std::filesystem::path folder_;
    const CUstream stream_ = reinterpret_cast<CUstream>(0x40);
};

// A launch that is given these values.
void launch_with(recorder &to, std::vector<CUdeviceptr> values, CUstream stream)
{
    std::size_t bytes = values.size() * sizeof values[0];
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, values.data(),
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    recorder::launching one;
    to.begin_launch(one, nullptr, {1, 1, 1, 1, 1, 1, 0}, stream, nullptr,
                    extra);
    const std::uint64_t now = now_ns();
    to.end_launch({now, now}, one, stream, CUDA_SUCCESS);
}

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
constexpr CUdeviceptr memory = 0x7f0000000000;
using emuv::tape::code;
using emuv::tape::memory_kind;
using emuv::tape::place;

TEST_F(Recorder, NamesThePartThatAnAddressIsIn)
{
    const std::uint64_t now = now_ns();
    to_.allocated({now, now}, memory_kind::device, memory, 64 * MiB, nullptr);
    to_.handed_out(memory, 2 * MiB);
    to_.handed_out(memory + 8 * MiB, 4 * MiB);
    launch_with(to_, {memory + 4096, memory + 9 * MiB, memory + 4 * MiB},
                stream_);
    to_.taken_back(memory);
    to_.taken_back(memory + MiB); // nothing begins there
    launch_with(to_, {memory + 4096}, stream_);
    const emuv::tape::tape is = read();
    ASSERT_EQ(is.allocations.size(), 3u);
    EXPECT_EQ(is.allocations[2].kind, memory_kind::part);
    EXPECT_EQ(is.allocations[2].of, (place{0, 8 * MiB}));
    EXPECT_EQ(is.allocations[2].bytes, 4 * MiB);
    EXPECT_NE(is.allocations[1].gone, SIZE_MAX);
    EXPECT_EQ(is.allocations[2].gone, SIZE_MAX);
    EXPECT_EQ(is.names, (std::vector<place>{
                            {1, 4096}, {2, MiB}, {0, 4 * MiB}, {0, 4096}}));
}

TEST_F(Recorder, EndsPartsWithWhatTheyAreOfAndWhereAnotherBegins)
{
    const std::uint64_t now = now_ns();
    const recorder::moment when{now, now};
    to_.allocated(when, memory_kind::device, memory, 64 * MiB, nullptr);
    to_.handed_out(memory, 8 * MiB);
    to_.handed_out(memory + 16 * MiB, 8 * MiB);
    to_.handed_out(memory + 4 * MiB, 16 * MiB); // over both
    to_.handed_out(memory + 60 * MiB, 8 * MiB); // beyond its end
    to_.freed(when, to_.leaves(memory, nullptr), nullptr);
    to_.allocated(when, memory_kind::device, memory, 2 * MiB, nullptr);
    to_.handed_out(memory, MiB); // of a small one
    const emuv::tape::tape is = read();
    ASSERT_EQ(is.allocations.size(), 5u);
    for (std::size_t i = 0; i < 4; i++)
        EXPECT_NE(is.allocations[i].gone, SIZE_MAX) << i;
    EXPECT_GT(is.allocations[0].gone, is.allocations[3].gone);
    EXPECT_EQ(is.allocations[4].kind, memory_kind::device);
}

TEST_F(Recorder, LeavesOutNumbersThatLookLikeAddresses)
{
    // By a proof the second value is no pointer. It holds for one launch. In
    // others there is no proof, or it relies on an address that is nowhere.
    static bool proven;
    static CUdeviceptr base;
    const auto reads = [](CUfunction, void **, void **extra, work &out) {
        const auto *const values = static_cast<const CUdeviceptr *>(extra[1]);
        out.add(values[0], true);
        out.add(values[1], false);
        out.trusted = true;
        out.proven = proven;
        out.pointers_are_all = true;
        out.rely_on(base);
    };
    tape_writer file;
    const auto path = folder_ / "proven";
    ASSERT_EQ(file.open(path.c_str()), 0);
    recorder to(calls_, graphs_, file, reads);
    const std::uint64_t now = now_ns();
    to.allocated({now, now}, memory_kind::device, memory, MiB, nullptr);
    const auto launch = [&](bool is_proven, CUdeviceptr relies_on) {
        proven = is_proven;
        base = relies_on;
        launch_with(to, {memory, memory + 4096}, stream_);
    };
    launch(true, memory);
    launch(false, memory);
    launch(true, memory + 64 * MiB);
    ASSERT_TRUE(to.finish());
    emuv::tape::tape is;
    emuv::tape::wrong error;
    ASSERT_TRUE(emuv::tape::read_file(path.string(), is, error)) << error.why;
    EXPECT_EQ(is.names, (std::vector<place>{
                            {0, 0}, {0, 0}, {0, 4096}, {0, 0}, {0, 4096}}));
}

TEST_F(Recorder, NamesNoPartOfWhatWasThereBefore)
{
    const std::uint64_t now = now_ns();
    const recorder::moment when{now, now};
    to_.allocated(when, memory_kind::device, memory, 8 * MiB, nullptr);
    to_.handed_out(memory, 8 * MiB);
    to_.context_goes(); // nobody frees it
    to_.allocated(when, memory_kind::device, memory, 8 * MiB, nullptr);
    launch_with(to_, {memory + 4096}, stream_);
    const emuv::tape::tape is = read();
    EXPECT_NE(is.allocations[1].gone, SIZE_MAX);
    EXPECT_EQ(is.names, (std::vector<place>{{2, 4096}}));
}

TEST_F(Recorder, LeavesItsOwnTimeOutOfTheProgramsOwn)
{
    launch();
    const std::uint64_t first = last_call;
    const std::uint64_t second = launch(); // asks for times, and is timed
    const emuv::tape::tape is = read();
    ASSERT_EQ(is.steps.size(), 2u);
    EXPECT_LE(is.steps[1].gap, second - first);
}

TEST_F(Recorder, LeavesTheTimeOfItsQuestionsOutBehindAWaitingCopy)
{
    launch();
    const auto copied = now_ns();
    to_.copied({copied, copied}, emuv::tape::copy_kind::to_host, true, stream_,
               0, 0, 64);
    const std::uint64_t asked = last_call;
    ASSERT_GT(asked, copied);
    const std::uint64_t second = launch();
    const emuv::tape::tape is = read();
    ASSERT_EQ(is.steps.size(), 3u);
    EXPECT_LE(is.steps[2].gap, second - asked);
}

TEST_F(Recorder, CallsTheDriverSoThatNoCaptureNotices)
{
    launch();
    to_.synchronized({now_ns(), now_ns()}, emuv::tape::wait_kind::context,
                     nullptr, nullptr);
    EXPECT_GT(queries, 0);
    EXPECT_GT(records, 0);
    EXPECT_EQ(unsafe_calls, 0);
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(Recorder, AsksNoMoreOnceAnotherThreadHasBegunACapture)
{
    for (int i = 0; i < 4; i++)
        launch();
    queries = 0;
    captures_at_query = true;
    to_.synchronized({now_ns(), now_ns()}, emuv::tape::wait_kind::context,
                     nullptr, nullptr);
    EXPECT_EQ(queries, 1);
    // Beside a capture nothing is timed.
    records = 0;
    launch();
    EXPECT_EQ(records, 0);
    open_captures = 0;
    captures_at_query = false;
    to_.synchronized({now_ns(), now_ns()}, emuv::tape::wait_kind::context,
                     nullptr, nullptr);
    EXPECT_EQ(read().timed, 4u);
}

TEST_F(Recorder, EndsNoTimingBesideACaptureThatBeganMeanwhile)
{
    recorder::launching one;
    to_.begin_launch(one, nullptr, {1, 1, 1, 1, 1, 1, 0}, stream_, nullptr,
                     nullptr);
    ASSERT_TRUE(one.timed);
    records = 0;
    open_captures = 1;
    to_.end_launch({now_ns(), now_ns()}, one, stream_, CUDA_SUCCESS);
    EXPECT_EQ(records, 0);
    open_captures = 0;
    const emuv::tape::tape is = read();
    EXPECT_EQ(is.steps.size(), 1u);
    EXPECT_EQ(is.timed, 0u);
}

} // namespace

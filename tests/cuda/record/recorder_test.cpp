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

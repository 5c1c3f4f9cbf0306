// SPDX-License-Identifier: GPL-2.0-or-later
// The captures that a program has open.
#include "base/captures.hpp"
#include "hooks/fixture.hpp"

using namespace emuv::cuda;

namespace {

class Captures : public Hooks
{
protected:
    Captures()
    {
        result = CUDA_SUCCESS;
        EMUV_ANSWER(cuStreamBeginCapture_v2, [](CUstream, CUstreamCaptureMode) {
            seen = open_captures;
            return result;
        });
        EMUV_ANSWER(cuStreamEndCapture,
                    [](CUstream, CUgraph *) { return result; });
    }

    static CUresult begin(std::uintptr_t stream)
    {
        return cuStreamBeginCapture_v2(number<CUstream>(stream),
                                       CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    static CUresult end(std::uintptr_t stream)
    {
        CUgraph graph = nullptr;
        return cuStreamEndCapture(number<CUstream>(stream), &graph);
    }

    static inline CUresult result; // of the driver
    static inline unsigned seen;   // as the driver begins one
};

} // namespace

TEST_F(Captures, AreOpenFromBeforeTheirBeginUntilTheirEnd)
{
    EXPECT_EQ(begin(1), CUDA_SUCCESS);
    EXPECT_EQ(seen, 1U);
    EXPECT_EQ(begin(2), CUDA_SUCCESS);
    EXPECT_EQ(open_captures, 2U);
    EXPECT_EQ(end(1), CUDA_SUCCESS);
    EXPECT_EQ(open_captures, 1U);
    EXPECT_EQ(end(2), CUDA_SUCCESS);
    EXPECT_EQ(open_captures, 0U);
}

TEST_F(Captures, ThatDoNotBeginAreNotOpen)
{
    result = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(begin(1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(seen, 1U) << "an allocation meanwhile may be its";
    EXPECT_EQ(open_captures, 0U);
}

TEST_F(Captures, ThatHaveFailedEndAllTheSame)
{
    EXPECT_EQ(begin(1), CUDA_SUCCESS);
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    EXPECT_EQ(end(1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(open_captures, 0U);
}

TEST_F(Captures, ThatNobodyHasBegunEndNone)
{
    EXPECT_EQ(begin(1), CUDA_SUCCESS);
    EXPECT_EQ(end(2), CUDA_SUCCESS);
    EXPECT_EQ(open_captures, 1U);
    EXPECT_EQ(end(1), CUDA_SUCCESS);
    EXPECT_EQ(end(1), CUDA_SUCCESS);
    EXPECT_EQ(open_captures, 0U);
}

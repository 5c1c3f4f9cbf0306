// SPDX-License-Identifier: GPL-2.0-or-later
// Contexts that end, and the memory in them.
#include "hooks/fixture.hpp"

using namespace emuv::cuda;

namespace {

class Contexts : public Hooks
{
protected:
    Contexts()
    {
        result = CUDA_SUCCESS;
        alive = 1;
        EMUV_ANSWER(cuCtxDestroy_v2, [](CUcontext) { return result; });
        EMUV_ANSWER(cuCtxDetach, [](CUcontext) { return result; });
        EMUV_ANSWER(cuCtxAttach, [](CUcontext *out, unsigned) {
            *out = number<CUcontext>(0x10);
            return result;
        });
        EMUV_ANSWER(cuDevicePrimaryCtxRetain, [](CUcontext *out, CUdevice) {
            *out = number<CUcontext>(0x10);
            return CUDA_SUCCESS;
        });
        EMUV_ANSWER(cuDevicePrimaryCtxRelease_v2,
                    [](CUdevice) { return result; });
        EMUV_ANSWER(cuDevicePrimaryCtxReset_v2,
                    [](CUdevice) { return result; });
        ours_.calls.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned *flags,
                                                    int *is_alive) {
            *flags = 0;
            *is_alive = alive;
            return CUDA_SUCCESS;
        };
    }

    void allocate()
    {
        CUdeviceptr at = 0;
        ASSERT_EQ(table_.allocate(&at, 8 * MiB), CUDA_SUCCESS);
        ASSERT_EQ(used(), 8 * MiB);
    }
    std::uint64_t used() const { return limits_.read().physical_used_bytes; }

    const CUcontext context_ = number<CUcontext>(0x10);
    static inline CUresult result; // of the driver
    static inline int alive;       // the primary context
};

} // namespace

TEST_F(Contexts, ThatAreDestroyedGiveTheirMemoryBack)
{
    ASSERT_NO_FATAL_FAILURE(allocate());
    EXPECT_EQ(cuCtxDestroy_v2(number<CUcontext>(0x11)), CUDA_SUCCESS);
    EXPECT_EQ(used(), 8 * MiB) << "it was another one";
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Contexts, ThatAreNotDestroyedKeepTheirMemory)
{
    ASSERT_NO_FATAL_FAILURE(allocate());
    result = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(used(), 8 * MiB);
}

TEST_F(Contexts, ThatSomebodyHoldsStillKeepTheirMemory)
{
    ASSERT_NO_FATAL_FAILURE(allocate());
    CUcontext held = nullptr;
    ASSERT_EQ(cuCtxAttach(&held, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxDetach(context_), CUDA_SUCCESS);
    EXPECT_EQ(used(), 8 * MiB);
    // A detach that fails leaves it held.
    ASSERT_EQ(cuCtxAttach(&held, 0), CUDA_SUCCESS);
    result = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(cuCtxDetach(context_), CUDA_ERROR_INVALID_VALUE);
    result = CUDA_SUCCESS;
    EXPECT_EQ(cuCtxDetach(context_), CUDA_SUCCESS);
    EXPECT_EQ(used(), 8 * MiB);
    EXPECT_EQ(cuCtxDetach(context_), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Contexts, ThatArePrimaryGoWithTheLastWhoHoldsThemOrAReset)
{
    ASSERT_NO_FATAL_FAILURE(allocate());
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    EXPECT_EQ(used(), 8 * MiB) << "somebody else holds it";
    EXPECT_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0U);
    ASSERT_NO_FATAL_FAILURE(allocate());
    EMUV_ANSWER(cuDevicePrimaryCtxRelease_v2, [](CUdevice) {
        alive = 0;
        return CUDA_SUCCESS;
    });
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0U);
}

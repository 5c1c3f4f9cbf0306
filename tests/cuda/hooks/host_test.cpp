// SPDX-License-Identifier: GPL-2.0-or-later
// Host memory that the program has pinned, as it is known.
#include "hooks/fixture.hpp"

using namespace emuv::cuda;

namespace {

class HostMemory : public Hooks
{
protected:
    HostMemory()
    {
        ours_.movers = {nullptr};
        result = CUDA_SUCCESS;
        EMUV_ANSWER(cuMemHostAlloc, [](void **at, std::size_t, unsigned) {
            *at = number<void *>(0x10000);
            return result;
        });
        EMUV_ANSWER(cuMemHostRegister_v2,
                    [](void *, std::size_t, unsigned) { return result; });
        EMUV_ANSWER(cuMemFreeHost, [](void *) { return result; });
        EMUV_ANSWER(cuMemHostUnregister, [](void *) { return result; });
    }

    std::size_t known(CUdeviceptr at) const
    {
        return ours_.host.from(at).bytes;
    }

    static inline CUresult result; // of the driver
};

} // namespace

TEST_F(HostMemory, IsKnownUntilItIsFreed)
{
    void *at = nullptr;
    ASSERT_EQ(cuMemHostAlloc(&at, 4096, 0), CUDA_SUCCESS);
    EXPECT_EQ(known(0x10000), 4096U);
    EXPECT_EQ(known(0x10000 + 96), 4000U);
    EXPECT_EQ(cuMemFreeHost(at), CUDA_SUCCESS);
    EXPECT_EQ(known(0x10000), 0U);
    void *const own = number<void *>(0x20000);
    ASSERT_EQ(cuMemHostRegister_v2(own, 100, 0), CUDA_SUCCESS);
    EXPECT_EQ(known(0x20000), 100U);
    EXPECT_EQ(cuMemHostUnregister(own), CUDA_SUCCESS);
    EXPECT_EQ(known(0x20000), 0U);
}

TEST_F(HostMemory, ThatStaysPinnedStaysKnown)
{
    void *const own = number<void *>(0x20000);
    ASSERT_EQ(cuMemHostRegister_v2(own, 100, 0), CUDA_SUCCESS);
    result = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(cuMemHostUnregister(own), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(known(0x20000), 100U);
}

TEST_F(HostMemory, ThatWasNotPinnedIsNotKnown)
{
    void *const own = number<void *>(0x20000);
    result = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT_EQ(cuMemHostRegister_v2(own, 100, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(known(0x20000), 0U);
    // Nor where nothing moves: nobody asks.
    result = CUDA_SUCCESS;
    ours_.movers.clear();
    EXPECT_EQ(cuMemHostRegister_v2(own, 100, 0), CUDA_SUCCESS);
    EXPECT_EQ(known(0x20000), 0U);
}

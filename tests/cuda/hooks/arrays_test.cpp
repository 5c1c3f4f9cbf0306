// SPDX-License-Identifier: GPL-2.0-or-later
// The VRAM that arrays are charged.
#include "hooks/fixture.hpp"

using namespace emuv::cuda;

namespace {

class Arrays : public Hooks
{
protected:
    Arrays()
    {
        next = 0;
        EMUV_ANSWER(cuArrayCreate_v2,
                    [](CUarray *out, const CUDA_ARRAY_DESCRIPTOR *) {
                        *out = number<CUarray>(0x100 + ++next);
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuArray3DCreate_v2,
                    [](CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *) {
                        *out = number<CUarray>(0x100 + ++next);
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuMipmappedArrayCreate,
                    [](CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *,
                       unsigned) {
                        *out = number<CUmipmappedArray>(0x100 + ++next);
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuArrayDestroy, [](CUarray) { return CUDA_SUCCESS; });
        EMUV_ANSWER(cuMipmappedArrayDestroy,
                    [](CUmipmappedArray) { return CUDA_SUCCESS; });
    }

    std::uint64_t charged() const { return limits_.read().physical_used_bytes; }

    static inline std::uintptr_t next;
};

} // namespace

TEST_F(Arrays, AreChargedTheirElementsUntilTheyGo)
{
    CUDA_ARRAY_DESCRIPTOR wanted{};
    wanted.Width = 1000;
    wanted.NumChannels = 4;
    wanted.Format = CU_AD_FORMAT_HALF;
    CUarray line = nullptr;
    CUarray plane = nullptr;
    ASSERT_EQ(cuArrayCreate_v2(&line, &wanted), CUDA_SUCCESS);
    EXPECT_EQ(charged(), 8000U);
    wanted.Height = 10;
    wanted.Format = CU_AD_FORMAT_FLOAT;
    ASSERT_EQ(cuArrayCreate_v2(&plane, &wanted), CUDA_SUCCESS);
    EXPECT_EQ(charged(), 8000U + 160000U);
    EXPECT_EQ(cuArrayDestroy(line), CUDA_SUCCESS);
    EXPECT_EQ(charged(), 160000U);
    EXPECT_EQ(cuArrayDestroy(plane), CUDA_SUCCESS);
    EXPECT_EQ(charged(), 0U);
}

TEST_F(Arrays, WithLevelsAreChargedEachOfThem)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted{};
    wanted.Width = 8;
    wanted.Height = 4;
    wanted.Depth = 2;
    wanted.NumChannels = 1;
    wanted.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    CUmipmappedArray made = nullptr;
    ASSERT_EQ(cuMipmappedArrayCreate(&made, &wanted, 4), CUDA_SUCCESS);
    EXPECT_EQ(charged(), 64U + 8 + 2 + 1);
    EXPECT_EQ(cuMipmappedArrayDestroy(made), CUDA_SUCCESS);
    // Layers are as many on each level.
    wanted.Flags = CUDA_ARRAY3D_LAYERED;
    ASSERT_EQ(cuMipmappedArrayCreate(&made, &wanted, 4), CUDA_SUCCESS);
    EXPECT_EQ(charged(), 64U + 16 + 4 + 2);
    EXPECT_EQ(cuMipmappedArrayDestroy(made), CUDA_SUCCESS);
    EXPECT_EQ(charged(), 0U);
}

TEST_F(Arrays, WithoutMemoryOfTheirOwnAreChargedNothing)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted{};
    wanted.Width = 1000;
    wanted.NumChannels = 1;
    wanted.Format = CU_AD_FORMAT_FLOAT;
    for (const unsigned flag :
         {CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING}) {
        wanted.Flags = flag;
        CUarray made = nullptr;
        ASSERT_EQ(cuArray3DCreate_v2(&made, &wanted), CUDA_SUCCESS);
        EXPECT_EQ(charged(), 0U);
    }
}

TEST_F(Arrays, ThatDoNotFitAreOutOfMemoryAndThatFailAreChargedNothing)
{
    CUDA_ARRAY_DESCRIPTOR wanted{};
    wanted.Width = vram_bytes + 1;
    wanted.NumChannels = 1;
    wanted.Format = CU_AD_FORMAT_SIGNED_INT8;
    CUarray made = nullptr;
    EXPECT_EQ(cuArrayCreate_v2(&made, &wanted), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(next, 0U) << "the driver was not asked";
    EMUV_ANSWER(cuArrayCreate_v2, [](CUarray *, const CUDA_ARRAY_DESCRIPTOR *) {
        return CUDA_ERROR_INVALID_VALUE;
    });
    wanted.Width = 1000;
    EXPECT_EQ(cuArrayCreate_v2(&made, &wanted), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(charged(), 0U);
}

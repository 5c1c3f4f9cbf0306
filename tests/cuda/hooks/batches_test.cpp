// SPDX-License-Identifier: GPL-2.0-or-later
// Copies in batches: those that reach system RAM one by one, and those of
// several dimensions cut at the seam.
#include "hooks/fixture.hpp"

#include <string>
#include <vector>

using namespace emuv::cuda;

namespace {

class Batches : public Hooks
{
protected:
    Batches()
    {
        made.clear();
        batched.clear();
        refused = SIZE_MAX;
        synchronized = 0;
        // Memory that the table does not know is the host's.
        EMUV_ANSWER(cuPointerGetAttribute,
                    [](void *, CUpointer_attribute, CUdeviceptr) {
                        return CUDA_ERROR_INVALID_VALUE;
                    });
        EMUV_ANSWER(cuMemcpyAsync, [](CUdeviceptr, CUdeviceptr, std::size_t,
                                      CUstream) { return make("any"); });
        EMUV_ANSWER(cuMemcpyHtoDAsync_v2,
                    [](CUdeviceptr, const void *, std::size_t, CUstream) {
                        return make("in");
                    });
        EMUV_ANSWER(cuMemcpyDtoHAsync_v2, [](void *, CUdeviceptr, std::size_t,
                                             CUstream) { return make("out"); });
        EMUV_ANSWER(cuStreamSynchronize, [](CUstream) {
            synchronized++;
            return CUDA_SUCCESS;
        });
        EMUV_ANSWER(cuMemcpyBatchAsync,
                    [](CUdeviceptr *, CUdeviceptr *, std::size_t *, std::size_t,
                       CUmemcpyAttributes *, std::size_t *, std::size_t,
                       std::size_t *, CUstream) { return make("batch"); });
        EMUV_ANSWER(cuMemcpy3DBatchAsync,
                    [](std::size_t count, CUDA_MEMCPY3D_BATCH_OP *list,
                       std::size_t *failed, unsigned long long, CUstream) {
                        batched.assign(list, list + count);
                        if (refused >= count)
                            return CUDA_SUCCESS;
                        *failed = refused;
                        return CUDA_ERROR_INVALID_VALUE;
                    });
    }

    static CUresult make(const char *how)
    {
        made.emplace_back(how);
        return made.size() - 1 == refused ? CUDA_ERROR_INVALID_VALUE
                                          : CUDA_SUCCESS;
    }

    CUresult copy(std::vector<CUdeviceptr> to, std::vector<CUdeviceptr> from,
                  CUmemcpySrcAccessOrder order)
    {
        std::vector<std::size_t> sizes(to.size(), 100);
        CUmemcpyAttributes how{};
        how.srcAccessOrder = order;
        std::size_t first = 0;
        return cuMemcpyBatchAsync(to.data(), from.data(), sizes.data(),
                                  to.size(), &how, &first, 1, &failed_,
                                  nullptr);
    }

    static CUDA_MEMCPY3D_BATCH_OP row(CUdeviceptr to, CUdeviceptr from,
                                      std::size_t bytes)
    {
        CUDA_MEMCPY3D_BATCH_OP op{};
        op.dst.type = op.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        op.dst.op.ptr.ptr = to;
        op.src.op.ptr.ptr = from;
        op.extent = {bytes, 1, 1};
        op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        return op;
    }

    std::size_t failed_ = SIZE_MAX;
    static constexpr CUdeviceptr on_host = 0x5000;
    static inline std::vector<std::string> made;
    static inline std::vector<CUDA_MEMCPY3D_BATCH_OP> batched;
    static inline std::size_t refused; // of the copies, by its number
    static inline unsigned synchronized;
};

} // namespace

TEST_F(Batches, WithinVramGoAsTheyAre)
{
    CUdeviceptr at = 0;
    ASSERT_EQ(table_.allocate(&at, 8 * MiB), CUDA_SUCCESS);
    EXPECT_EQ(copy({at, at + 100}, {on_host, at},
                   CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
              CUDA_SUCCESS);
    EXPECT_EQ(made, std::vector<std::string>{"batch"});
    EXPECT_EQ(synchronized, 0U);
}

TEST_F(Batches, ThatReachSystemRamAreMadeOneByOneEachItsWay)
{
    const CUdeviceptr at = allocate_across();
    EXPECT_EQ(copy({at, on_host, at}, {on_host, at, at + 100},
                   CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
              CUDA_SUCCESS);
    EXPECT_EQ(made, (std::vector<std::string>{"in", "out", "any"}));
    EXPECT_EQ(synchronized, 0U);
}

TEST_F(Batches, ThatShallBeOverAtTheReturnAreWaitedFor)
{
    const CUdeviceptr at = allocate_across();
    EXPECT_EQ(copy({at}, {on_host}, CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
              CUDA_SUCCESS);
    EXPECT_EQ(synchronized, 1U);
}

TEST_F(Batches, ThatFailSayAtWhichCopyAndGoNoFurther)
{
    const CUdeviceptr at = allocate_across();
    refused = 1;
    EXPECT_EQ(copy({at, at, at}, {on_host, on_host, on_host},
                   CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(failed_, 1U);
    EXPECT_EQ(made.size(), 2U);
    EXPECT_EQ(synchronized, 0U);
}

TEST_F(Batches, OfSeveralDimensionsAreCutAndAFailureNamesTheProgramsOwn)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    std::vector list{row(seam - 300, on_host, 100),
                     row(seam - 100, on_host, 300),
                     row(on_host, seam + 500, 100)};
    refused = 2; // the second part of the second one
    EXPECT_EQ(
        cuMemcpy3DBatchAsync(list.size(), list.data(), &failed_, 0, nullptr),
        CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(failed_, 1U);
    ASSERT_EQ(batched.size(), 4U);
    EXPECT_EQ(batched[1].dst.op.ptr.ptr, seam - 100);
    EXPECT_EQ(batched[1].extent.width, 100U);
    EXPECT_EQ(batched[2].dst.op.ptr.ptr, seam);
    EXPECT_EQ(batched[2].src.op.ptr.ptr, on_host + 100);
    EXPECT_EQ(batched[2].extent.width, 200U);
    refused = 3;
    failed_ = SIZE_MAX;
    EXPECT_EQ(
        cuMemcpy3DBatchAsync(list.size(), list.data(), &failed_, 0, nullptr),
        CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(failed_, 2U);
}

TEST_F(Batches, OfSeveralDimensionsBecomeTheStreamsAndAreWaitedFor)
{
    const CUdeviceptr at = allocate_across();
    std::vector list{row(at, on_host, 100)};
    list[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    EXPECT_EQ(cuMemcpy3DBatchAsync(1, list.data(), &failed_, 0, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(batched.size(), 1U);
    EXPECT_EQ(batched[0].srcAccessOrder, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
    EXPECT_EQ(list[0].srcAccessOrder,
              CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
    EXPECT_EQ(synchronized, 1U);
}

TEST_F(Batches, ToAnArrayAreCutBetweenItsElements)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    EMUV_ANSWER(cuArray3DGetDescriptor_v2,
                [](CUDA_ARRAY3D_DESCRIPTOR *out, CUarray) {
                    *out = {};
                    out->Format = CU_AD_FORMAT_FLOAT;
                    out->NumChannels = 2;
                    return CUDA_SUCCESS;
                });
    auto op = row(0, seam - 80, 0);
    op.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    op.dst.op.array.array = number<CUarray>(1);
    op.dst.op.array.offset = {5, 0, 0};
    op.extent = {30, 1, 1}; // elements of 8 bytes
    EXPECT_EQ(cuMemcpy3DBatchAsync(1, &op, &failed_, 0, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(batched.size(), 2U);
    EXPECT_EQ(batched[0].extent.width, 10U);
    EXPECT_EQ(batched[0].dst.op.array.offset.x, 5U);
    EXPECT_EQ(batched[1].extent.width, 20U);
    EXPECT_EQ(batched[1].dst.op.array.offset.x, 15U);
    EXPECT_EQ(batched[1].src.op.ptr.ptr, seam);
    // An element that the seam would cut stays whole: the driver answers.
    op.src.op.ptr.ptr = seam - 82;
    EXPECT_EQ(cuMemcpy3DBatchAsync(1, &op, &failed_, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(batched.size(), 1U);
}

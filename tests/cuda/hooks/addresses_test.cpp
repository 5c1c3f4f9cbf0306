// SPDX-License-Identifier: GPL-2.0-or-later
// Answers about addresses in memory that the driver sees as several parts.
#include "hooks/fixture.hpp"

using namespace emuv::cuda;

namespace {

// The driver knows of no memory.
class Addresses : public Hooks
{
protected:
    Addresses()
    {
        EMUV_ANSWER(cuPointerGetAttribute,
                    [](void *, CUpointer_attribute, CUdeviceptr) {
                        return CUDA_ERROR_NOT_FOUND;
                    });
        EMUV_ANSWER(cuMemGetAddressRange_v2,
                    [](CUdeviceptr *, std::size_t *, CUdeviceptr) {
                        return CUDA_ERROR_NOT_FOUND;
                    });
        EMUV_ANSWER(cuPointerSetAttribute,
                    [](const void *, CUpointer_attribute, CUdeviceptr) {
                        return CUDA_ERROR_NOT_FOUND;
                    });
        EMUV_ANSWER(cuIpcGetMemHandle, [](CUipcMemHandle *, CUdeviceptr) {
            return CUDA_ERROR_NOT_FOUND;
        });
    }

    template <typename Value>
    Value ask(CUpointer_attribute which, CUdeviceptr at,
              CUresult expected = CUDA_SUCCESS)
    {
        Value value{};
        EXPECT_EQ(cuPointerGetAttribute(&value, which, at), expected) << which;
        return value;
    }
};

} // namespace

TEST_F(Addresses, OfASplitAllocationNameTheWholeOfIt)
{
    const CUdeviceptr base = allocate_across();
    const CUdeviceptr beyond = base + vram_bytes + 4096;
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
    EXPECT_EQ(cuMemGetAddressRange_v2(&begin, &bytes, beyond), CUDA_SUCCESS);
    EXPECT_EQ(begin, base);
    EXPECT_EQ(bytes, vram_bytes + 32 * MiB);
    EXPECT_EQ(cuMemGetAddressRange_v2(nullptr, nullptr, beyond), CUDA_SUCCESS);
    EXPECT_EQ(
        cuMemGetAddressRange_v2(&begin, &bytes, base + vram_bytes + 32 * MiB),
        CUDA_ERROR_NOT_FOUND)
        << "that is behind it";
}

TEST_F(Addresses, InSystemRamAreTheDevices)
{
    const CUdeviceptr base = allocate_across();
    const CUdeviceptr at = base + vram_bytes + 4096;
    EXPECT_EQ(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at),
              unsigned{CU_MEMORYTYPE_DEVICE});
    EXPECT_EQ(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at), at);
    EXPECT_EQ(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at), 0);
    EXPECT_EQ(ask<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, at),
              number<CUcontext>(0x10));
    EXPECT_EQ(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at),
              base);
    EXPECT_EQ(ask<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at),
              vram_bytes + 32 * MiB);
    EXPECT_EQ(ask<void *>(CU_POINTER_ATTRIBUTE_HOST_POINTER, at,
                          CUDA_ERROR_INVALID_VALUE),
              nullptr);
    ask<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, at, CUDA_ERROR_NOT_FOUND);
}

TEST_F(Addresses, OfOneAllocationHaveANumberThatNoOtherHas)
{
    const CUdeviceptr base = allocate_across();
    const auto buffer = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    const auto first = ask<unsigned long long>(buffer, base);
    EXPECT_EQ(ask<unsigned long long>(buffer, base + vram_bytes), first);
    ASSERT_EQ(table_.free(base), CUDA_SUCCESS);
    const auto second = ask<unsigned long long>(buffer, allocate_across());
    EXPECT_NE(second, first) << "although it may lie there again";
}

TEST_F(Addresses, AreAskedAboutSeveralThingsAtOnce)
{
    EMUV_ANSWER(cuPointerGetAttributes,
                [](unsigned, CUpointer_attribute *, void **data, CUdeviceptr) {
                    *static_cast<unsigned *>(data[0]) = CU_MEMORYTYPE_HOST;
                    return CUDA_SUCCESS;
                });
    unsigned type = 0;
    std::size_t bytes = 0;
    CUpointer_attribute which[]{CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *data[]{&type, &bytes};
    EXPECT_EQ(
        cuPointerGetAttributes(2, which, data, allocate_across() + vram_bytes),
        CUDA_SUCCESS);
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
    EXPECT_EQ(bytes, vram_bytes + 32 * MiB);
    // Of memory that is not ours the driver's answer stands.
    EXPECT_EQ(cuPointerGetAttributes(2, which, data, 0x1234), CUDA_SUCCESS);
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
}

TEST_F(Addresses, OfOurMemoryHaveNoHandleForOthersAndTakeFewAttributes)
{
    const CUdeviceptr at = allocate_across();
    CUipcMemHandle handle{};
    unsigned value = 1;
    EXPECT_EQ(cuIpcGetMemHandle(&handle, at), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuIpcGetMemHandle(&handle, 0x1234), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(cuPointerSetAttribute(
                  &value, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(
        cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at),
        CUDA_ERROR_NOT_FOUND)
        << "the driver answers";
}

// SPDX-License-Identifier: GPL-2.0-or-later
// What the driver answers to bad arguments, as a table: one call a line. Two
// tables, of a driver with and without the library in front, must be equal.
#include "fixture.hpp"

#include <cstdio>
#include <functional>
#include <memory>

namespace harness {
namespace {

using Errors = Cuda;

TEST_F(Errors, AreAllAnswersAndHurtNothing)
{
    const driver &d = cuda();
    CUdeviceptr good = 0, large = 0, freed = 0, none = 0;
    const std::size_t size = 8 * MiB;
    OK(d.cuMemAlloc(&good, 4096));
    OK(d.cuMemAlloc(&large, size));
    OK(d.cuMemAlloc(&freed, size));
    OK(d.cuMemFree(freed));
    std::vector<char> host(4096);
    CUstream stream = nullptr;
    OK(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::size_t number = 0;
    unsigned type = 0;
    void *pointer = nullptr;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAllocationProp no_type = prop;
    no_type.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUDA_MEMCPY2D narrow{};
    narrow.srcMemoryType = CU_MEMORYTYPE_HOST;
    narrow.srcHost = host.data();
    narrow.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    narrow.dstDevice = large;
    narrow.WidthInBytes = 64;
    narrow.Height = 4;
    narrow.srcPitch = 64;
    narrow.dstPitch = 32; // less than a row
    CUDA_MEMCPY2D empty = narrow;
    empty.dstPitch = 64;
    empty.Height = 0;
    CUDA_MEMCPY3D nothing{};
    nothing.srcMemoryType = CU_MEMORYTYPE_HOST;
    nothing.srcHost = host.data();
    nothing.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    nothing.dstDevice = large;
    nothing.WidthInBytes = 64;
    nothing.Height = 1;
    nothing.Depth = 0;
    CUipcMemHandle ipc{};
    const CUdeviceptr wild = 0x1000;

    struct line
    {
        const char *what;
        std::function<CUresult()> call;
    };
    const line lines[] = {
        {"cuMemGetInfo null free",
         [&] { return d.cuMemGetInfo(nullptr, &number); }},
        {"cuMemGetInfo null total",
         [&] { return d.cuMemGetInfo(&number, nullptr); }},
        {"cuMemAlloc null", [&] { return d.cuMemAlloc(nullptr, 4096); }},
        {"cuMemAlloc null large", [&] { return d.cuMemAlloc(nullptr, size); }},
        {"cuMemAlloc zero", [&] { return d.cuMemAlloc(&none, 0); }},
        {"cuMemAlloc huge",
         [&] { return d.cuMemAlloc(&none, ~std::size_t{0}); }},
        {"cuMemAlloc 2^50",
         [&] { return d.cuMemAlloc(&none, std::size_t{1} << 50); }},
        {"cuMemAllocPitch null",
         [&] { return d.cuMemAllocPitch(nullptr, &number, 64, 64, 4); }},
        {"cuMemAllocPitch null pitch",
         [&] { return d.cuMemAllocPitch(&none, nullptr, 64, 64, 4); }},
        {"cuMemAllocPitch zero width",
         [&] { return d.cuMemAllocPitch(&none, &number, 0, 64, 4); }},
        {"cuMemAllocPitch zero height",
         [&] { return d.cuMemAllocPitch(&none, &number, 64, 0, 4); }},
        {"cuMemAllocPitch element 3",
         [&] { return d.cuMemAllocPitch(&none, &number, 64, 64, 3); }},
        {"cuMemAllocManaged null",
         [&] {
             return d.cuMemAllocManaged(nullptr, 4096, CU_MEM_ATTACH_GLOBAL);
         }},
        {"cuMemAllocManaged zero",
         [&] { return d.cuMemAllocManaged(&none, 0, CU_MEM_ATTACH_GLOBAL); }},
        {"cuMemAllocManaged flags",
         [&] { return d.cuMemAllocManaged(&none, 4096, 0); }},
        {"cuMemAllocAsync null",
         [&] { return d.cuMemAllocAsync(nullptr, 4096, stream); }},
        {"cuMemFree null", [&] { return d.cuMemFree(0); }},
        {"cuMemFree wild", [&] { return d.cuMemFree(wild); }},
        {"cuMemFree inside small", [&] { return d.cuMemFree(good + 256); }},
        {"cuMemFree inside large",
         [&] { return d.cuMemFree(large + 4 * MiB); }},
        {"cuMemFree inside large by one",
         [&] { return d.cuMemFree(large + 1); }},
        {"cuMemFree twice", [&] { return d.cuMemFree(freed); }},
        {"cuMemFreeAsync null", [&] { return d.cuMemFreeAsync(0, stream); }},
        {"cuMemFreeAsync wild", [&] { return d.cuMemFreeAsync(wild, stream); }},
        {"cuMemFreeAsync inside large",
         [&] { return d.cuMemFreeAsync(large + 4 * MiB, stream); }},
        {"cuMemGetAddressRange null address",
         [&] { return d.cuMemGetAddressRange(&none, &number, 0); }},
        {"cuMemGetAddressRange wild",
         [&] { return d.cuMemGetAddressRange(&none, &number, wild); }},
        {"cuMemGetAddressRange freed",
         [&] { return d.cuMemGetAddressRange(&none, &number, freed); }},
        {"cuMemGetAddressRange no base",
         [&] { return d.cuMemGetAddressRange(nullptr, &number, large); }},
        {"cuMemGetAddressRange nothing asked",
         [&] { return d.cuMemGetAddressRange(nullptr, nullptr, large); }},
        {"cuPointerGetAttribute null data",
         [&] {
             return d.cuPointerGetAttribute(
                 nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, large);
         }},
        {"cuPointerGetAttribute wild",
         [&] {
             return d.cuPointerGetAttribute(
                 &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, wild);
         }},
        {"cuPointerGetAttribute freed",
         [&] {
             return d.cuPointerGetAttribute(
                 &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, freed);
         }},
        {"cuPointerGetAttribute bad attribute",
         [&] {
             return d.cuPointerGetAttribute(
                 &type, static_cast<CUpointer_attribute>(0), large);
         }},
        {"cuPointerGetAttributes none",
         [&] { return d.cuPointerGetAttributes(0, nullptr, nullptr, large); }},
        {"cuMemcpyHtoD null dst",
         [&] { return d.cuMemcpyHtoD(0, host.data(), 64); }},
        {"cuMemcpyHtoD zero bytes",
         [&] { return d.cuMemcpyHtoD(large, host.data(), 0); }},
        {"cuMemcpyHtoD wild",
         [&] { return d.cuMemcpyHtoD(wild, host.data(), 64); }},
        {"cuMemcpyHtoD past the end",
         [&] { return d.cuMemcpyHtoD(large + size - 32, host.data(), 64); }},
        {"cuMemcpyHtoD freed",
         [&] { return d.cuMemcpyHtoD(freed, host.data(), 64); }},
        {"cuMemcpyDtoH wild",
         [&] { return d.cuMemcpyDtoH(host.data(), wild, 64); }},
        {"cuMemcpyDtoH past the end",
         [&] { return d.cuMemcpyDtoH(host.data(), large + size - 32, 64); }},
        {"cuMemcpyDtoH zero bytes",
         [&] { return d.cuMemcpyDtoH(host.data(), large, 0); }},
        {"cuMemcpyDtoD wild dst",
         [&] { return d.cuMemcpyDtoD(wild, large, 64); }},
        {"cuMemcpyDtoD wild src",
         [&] { return d.cuMemcpyDtoD(large, wild, 64); }},
        {"cuMemcpyDtoD past the end",
         [&] { return d.cuMemcpyDtoD(large + size - 32, large, 64); }},
        {"cuMemcpyHtoDAsync wild",
         [&] { return d.cuMemcpyHtoDAsync(wild, host.data(), 64, stream); }},
        {"cuMemcpyDtoDAsync past the end",
         [&] {
             return d.cuMemcpyDtoDAsync(large + size - 32, large, 64, stream);
         }},
        {"cuMemcpy2D null", [&] { return d.cuMemcpy2D(nullptr); }},
        {"cuMemcpy2D pitch below width", [&] { return d.cuMemcpy2D(&narrow); }},
        {"cuMemcpy2D no rows", [&] { return d.cuMemcpy2D(&empty); }},
        {"cuMemcpy3D null", [&] { return d.cuMemcpy3D(nullptr); }},
        {"cuMemcpy3D no planes", [&] { return d.cuMemcpy3D(&nothing); }},
        {"cuMemsetD8 zero bytes", [&] { return d.cuMemsetD8(large, 0, 0); }},
        {"cuMemsetD8 wild", [&] { return d.cuMemsetD8(wild, 0, 64); }},
        {"cuMemsetD8 past the end",
         [&] { return d.cuMemsetD8(large + size - 32, 0, 64); }},
        {"cuMemsetD16 misaligned",
         [&] { return d.cuMemsetD16(large + 1, 0, 16); }},
        {"cuMemsetD32 misaligned",
         [&] { return d.cuMemsetD32(large + 2, 0, 16); }},
        {"cuMemsetD2D8 pitch below width",
         [&] { return d.cuMemsetD2D8(large, 32, 0, 64, 4); }},
        {"cuMemHostAlloc null",
         [&] { return d.cuMemHostAlloc(nullptr, 4096, 0); }},
        {"cuMemHostAlloc zero",
         [&] { return d.cuMemHostAlloc(&pointer, 0, 0); }},
        {"cuMemFreeHost wild", [&] { return d.cuMemFreeHost(host.data()); }},
        {"cuMemHostRegister null",
         [&] { return d.cuMemHostRegister(nullptr, 4096, 0); }},
        {"cuMemHostRegister zero",
         [&] { return d.cuMemHostRegister(host.data(), 0, 0); }},
        {"cuMemHostUnregister wild",
         [&] { return d.cuMemHostUnregister(host.data()); }},
        {"cuMemCreate null",
         [&] { return d.cuMemCreate(nullptr, size, &prop, 0); }},
        {"cuMemCreate zero",
         [&] { return d.cuMemCreate(&handle, 0, &prop, 0); }},
        {"cuMemCreate odd size",
         [&] { return d.cuMemCreate(&handle, 4096, &prop, 0); }},
        {"cuMemCreate no properties",
         [&] { return d.cuMemCreate(&handle, size, nullptr, 0); }},
        {"cuMemCreate no type",
         [&] { return d.cuMemCreate(&handle, size, &no_type, 0); }},
        {"cuMemCreate flags",
         [&] { return d.cuMemCreate(&handle, size, &prop, 1); }},
        {"cuMemRelease zero", [&] { return d.cuMemRelease(0); }},
        {"cuMemAddressReserve null",
         [&] { return d.cuMemAddressReserve(nullptr, size, 0, 0, 0); }},
        {"cuMemAddressReserve zero",
         [&] { return d.cuMemAddressReserve(&none, 0, 0, 0, 0); }},
        {"cuMemAddressReserve odd alignment",
         [&] { return d.cuMemAddressReserve(&none, size, 3, 0, 0); }},
        {"cuMemAddressFree wild",
         [&] { return d.cuMemAddressFree(2 * MiB, size); }},
        {"cuMemAddressFree of an allocation",
         [&] { return d.cuMemAddressFree(large, size); }},
        {"cuMemUnmap wild", [&] { return d.cuMemUnmap(2 * MiB, size); }},
        {"cuMemUnmap of an allocation",
         [&] { return d.cuMemUnmap(large, size); }},
        {"cuMemSetAccess wild",
         [&] { return d.cuMemSetAccess(2 * MiB, size, &access, 1); }},
        {"cuMemSetAccess no list",
         [&] { return d.cuMemSetAccess(large, size, nullptr, 1); }},
        {"cuMemGetAllocationGranularity null",
         [&] {
             return d.cuMemGetAllocationGranularity(
                 nullptr, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
         }},
        {"cuIpcGetMemHandle null",
         [&] { return d.cuIpcGetMemHandle(nullptr, good); }},
        {"cuIpcGetMemHandle wild",
         [&] { return d.cuIpcGetMemHandle(&ipc, wild); }},
    };

    std::unique_ptr<std::FILE, int (*)(std::FILE *)> table(nullptr,
                                                           std::fclose);
    if (const char *path = std::getenv("EMUV_TEST_ERRORS")) {
        table.reset(std::fopen(path, "w"));
        ASSERT_NE(table, nullptr) << path;
    }
    for (const line &one : lines) {
        const CUresult result = one.call();
        const char *name = nullptr;
        d.cuGetErrorName(result, &name);
        if (table)
            std::fprintf(table.get(), "%s: %s\n", one.what, name ? name : "?");
        EXPECT_NE(result, CUDA_ERROR_NOT_SUPPORTED) << one.what;
        // An answer, not an accident that ends the context.
        ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS) << "after " << one.what;
    }
    // What was only given as a bad argument is still there.
    EXPECT_EQ(d.cuMemcpyDtoH(host.data(), large, 64), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemFree(good), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemFree(large), CUDA_SUCCESS);
    OK(d.cuStreamDestroy(stream));
}

} // namespace
} // namespace harness

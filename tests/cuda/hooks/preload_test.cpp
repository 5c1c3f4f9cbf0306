// SPDX-License-Identifier: GPL-2.0-or-later
// The whole library, preloaded, in front of the simulated driver: what a
// program sees that finds the driver the way CUDA's runtime does. Run by ctest
// with a card of 64 MiB, 32 MiB of it for us, and 64 MiB of system RAM.
#include "base/driver.hpp"
#include "sim/sim.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

// The simulated driver itself, past the library in front of it.
void *simulated()
{
    return dlmopen(LM_ID_BASE, std::getenv("EMUV_LIBCUDA"),
                   RTLD_NOW | RTLD_NOLOAD);
}

std::size_t vram_used()
{
    const auto get = reinterpret_cast<decltype(&emuv_sim_get)>(
        dlsym(simulated(), "emuv_sim_get"));
    return get()->vram_used(0);
}

void *front()
{
    static void *const handle = dlopen("libcuda.so.1", RTLD_NOW);
    return handle;
}

template <typename Function>
Function *look_up(const char *name, Function *)
{
    return reinterpret_cast<Function *>(dlsym(front(), name));
}

#define CU(name) (look_up(#name, static_cast<decltype(::name) *>(nullptr)))

// The program's own handles can be host memory where the store has handles.
bool by_handle()
{
    const char *store = std::getenv("EMUV_STORE");
    return store == nullptr || std::strcmp(store, "pages") != 0;
}

void *procedure(const char *name, int version, cuuint64_t flags = 0)
{
    void *address = nullptr;
    CUdriverProcAddressQueryResult status;
    EXPECT_EQ(CU(cuGetProcAddress_v2)(name, &address, version, flags, &status),
              CUDA_SUCCESS)
        << name;
    return address;
}

// A context on the first device, gone with the test.
class Preload : public ::testing::Test
{
protected:
    void SetUp() override
    {
        ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
        ASSERT_EQ(CU(cuDeviceGet)(&device_, 0), CUDA_SUCCESS);
        ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&context_, device_),
                  CUDA_SUCCESS);
        ASSERT_EQ(CU(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
    }
    void TearDown() override
    {
        EXPECT_EQ(free_bytes(), 96 * MiB) << "something was not given back";
        CU(cuDevicePrimaryCtxRelease_v2)(device_);
    }

    static std::size_t free_bytes()
    {
        std::size_t free = 0;
        std::size_t total = 0;
        EXPECT_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
        EXPECT_EQ(total, 96 * MiB);
        return free;
    }

    static std::vector<unsigned> pattern(std::size_t bytes)
    {
        std::vector<unsigned> words(bytes / sizeof(unsigned));
        for (std::size_t i = 0; i < words.size(); i++)
            words[i] = static_cast<unsigned>(i * 2654435761u);
        return words;
    }

    CUdevice device_ = 0;
    CUcontext context_ = nullptr;
};

} // namespace

TEST_F(Preload, EveryWayToOpenTheDriverFindsTheLibrary)
{
    const std::string real = std::getenv("EMUV_LIBCUDA");
    for (const std::string &name :
         {std::string("libcuda.so.1"), std::string("libcuda.so"), real}) {
        void *handle = dlopen(name.c_str(), RTLD_NOW);
        ASSERT_NE(handle, nullptr) << dlerror();
        EXPECT_NE(dlsym(handle, "emuv_stands_in_front"), nullptr) << name;
        dlclose(handle);
    }
    ASSERT_NE(simulated(), nullptr);
    EXPECT_EQ(dlsym(simulated(), "emuv_stands_in_front"), nullptr);
}

TEST_F(Preload, ProceduresAreOursForWhatIsHookedInTheRightVersion)
{
    const auto own = [](const char *name) { return dlsym(front(), name); };
    EXPECT_EQ(procedure("cuMemAlloc", 12000), own("cuMemAlloc_v2"));
    EXPECT_EQ(procedure("cuMemAlloc", 3020), own("cuMemAlloc_v2"));
    EXPECT_EQ(procedure("cuMemFree", 13000), own("cuMemFree_v2"));
    EXPECT_EQ(procedure("cuGetProcAddress", 12000), own("cuGetProcAddress_v2"));
    EXPECT_EQ(procedure("cuGetProcAddress", 11030), own("cuGetProcAddress"));
    EXPECT_EQ(procedure("cuMemAllocAsync", 12000), own("cuMemAllocAsync"));
    EXPECT_EQ(procedure("cuMemAllocAsync", 12000,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
              own("cuMemAllocAsync_ptsz"));
    // The first version, with four arguments.
    void *address = nullptr;
    ASSERT_EQ(CU(cuGetProcAddress)("cuMemCreate", &address, 12000, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(address, own("cuMemCreate"));
}

TEST_F(Preload, ProceduresThatAreForwardedAreTheDriversOwn)
{
    Dl_info where;
    ASSERT_NE(dladdr(procedure("cuEventCreate", 12000), &where), 0);
    EXPECT_STREQ(where.dli_fname, std::getenv("EMUV_LIBCUDA"));
}

TEST_F(Preload, UnknownProceduresGetTheDriversAnswer)
{
    void *address = &address;
    CUdriverProcAddressQueryResult status;
    const auto real = reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(
        dlsym(simulated(), "cuGetProcAddress_v2"));
    void *theirs = &theirs;
    CUdriverProcAddressQueryResult their_status;
    EXPECT_EQ(
        CU(cuGetProcAddress_v2)("cuNoSuchThing", &address, 12000, 0, &status),
        real("cuNoSuchThing", &theirs, 12000, 0, &their_status));
    EXPECT_EQ(CU(cuGetProcAddress_v2)(nullptr, &address, 12000, 0, &status),
              real(nullptr, &theirs, 12000, 0, &their_status));
}

TEST_F(Preload, MemoryBeyondTheShareHoldsWhatIsWritten)
{
    const std::size_t bytes = 80 * MiB;
    CUdeviceptr pointer = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, bytes), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(), 96 * MiB - bytes);
    const auto words = pattern(bytes);
    std::vector<unsigned> back(words.size());
    ASSERT_EQ(CU(cuMemcpyHtoD_v2)(pointer, words.data(), bytes), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemcpyDtoH_v2)(back.data(), pointer, bytes), CUDA_SUCCESS);
    EXPECT_EQ(words, back);
    // Across the seam, not at a multiple of anything.
    const CUdeviceptr seam = pointer + 32 * MiB - 12345;
    ASSERT_EQ(CU(cuMemsetD8_v2)(seam, 7, 23456), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemcpyDtoH_v2)(back.data(), seam, 23456), CUDA_SUCCESS);
    const auto *set = reinterpret_cast<const unsigned char *>(back.data());
    for (std::size_t i = 0; i < 23456; i++)
        ASSERT_EQ(set[i], 7) << i;
    ASSERT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

// The harness has no use for these kinds; it has the rest.
TEST_F(Preload, CopiesOfTheRarerKindsCrossTheSeam)
{
    constexpr std::size_t pitch = 4096;
    constexpr std::size_t rows = 4;
    constexpr std::size_t bytes = pitch * rows;
    CUdeviceptr split = 0;
    CUdeviceptr whole = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&whole, MiB), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAlloc_v2)(&split, 48 * MiB), CUDA_SUCCESS);
    // The seam: of the share, less the other one, all whole chunks.
    const CUdeviceptr at = split + 30 * MiB - bytes / 2 + 40;
    const auto words = pattern(bytes);
    std::vector<unsigned> back(words.size());

    CUDA_ARRAY_DESCRIPTOR wanted = {};
    wanted.Width = bytes;
    wanted.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    wanted.NumChannels = 1;
    CUarray array = nullptr;
    ASSERT_EQ(CU(cuArrayCreate_v2)(&array, &wanted), CUDA_SUCCESS);

    CUDA_MEMCPY2D flat = {};
    flat.srcMemoryType = flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    flat.srcPitch = flat.dstPitch = pitch;
    flat.WidthInBytes = pitch;
    flat.Height = rows;
    CUDA_MEMCPY3D_PEER peer = {};
    peer.srcMemoryType = peer.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    peer.srcContext = peer.dstContext = context_;
    peer.srcPitch = peer.dstPitch = pitch / 2;
    peer.srcHeight = peer.dstHeight = rows;
    peer.WidthInBytes = pitch / 2;
    peer.Height = rows;
    peer.Depth = 2;
    using Copy = std::function<CUresult(CUdeviceptr, CUdeviceptr)>;
    const std::pair<const char *, Copy> copies[] = {
        {"peer",
         [&](CUdeviceptr to, CUdeviceptr from) {
             return CU(cuMemcpyPeer)(to, context_, from, context_, bytes);
         }},
        {"peer, per thread",
         [&](CUdeviceptr to, CUdeviceptr from) {
             return CU(cuMemcpyPeerAsync_ptsz)(to, context_, from, context_,
                                               bytes, nullptr);
         }},
        {"by an array",
         [&](CUdeviceptr to, CUdeviceptr from) {
             const CUresult in = CU(cuMemcpyDtoA_v2)(array, 0, from, bytes);
             return in != CUDA_SUCCESS
                        ? in
                        : CU(cuMemcpyAtoD_v2)(to, array, 0, bytes);
         }},
        {"unaligned rows",
         [&](CUdeviceptr to, CUdeviceptr from) {
             flat.dstDevice = to;
             flat.srcDevice = from;
             return CU(cuMemcpy2DUnaligned_v2)(&flat);
         }},
        {"planes of a peer",
         [&](CUdeviceptr to, CUdeviceptr from) {
             peer.dstDevice = to;
             peer.srcDevice = from;
             return CU(cuMemcpy3DPeer)(&peer);
         }},
        {"planes of a peer, per thread",
         [&](CUdeviceptr to, CUdeviceptr from) {
             peer.dstDevice = to;
             peer.srcDevice = from;
             return CU(cuMemcpy3DPeerAsync_ptsz)(&peer, nullptr);
         }},
    };
    for (const auto &[name, copy] : copies) {
        ASSERT_EQ(CU(cuMemcpyHtoD_v2)(whole, words.data(), bytes),
                  CUDA_SUCCESS);
        ASSERT_EQ(copy(at, whole), CUDA_SUCCESS) << name;
        ASSERT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        ASSERT_EQ(CU(cuMemsetD8_v2)(whole, 0, bytes), CUDA_SUCCESS);
        ASSERT_EQ(copy(whole, at), CUDA_SUCCESS) << name;
        ASSERT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        ASSERT_EQ(CU(cuMemcpyDtoH_v2)(back.data(), whole, bytes), CUDA_SUCCESS);
        EXPECT_EQ(words, back) << name;
        ASSERT_EQ(CU(cuMemsetD8_v2)(at, 0, bytes), CUDA_SUCCESS);
    }
    // Rows of shorts, half a row apart.
    ASSERT_EQ(CU(cuMemsetD2D16_v2)(at, pitch, 0x1234, pitch / 4, rows),
              CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemcpyDtoH_v2_ptds)(back.data(), at, bytes), CUDA_SUCCESS);
    for (std::size_t i = 0; i < back.size(); i++)
        ASSERT_EQ(back[i], i * 4 % pitch < pitch / 2 ? 0x12341234u : 0u) << i;
    // The driver says what is wrong, and nothing changes.
    EXPECT_EQ(CU(cuMemsetD32_v2)(at + 2, 7, 100), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(CU(cuMemsetD8_v2)(at, 7, 48 * MiB), CUDA_ERROR_INVALID_VALUE);
    unsigned first = 0;
    ASSERT_EQ(CU(cuMemcpyDtoH_v2)(&first, at, sizeof first), CUDA_SUCCESS);
    EXPECT_EQ(first, 0x12341234u);
    ASSERT_EQ(CU(cuArrayDestroy)(array), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFree_v2)(split), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFree_v2)(whole), CUDA_SUCCESS);
}

TEST_F(Preload, ASplitAllocationIsOneDeviceRangeToWhoeverAsks)
{
    CUdeviceptr pointer = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, 41 * MiB), CUDA_SUCCESS);
    const CUdeviceptr inside = pointer + 40 * MiB; // on the host's side
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    EXPECT_EQ(CU(cuMemGetAddressRange_v2)(&base, &bytes, inside), CUDA_SUCCESS);
    EXPECT_EQ(base, pointer);
    EXPECT_EQ(bytes, 41 * MiB);
    unsigned type = 0;
    EXPECT_EQ(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        inside),
              CUDA_SUCCESS);
    EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));

    CUcontext context = nullptr;
    CUdeviceptr start = 0;
    void *host = &host;
    int ordinal = -1;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
                                        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[] = {&context, &type, &host, &start, &ordinal};
    EXPECT_EQ(CU(cuPointerGetAttributes)(5, attributes, data, inside),
              CUDA_SUCCESS);
    EXPECT_EQ(context, context_);
    EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
    EXPECT_EQ(host, nullptr);
    EXPECT_EQ(start, pointer);
    EXPECT_EQ(ordinal, 0);
    CUipcMemHandle handle;
    EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, pointer),
              CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

TEST_F(Preload, LargeAllocationsHaveAnIpcHandleWhereThatIsAskedFor)
{
    const char *asked = std::getenv("EMUV_IPC");
    const bool ipc = asked != nullptr && std::strcmp(asked, "1") == 0;
    CUdeviceptr pointer = 0;
    CUipcMemHandle handle;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, 20 * MiB), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, pointer),
              ipc ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(free_bytes(), 76 * MiB);
    ASSERT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

TEST_F(Preload, SmallAllocationsBeyondTheShareAreEachTheirOwn)
{
    CUdeviceptr large = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&large, 32 * MiB), CUDA_SUCCESS);
    constexpr std::size_t count = 20;
    constexpr std::size_t bytes = 10000;
    CUdeviceptr small[count] = {};
    unsigned long long ids[count] = {};
    for (std::size_t i = 0; i < count; i++) {
        ASSERT_EQ(CU(cuMemAlloc_v2)(&small[i], bytes), CUDA_SUCCESS);
        ASSERT_EQ(
            CU(cuMemsetD8_v2)(small[i], static_cast<unsigned char>(i), bytes),
            CUDA_SUCCESS);
        CUdeviceptr base = 0;
        std::size_t size = 0;
        EXPECT_EQ(CU(cuMemGetAddressRange_v2)(&base, &size, small[i] + 9999),
                  CUDA_SUCCESS);
        EXPECT_EQ(base, small[i]);
        EXPECT_EQ(size, bytes);
        EXPECT_EQ(CU(cuPointerGetAttribute)(
                      &ids[i], CU_POINTER_ATTRIBUTE_BUFFER_ID, small[i] + 1),
                  CUDA_SUCCESS);
        for (std::size_t other = 0; other < i; other++)
            EXPECT_NE(ids[other], ids[i]);
    }
    EXPECT_EQ(free_bytes(), 62 * MiB) << "all of them in one chunk";
    for (std::size_t i = 0; i < count; i++) {
        std::vector<unsigned char> back(bytes);
        ASSERT_EQ(CU(cuMemcpyDtoH_v2)(back.data(), small[i], bytes),
                  CUDA_SUCCESS);
        EXPECT_EQ(back, std::vector<unsigned char>(
                            bytes, static_cast<unsigned char>(i)));
        ASSERT_EQ(CU(cuMemFree_v2)(small[i]), CUDA_SUCCESS);
    }
    ASSERT_EQ(CU(cuMemFree_v2)(large), CUDA_SUCCESS);
}

TEST_F(Preload, TheLimitIsOutOfMemoryAndNothingElseBreaks)
{
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    const std::size_t most = 90 * MiB;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&first, most), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemAlloc_v2)(&second, 98 * MiB - most),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(free_bytes(), 96 * MiB - most);
    ASSERT_EQ(CU(cuMemAlloc_v2)(&second, 96 * MiB - most), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFree_v2)(first), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFree_v2)(second), CUDA_SUCCESS);
}

TEST_F(Preload, WrongArgumentsGetTheDriversOwnAnswers)
{
    const auto theirs = [](const char *name) {
        return dlsym(simulated(), name);
    };
    const auto alloc =
        reinterpret_cast<decltype(&::cuMemAlloc_v2)>(theirs("cuMemAlloc_v2"));
    const auto free =
        reinterpret_cast<decltype(&::cuMemFree_v2)>(theirs("cuMemFree_v2"));
    const auto pitch = reinterpret_cast<decltype(&::cuMemAllocPitch_v2)>(
        theirs("cuMemAllocPitch_v2"));
    CUdeviceptr pointer = 0;
    std::size_t row = 0;
    EXPECT_EQ(CU(cuMemAlloc_v2)(nullptr, 4 * MiB), alloc(nullptr, 4 * MiB));
    EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 0), alloc(&pointer, 0));
    EXPECT_EQ(CU(cuMemFree_v2)(0), free(0));
    EXPECT_EQ(CU(cuMemFree_v2)(12345), free(12345));
    EXPECT_EQ(CU(cuMemAllocPitch_v2)(&pointer, &row, 4 * MiB, 4, 3),
              pitch(&pointer, &row, 4 * MiB, 4, 3));
    EXPECT_EQ(CU(cuMemAllocPitch_v2)(&pointer, nullptr, 4 * MiB, 4, 4),
              pitch(&pointer, nullptr, 4 * MiB, 4, 4));

    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, 4 * MiB), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemFree_v2)(pointer), free(pointer));

    CU(cuCtxSetCurrent)(nullptr);
    EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 4 * MiB), alloc(&pointer, 4 * MiB));
    CU(cuCtxSetCurrent)(context_);
}

TEST_F(Preload, StreamOrderedMemoryGoesBeyondTheShare)
{
    CUstream stream = nullptr;
    ASSERT_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING),
              CUDA_SUCCESS);
    CUdeviceptr pointers[3] = {};
    for (CUdeviceptr &pointer : pointers) {
        ASSERT_EQ(CU(cuMemAllocAsync)(&pointer, 24 * MiB, stream),
                  CUDA_SUCCESS);
        ASSERT_EQ(CU(cuMemsetD8Async)(pointer, 5, 24 * MiB, stream),
                  CUDA_SUCCESS);
    }
    EXPECT_EQ(free_bytes(), 24 * MiB);
    for (const CUdeviceptr pointer : pointers)
        ASSERT_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
}

TEST_F(Preload, WhatAPoolKeepsIsPartOfTheShare)
{
    const std::size_t before = vram_used();
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    cuuint64_t all = UINT64_MAX;
    ASSERT_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING),
              CUDA_SUCCESS);
    ASSERT_EQ(CU(cuDeviceGetMemPool)(&pool, device_), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                        &all),
              CUDA_SUCCESS);
    CUdeviceptr pointer = 0;
    ASSERT_EQ(CU(cuMemAllocAsync)(&pointer, 24 * MiB, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(), 72 * MiB) << "the driver keeps it";
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, 8 * MiB), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(), 64 * MiB);
    CUdeviceptr rest = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&rest, 24 * MiB), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(), 64 * MiB) << "given up, so nothing has spilled";
    EXPECT_LE(vram_used(), before + 32 * MiB);

    // The driver takes more at once than there is left.
    ASSERT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, 7 * MiB), CUDA_SUCCESS);
    CUdeviceptr small = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&small, MiB / 2), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFree_v2)(small), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAllocAsync)(&small, MiB / 2, stream), CUDA_SUCCESS);
    EXPECT_LE(vram_used(), before + 32 * MiB);
    ASSERT_EQ(CU(cuMemFreeAsync)(small, stream), CUDA_SUCCESS);
    all = 0;
    ASSERT_EQ(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                        &all),
              CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFree_v2)(rest), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
}

TEST_F(Preload, AGraphsOwnMemoryIsPartOfTheShare)
{
    CUstream stream = nullptr;
    ASSERT_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING),
              CUDA_SUCCESS);
    CUdeviceptr pointer = 0;
    ASSERT_EQ(
        CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
        CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAllocAsync)(&pointer, 20 * MiB, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);

    CUdeviceptr large = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&large, 16 * MiB), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(CU(cuMemFree_v2)(large), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(), 76 * MiB);
    ASSERT_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
}

TEST_F(Preload, ACaptureFreesOnlyWhatIsAGraphs)
{
    CUstream stream = nullptr;
    ASSERT_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING),
              CUDA_SUCCESS);
    CUdeviceptr in_vram = 0;
    CUdeviceptr beyond = 0;
    ASSERT_EQ(CU(cuMemAllocAsync)(&in_vram, 32 * MiB, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAllocAsync)(&beyond, 32 * MiB, stream), CUDA_SUCCESS);
    ASSERT_EQ(
        CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
        CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemFreeAsync)(beyond, stream),
              CU(cuMemFreeAsync)(in_vram, stream));
    CUgraph graph = nullptr;
    CU(cuStreamEndCapture)(stream, &graph);
    if (graph != nullptr)
        CU(cuGraphDestroy)(graph);
    EXPECT_EQ(free_bytes(), 32 * MiB) << "neither is freed";
    ASSERT_EQ(CU(cuMemFreeAsync)(in_vram, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFreeAsync)(beyond, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
}

TEST_F(Preload, AFreeThatACaptureRefusesLeavesTheMemory)
{
    CUdeviceptr at = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&at, 8 * MiB), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemsetD8_v2)(at, 0x5a, 8 * MiB), CUDA_SUCCESS);
    CUstream stream = nullptr;
    ASSERT_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING),
              CUDA_SUCCESS);
    ASSERT_EQ(
        CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
        CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemFree_v2)(at), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    CU(cuStreamEndCapture)(stream, &graph);
    if (graph != nullptr)
        CU(cuGraphDestroy)(graph);
    unsigned char last = 0;
    ASSERT_EQ(CU(cuMemcpyDtoH_v2)(&last, at + 8 * MiB - 1, 1), CUDA_SUCCESS);
    EXPECT_EQ(last, 0x5a);
    EXPECT_EQ(CU(cuMemFree_v2)(at), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(), 96 * MiB);
    ASSERT_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
}

TEST_F(Preload, TheProgramsOwnHandlesGoBeyondTheShare)
{
    if (!by_handle())
        GTEST_SKIP() << "handles beyond the share need HOST_NUMA memory";
    CUmemAllocationProp wanted;
    std::memset(&wanted, 0, sizeof wanted);
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    const std::size_t each = 20 * MiB;
    CUdeviceptr base = 0;
    ASSERT_EQ(CU(cuMemAddressReserve)(&base, 3 * each, 0, 0, 0), CUDA_SUCCESS);
    for (std::size_t i = 0; i < 3; i++) {
        CUmemGenericAllocationHandle handle = 0;
        ASSERT_EQ(CU(cuMemCreate)(&handle, each, &wanted, 0), CUDA_SUCCESS);
        ASSERT_EQ(CU(cuMemMap)(base + i * each, each, 0, handle, 0),
                  CUDA_SUCCESS);
        CUmemAllocationProp shown;
        ASSERT_EQ(CU(cuMemGetAllocationPropertiesFromHandle)(&shown, handle),
                  CUDA_SUCCESS);
        EXPECT_EQ(shown.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
        ASSERT_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    }
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    ASSERT_EQ(CU(cuMemSetAccess)(base, 3 * each, &access, 1), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(), 36 * MiB);
    const auto words = pattern(3 * each);
    std::vector<unsigned> back(words.size());
    ASSERT_EQ(CU(cuMemcpyHtoD_v2)(base, words.data(), 3 * each), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemcpyDtoH_v2)(back.data(), base, 3 * each), CUDA_SUCCESS);
    EXPECT_EQ(words, back);
    ASSERT_EQ(CU(cuMemUnmap)(base, 3 * each), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAddressFree)(base, 3 * each), CUDA_SUCCESS);
}

TEST_F(Preload, AContextsMemoryComesBackWithItsEnd)
{
    CUcontext context = nullptr;
    ASSERT_EQ(CU(cuCtxCreate_v2)(&context, 0, device_), CUDA_SUCCESS);
    CUdeviceptr pointer = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, 50 * MiB), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, 1000), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
}

TEST_F(Preload, AContextsMemoryComesBackWhenTheLastLetsGoOfIt)
{
    const std::size_t before = free_bytes();
    CUcontext context = nullptr;
    CUcontext again = nullptr;
    ASSERT_EQ(CU(cuCtxCreate_v2)(&context, 0, device_), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxAttach)(&again, 0), CUDA_SUCCESS);
    ASSERT_EQ(again, context);
    CUdeviceptr pointer = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, 50 * MiB), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxDetach)(context), CUDA_SUCCESS);
    EXPECT_LE(free_bytes() + 50 * MiB, before);
    ASSERT_EQ(CU(cuCtxDetach)(context), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(), before);
}

TEST_F(Preload, AForkedChildGetsTheDriversAnswerAndHarmsNothing)
{
    CUdeviceptr held = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&held, 50 * MiB), CUDA_SUCCESS);
    const auto alloc = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(
        dlsym(simulated(), "cuMemAlloc_v2"));
    const pid_t child = fork();
    if (child == 0) {
        alarm(300); // it would hang
        CUdeviceptr own = 0;
        CUdeviceptr theirs = 0;
        const CUresult ours = CU(cuMemAlloc_v2)(&own, 1000);
        const CUresult real = alloc(&theirs, 1000);
        _exit(ours == real ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(free_bytes(), 46 * MiB);
    ASSERT_EQ(CU(cuMemFree_v2)(held), CUDA_SUCCESS);
}

// SPDX-License-Identifier: GPL-2.0-or-later
// The driver's answers to bad arguments, one call a line. Two tables, of a
// driver with and without the library in front, must be equal.
//
// A driver may crash on such a call, or lose its context, so a process of its
// own makes each one. These processes run side by side, since a card takes its
// time to start one.
//
// The process that starts them must not have opened the driver: a child of one
// that has cannot use it.
#include "driver.hpp"
#include "kernels.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace harness {
namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr unsigned time_limit = 120; // seconds, for one call
constexpr unsigned side_by_side = 8;

constexpr CUdeviceptr wild = 0x1000;
constexpr std::size_t small_bytes = 4096;
constexpr std::size_t large_bytes = 4 * MiB;
constexpr std::size_t spilled_bytes = 6 * MiB;

// A symbol under its own name: the header has only its newest version's.
template <typename Function, typename... Arguments>
CUresult symbol(const char *name, Arguments... arguments)
{
    static void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto function = reinterpret_cast<Function *>(dlsym(library, name));
    return function ? function(arguments...) : CUDA_ERROR_NOT_FOUND;
}

// The scene before a call: memory of each kind, and freed memory. Within the
// comparison's limits, `large` is in VRAM and `spilled` is not, or not as a
// whole.
struct scene
{
    CUcontext context = nullptr;
    CUdeviceptr small = 0, large = 0, spilled = 0, freed = 0;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    CUmemoryPool other_pool = nullptr;
    CUgraph captured = nullptr;
    CUmemAllocationProp prop{}, no_type{}, no_device{};
    CUmemAccessDesc access{};
    std::vector<char> host = std::vector<char>(small_bytes);

    // Places that a call may write to.
    CUdeviceptr pointer = 0;
    std::size_t number = 0;
    std::size_t other_number = 0;
    unsigned word = 0;
    void *address = nullptr;
    CUmemGenericAllocationHandle handle = 0;
    CUarray array = nullptr;
    CUmipmappedArray mipmapped = nullptr;
    CUdriverProcAddressQueryResult status{};
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    CUipcMemHandle ipc{};
    CUDA_MEMCPY2D flat{};
    CUDA_MEMCPY3D solid{};
    CUmemPoolProps pool_props{};
    CUgraphExec exec = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUlibrary code_library = nullptr;
    CUkernel kernel = nullptr;
    std::uint64_t none = 0;
    void *parameters[3] = {&none, &none, &none};
    CUDA_GRAPH_INSTANTIATE_PARAMS graph_params{};
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUDA_MEMSET_NODE_PARAMS zeros{};
    CUgraphNodeParams any_node{};
    CUgraphExecUpdateResultInfo update{};
    CUmemcpyAttributes how{};
    CUDA_MEMCPY3D_BATCH_OP batched{};

    void must(CUresult result)
    {
        if (result == CUDA_SUCCESS)
            return;
        std::fprintf(stderr, "answers: the scene cannot be set: %d\n", result);
        std::_Exit(3);
    }
    scene()
    {
        const driver &d = cuda();
        must(d.cuDevicePrimaryCtxRetain(&context, 0));
        must(d.cuCtxSetCurrent(context));
        must(d.cuMemAlloc(&small, small_bytes));
        must(d.cuMemAlloc(&large, large_bytes));
        must(d.cuMemAlloc(&freed, large_bytes));
        must(d.cuMemAlloc(&spilled, spilled_bytes));
        // Only now, so that a call that is right finds room in the share.
        must(d.cuMemFree(freed));
        must(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        must(d.cuDeviceGetDefaultMemPool(&pool, 0));
        prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        no_type = no_device = prop;
        no_type.type = CU_MEM_ALLOCATION_TYPE_INVALID;
        no_device.location.id = 99;
        access.location = prop.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }

    void leave() { must(cuda().cuCtxSetCurrent(nullptr)); }
    CUmodule loaded()
    {
        must(cuda().cuModuleLoadData(&module, kernel_image(cuda().simulated)));
        return module;
    }
    CUfunction found()
    {
        must(cuda().cuModuleGetFunction(&function, loaded(), "add"));
        return function;
    }
    void **nothing() { return parameters; }
    CUgraph made_graph()
    {
        must(cuda().cuGraphCreate(&graph, 0));
        return graph;
    }
    // A copy of some bytes, from the small allocation to another.
    const CUDA_MEMCPY3D *copy_to(CUdeviceptr to, std::size_t bytes)
    {
        solid.srcMemoryType = solid.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        solid.srcDevice = small;
        solid.dstDevice = to;
        solid.WidthInBytes = bytes;
        solid.Height = solid.Depth = 1;
        return &solid;
    }
    const CUDA_MEMSET_NODE_PARAMS *zeros_to(CUdeviceptr to, std::size_t bytes)
    {
        zeros.dst = to;
        zeros.elementSize = 1;
        zeros.width = bytes;
        zeros.height = 1;
        return &zeros;
    }
    CUgraphNodeParams *any_copy_to(CUdeviceptr to, std::size_t bytes)
    {
        any_node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
        any_node.memcpy.copyCtx = context;
        any_node.memcpy.copyParams = *copy_to(to, bytes);
        return &any_node;
    }
    CUgraphNode made_copy_node()
    {
        must(cuda().cuGraphAddMemcpyNode(&node, made_graph(), nullptr, 0,
                                         copy_to(large, small_bytes), context));
        return node;
    }
    CUgraphNode made_set_node()
    {
        must(cuda().cuGraphAddMemsetNode(&node, made_graph(), nullptr, 0,
                                         zeros_to(large, small_bytes),
                                         context));
        return node;
    }
    CUgraphExec made_exec()
    {
        must(cuda().cuGraphInstantiate(&exec, graph, 0));
        return exec;
    }
    CUmemGenericAllocationHandle made_handle(std::size_t bytes)
    {
        must(cuda().cuMemCreate(&handle, bytes, &prop, 0));
        return handle;
    }
    CUmemGenericAllocationHandle gone_handle()
    {
        must(cuda().cuMemRelease(made_handle(large_bytes)));
        return handle;
    }
    CUdeviceptr reserved()
    {
        must(cuda().cuMemAddressReserve(&pointer, large_bytes, 0, 0, 0));
        return pointer;
    }
    const CUDA_MEMCPY2D *rows(CUdeviceptr to, std::size_t pitch,
                              std::size_t height)
    {
        flat.srcMemoryType = CU_MEMORYTYPE_HOST;
        flat.srcHost = host.data();
        flat.srcPitch = 64;
        flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        flat.dstDevice = to;
        flat.dstPitch = pitch;
        flat.WidthInBytes = 64;
        flat.Height = height;
        return &flat;
    }
    const CUDA_MEMCPY3D *planes(CUdeviceptr to, std::size_t depth)
    {
        solid.srcMemoryType = CU_MEMORYTYPE_HOST;
        solid.srcHost = host.data();
        solid.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        solid.dstDevice = to;
        solid.WidthInBytes = 64;
        solid.Height = 1;
        solid.Depth = depth;
        return &solid;
    }

    // Success if nothing was hurt: neither the context, nor memory that was
    // only named.
    CUresult sound()
    {
        const CUresult result = cuda().cuCtxSynchronize();
        if (result != CUDA_SUCCESS)
            return result;
        for (CUdeviceptr at : {large, spilled})
            if (const CUresult r = cuda().cuMemcpyDtoH(host.data(), at, 64))
                return r;
        return CUDA_SUCCESS;
    }
};

struct question
{
    std::string what; // the function's name, and the mistake
    std::function<CUresult(scene &)> ask;
};

using questions = std::vector<question>;

#define ASK(what, ...)                                                         \
    q.push_back({what, [=]([[maybe_unused]] scene &s) -> CUresult {            \
                     [[maybe_unused]] const driver &d = cuda();                \
                     return __VA_ARGS__;                                       \
                 }})

void about_starting(questions &q)
{
    ASK("cuInit flags", d.cuInit(1));
    ASK("cuDeviceTotalMem null", d.cuDeviceTotalMem(nullptr, 0));
    ASK("cuDeviceTotalMem no such device", d.cuDeviceTotalMem(&s.number, 99));
    ASK("cuMemGetInfo null free", d.cuMemGetInfo(nullptr, &s.number));
    ASK("cuMemGetInfo null total", d.cuMemGetInfo(&s.number, nullptr));
    ASK("cuMemGetInfo null both", d.cuMemGetInfo(nullptr, nullptr));
    ASK("cuMemGetInfo no context",
        (s.leave(), d.cuMemGetInfo(&s.number, &s.other_number)));
    using get_v2 = CUresult(const char *, void **, int, cuuint64_t,
                            CUdriverProcAddressQueryResult *);
    using get_v1 = CUresult(const char *, void **, int, cuuint64_t);
    ASK("cuGetProcAddress null name",
        symbol<get_v2>("cuGetProcAddress_v2", nullptr, &s.address, 12000, 0,
                       &s.status));
    ASK("cuGetProcAddress null answer",
        symbol<get_v2>("cuGetProcAddress_v2", "cuMemAlloc", nullptr, 12000, 0,
                       &s.status));
    ASK("cuGetProcAddress no such name",
        symbol<get_v2>("cuGetProcAddress_v2", "cuNoSuchThing", &s.address,
                       12000, 0, &s.status));
    ASK("cuGetProcAddress flags",
        symbol<get_v2>("cuGetProcAddress_v2", "cuMemAlloc", &s.address, 12000,
                       0xff, &s.status));
    ASK("cuGetProcAddress first version, null name",
        symbol<get_v1>("cuGetProcAddress", nullptr, &s.address, 12000, 0));
    ASK("cuGetProcAddress first version, null answer",
        symbol<get_v1>("cuGetProcAddress", "cuMemAlloc", nullptr, 12000, 0));
    using get_table = CUresult(const void **, const CUuuid *);
    static const CUuuid nobody{};
    ASK("cuGetExportTable null table",
        symbol<get_table>("cuGetExportTable", nullptr, &nobody));
    ASK("cuGetExportTable no such table",
        symbol<get_table>("cuGetExportTable",
                          const_cast<const void **>(&s.address), &nobody));
}

void about_allocations(questions &q)
{
    ASK("cuMemAlloc null", d.cuMemAlloc(nullptr, small_bytes));
    ASK("cuMemAlloc null large", d.cuMemAlloc(nullptr, large_bytes));
    ASK("cuMemAlloc zero", d.cuMemAlloc(&s.pointer, 0));
    ASK("cuMemAlloc huge", d.cuMemAlloc(&s.pointer, ~std::size_t{0}));
    ASK("cuMemAlloc 2^50", d.cuMemAlloc(&s.pointer, std::size_t{1} << 50));
    ASK("cuMemAlloc no context",
        (s.leave(), d.cuMemAlloc(&s.pointer, large_bytes)));
    ASK("cuMemAllocPitch null",
        d.cuMemAllocPitch(nullptr, &s.number, 64, 64, 4));
    ASK("cuMemAllocPitch null pitch",
        d.cuMemAllocPitch(&s.pointer, nullptr, 64, 64, 4));
    ASK("cuMemAllocPitch zero width",
        d.cuMemAllocPitch(&s.pointer, &s.number, 0, 64, 4));
    ASK("cuMemAllocPitch zero height",
        d.cuMemAllocPitch(&s.pointer, &s.number, 64, 0, 4));
    ASK("cuMemAllocPitch element 3",
        d.cuMemAllocPitch(&s.pointer, &s.number, 64, 64, 3));
    ASK("cuMemAllocPitch element 3 large",
        d.cuMemAllocPitch(&s.pointer, &s.number, 4 * MiB, 4, 3));
    ASK("cuMemAllocPitch huge",
        d.cuMemAllocPitch(&s.pointer, &s.number, std::size_t{1} << 33,
                          std::size_t{1} << 33, 4));
    ASK("cuMemAllocManaged null",
        d.cuMemAllocManaged(nullptr, small_bytes, CU_MEM_ATTACH_GLOBAL));
    ASK("cuMemAllocManaged zero",
        d.cuMemAllocManaged(&s.pointer, 0, CU_MEM_ATTACH_GLOBAL));
    ASK("cuMemAllocManaged flags",
        d.cuMemAllocManaged(&s.pointer, small_bytes, 0));
    ASK("cuMemFree null", d.cuMemFree(0));
    ASK("cuMemFree wild", d.cuMemFree(wild));
    ASK("cuMemFree inside small", d.cuMemFree(s.small + 256));
    ASK("cuMemFree inside large", d.cuMemFree(s.large + 4 * MiB));
    ASK("cuMemFree inside large by one", d.cuMemFree(s.large + 1));
    ASK("cuMemFree inside spilled", d.cuMemFree(s.spilled + 14 * MiB));
    ASK("cuMemFree twice",
        (s.must(d.cuMemFree(s.small)), d.cuMemFree(s.small)));
    ASK("cuMemFree twice large", d.cuMemFree(s.freed));
    ASK("cuMemFree of host memory",
        d.cuMemFree(reinterpret_cast<CUdeviceptr>(s.host.data())));
}

void about_stream_order(questions &q)
{
    using alloc = CUresult(CUdeviceptr *, std::size_t, CUstream);
    using from_pool =
        CUresult(CUdeviceptr *, std::size_t, CUmemoryPool, CUstream);
    using release = CUresult(CUdeviceptr, CUstream);
    // The variants for the legacy default stream, and for each thread's.
    for (const std::string end : {"", "_ptsz"}) {
        const auto named = [&](const char *name, const char *wrong) {
            return name + std::string(" ") + wrong +
                   (end.empty() ? "" : ", per thread");
        };
        ASK(named("cuMemAllocAsync", "null"),
            symbol<alloc>(("cuMemAllocAsync" + end).c_str(), nullptr,
                          small_bytes, s.stream));
        ASK(named("cuMemAllocAsync", "zero"),
            symbol<alloc>(("cuMemAllocAsync" + end).c_str(), &s.pointer, 0,
                          s.stream));
        ASK(named("cuMemAllocAsync", "huge"),
            symbol<alloc>(("cuMemAllocAsync" + end).c_str(), &s.pointer, ~0,
                          s.stream));
        ASK(named("cuMemAllocFromPoolAsync", "null"),
            symbol<from_pool>(("cuMemAllocFromPoolAsync" + end).c_str(),
                              nullptr, small_bytes, s.pool, s.stream));
        ASK(named("cuMemAllocFromPoolAsync", "null pool"),
            symbol<from_pool>(("cuMemAllocFromPoolAsync" + end).c_str(),
                              &s.pointer, small_bytes, nullptr, s.stream));
        ASK(named("cuMemAllocFromPoolAsync", "zero"),
            symbol<from_pool>(("cuMemAllocFromPoolAsync" + end).c_str(),
                              &s.pointer, 0, s.pool, s.stream));
        ASK(named("cuMemFreeAsync", "null"),
            symbol<release>(("cuMemFreeAsync" + end).c_str(), 0, s.stream));
        ASK(named("cuMemFreeAsync", "wild"),
            symbol<release>(("cuMemFreeAsync" + end).c_str(), wild, s.stream));
        ASK(named("cuMemFreeAsync", "inside large"),
            symbol<release>(("cuMemFreeAsync" + end).c_str(), s.large + 4 * MiB,
                            s.stream));
        ASK(named("cuMemFreeAsync", "freed"),
            symbol<release>(("cuMemFreeAsync" + end).c_str(), s.freed,
                            s.stream));
    }
}

void about_streams(questions &q)
{
    using without_mode = CUresult(CUstream);
    using with_mode = CUresult(CUstream, CUstreamCaptureMode);
    using to_graph =
        CUresult(CUstream, CUgraph, const CUgraphNode *,
                 const CUgraphEdgeData *, std::size_t, CUstreamCaptureMode);
    constexpr auto no_mode = static_cast<CUstreamCaptureMode>(3);
    constexpr auto global = CU_STREAM_CAPTURE_MODE_GLOBAL;
    for (const char *name : {"cuStreamDestroy", "cuStreamDestroy_v2"})
        ASK(std::string(name) + " null",
            symbol<CUresult(CUstream)>(name, nullptr));
    for (const std::string end : {"", "_ptsz"}) {
        const auto named = [&](const char *name, const char *wrong) {
            return name + std::string(" ") + wrong +
                   (end.empty() ? "" : ", per thread");
        };
        ASK(named("cuStreamBeginCapture", "first version, default stream"),
            symbol<without_mode>(("cuStreamBeginCapture" + end).c_str(),
                                 CU_STREAM_LEGACY));
        ASK(named("cuStreamBeginCapture", "default stream"),
            symbol<with_mode>(("cuStreamBeginCapture_v2" + end).c_str(),
                              CU_STREAM_LEGACY, global));
        ASK(named("cuStreamBeginCapture", "no such mode"),
            symbol<with_mode>(("cuStreamBeginCapture_v2" + end).c_str(),
                              s.stream, no_mode));
        using end_capture = CUresult(CUstream, CUgraph *);
        const std::string ends = "cuStreamEndCapture" + end;
        ASK(named("cuStreamEndCapture", "not captured"),
            symbol<end_capture>(ends.c_str(), s.stream, &s.captured));
        ASK(named("cuStreamEndCapture", "null graph"),
            symbol<end_capture>(ends.c_str(), s.stream, nullptr));
        ASK(named("cuStreamWaitEvent", "null event"),
            symbol<CUresult(CUstream, CUevent, unsigned)>(
                ("cuStreamWaitEvent" + end).c_str(), s.stream, nullptr, 0));
        ASK(named("cuLaunchHostFunc", "null function"),
            symbol<CUresult(CUstream, CUhostFn, void *)>(
                ("cuLaunchHostFunc" + end).c_str(), s.stream, nullptr,
                nullptr));
        ASK(named("cuStreamAddCallback", "null function"),
            symbol<CUresult(CUstream, CUstreamCallback, void *, unsigned)>(
                ("cuStreamAddCallback" + end).c_str(), s.stream, nullptr,
                nullptr, 0));
        ASK(named("cuStreamBeginCaptureToGraph", "null graph"),
            symbol<to_graph>(("cuStreamBeginCaptureToGraph" + end).c_str(),
                             s.stream, nullptr, nullptr, nullptr, 0, global));
    }
}

void about_handles(questions &q)
{
    ASK("cuMemCreate null", d.cuMemCreate(nullptr, large_bytes, &s.prop, 0));
    ASK("cuMemCreate zero", d.cuMemCreate(&s.handle, 0, &s.prop, 0));
    ASK("cuMemCreate odd size", d.cuMemCreate(&s.handle, 4096, &s.prop, 0));
    ASK("cuMemCreate huge",
        d.cuMemCreate(&s.handle, std::size_t{1} << 50, &s.prop, 0));
    ASK("cuMemCreate no properties",
        d.cuMemCreate(&s.handle, large_bytes, nullptr, 0));
    ASK("cuMemCreate no type",
        d.cuMemCreate(&s.handle, large_bytes, &s.no_type, 0));
    ASK("cuMemCreate no such device",
        d.cuMemCreate(&s.handle, large_bytes, &s.no_device, 0));
    ASK("cuMemCreate no type, with the share used up",
        (s.made_handle(large_bytes),
         d.cuMemCreate(&s.handle, large_bytes, &s.no_type, 0)));
    ASK("cuMemCreate no such device, with the share used up",
        (s.made_handle(large_bytes),
         d.cuMemCreate(&s.handle, large_bytes, &s.no_device, 0)));
    ASK("cuMemCreate flags", d.cuMemCreate(&s.handle, large_bytes, &s.prop, 1));
    ASK("cuMemRelease zero", d.cuMemRelease(0));
    ASK("cuMemRelease wild", d.cuMemRelease(wild));
    ASK("cuMemRelease twice", d.cuMemRelease(s.gone_handle()));
    ASK("cuMemMap no handle", d.cuMemMap(s.reserved(), large_bytes, 0, 0, 0));
    ASK("cuMemMap released handle",
        d.cuMemMap(s.reserved(), large_bytes, 0, s.gone_handle(), 0));
    ASK("cuMemMap wild",
        d.cuMemMap(2 * MiB, large_bytes, 0, s.made_handle(large_bytes), 0));
    ASK("cuMemMap of an allocation",
        d.cuMemMap(s.large, large_bytes, 0, s.made_handle(large_bytes), 0));
    ASK("cuMemMap larger than its handle",
        d.cuMemMap(s.reserved(), large_bytes, 0, s.made_handle(2 * MiB), 0));
    ASK("cuMemMap smaller than its handle",
        d.cuMemMap(s.reserved(), 2 * MiB, 0, s.made_handle(large_bytes), 0));
    ASK("cuMemMap zero bytes",
        d.cuMemMap(s.reserved(), 0, 0, s.made_handle(2 * MiB), 0));
    ASK("cuMemUnmap wild", d.cuMemUnmap(2 * MiB, large_bytes));
    ASK("cuMemUnmap of an allocation", d.cuMemUnmap(s.large, large_bytes));
    ASK("cuMemUnmap of a spilled allocation",
        d.cuMemUnmap(s.spilled, spilled_bytes));
    ASK("cuMemUnmap of what is not mapped",
        d.cuMemUnmap(s.reserved(), large_bytes));
    ASK("cuMemSetAccess wild",
        d.cuMemSetAccess(2 * MiB, large_bytes, &s.access, 1));
    ASK("cuMemSetAccess no list",
        d.cuMemSetAccess(s.large, large_bytes, nullptr, 1));
    ASK("cuMemSetAccess of what is not mapped",
        d.cuMemSetAccess(s.reserved(), large_bytes, &s.access, 1));
    ASK("cuMemAddressReserve null",
        d.cuMemAddressReserve(nullptr, large_bytes, 0, 0, 0));
    ASK("cuMemAddressReserve zero",
        d.cuMemAddressReserve(&s.pointer, 0, 0, 0, 0));
    ASK("cuMemAddressReserve odd alignment",
        d.cuMemAddressReserve(&s.pointer, large_bytes, 3, 0, 0));
    ASK("cuMemAddressFree wild", d.cuMemAddressFree(2 * MiB, large_bytes));
    ASK("cuMemAddressFree of an allocation",
        d.cuMemAddressFree(s.large, large_bytes));
    ASK("cuMemAddressFree of a spilled allocation",
        d.cuMemAddressFree(s.spilled, spilled_bytes));
    ASK("cuMemAddressFree twice",
        (s.must(d.cuMemAddressFree(s.reserved(), large_bytes)),
         d.cuMemAddressFree(s.pointer, large_bytes)));
    ASK("cuMemRetainAllocationHandle null",
        d.cuMemRetainAllocationHandle(nullptr, reinterpret_cast<void *>(wild)));
    ASK("cuMemRetainAllocationHandle wild",
        d.cuMemRetainAllocationHandle(&s.handle,
                                      reinterpret_cast<void *>(wild)));
    ASK("cuMemRetainAllocationHandle of an allocation",
        d.cuMemRetainAllocationHandle(&s.handle,
                                      reinterpret_cast<void *>(s.large)));
    ASK("cuMemGetAllocationPropertiesFromHandle null",
        d.cuMemGetAllocationPropertiesFromHandle(nullptr,
                                                 s.made_handle(large_bytes)));
    ASK("cuMemGetAllocationPropertiesFromHandle wild",
        d.cuMemGetAllocationPropertiesFromHandle(&s.prop, wild));
    ASK("cuMemGetAllocationGranularity null",
        d.cuMemGetAllocationGranularity(nullptr, &s.prop,
                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

constexpr CUDA_ARRAY_DESCRIPTOR flat{64, 64, CU_AD_FORMAT_FLOAT, 1};
constexpr CUDA_ARRAY_DESCRIPTOR no_width{0, 64, CU_AD_FORMAT_FLOAT, 1};
constexpr CUDA_ARRAY_DESCRIPTOR three_channels{64, 64, CU_AD_FORMAT_FLOAT, 3};
constexpr CUDA_ARRAY3D_DESCRIPTOR solid{64, 64, 4, CU_AD_FORMAT_FLOAT, 1, 0};
constexpr CUDA_ARRAY3D_DESCRIPTOR no_width_solid{0, 64, 4, CU_AD_FORMAT_FLOAT,
                                                 1, 0};
constexpr CUDA_ARRAY3D_DESCRIPTOR levelled{64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};

void about_arrays(questions &q)
{
    ASK("cuArrayCreate null", d.cuArrayCreate(nullptr, &flat));
    ASK("cuArrayCreate null shape", d.cuArrayCreate(&s.array, nullptr));
    ASK("cuArrayCreate zero width", d.cuArrayCreate(&s.array, &no_width));
    ASK("cuArrayCreate three channels",
        d.cuArrayCreate(&s.array, &three_channels));
    ASK("cuArray3DCreate null", d.cuArray3DCreate(nullptr, &solid));
    ASK("cuArray3DCreate null shape", d.cuArray3DCreate(&s.array, nullptr));
    ASK("cuArray3DCreate zero width",
        d.cuArray3DCreate(&s.array, &no_width_solid));
    ASK("cuArrayDestroy null", d.cuArrayDestroy(nullptr));
    // No question is about an array that is gone: a real driver reads its old
    // memory, and answers with whatever is there by then.
    ASK("cuMipmappedArrayCreate null",
        d.cuMipmappedArrayCreate(nullptr, &levelled, 2));
    ASK("cuMipmappedArrayCreate null shape",
        d.cuMipmappedArrayCreate(&s.mipmapped, nullptr, 2));
    ASK("cuMipmappedArrayCreate no levels",
        d.cuMipmappedArrayCreate(&s.mipmapped, &levelled, 0));
    ASK("cuMipmappedArrayDestroy null", d.cuMipmappedArrayDestroy(nullptr));
}

void about_addresses(questions &q)
{
    ASK("cuMemGetAddressRange null address",
        d.cuMemGetAddressRange(&s.pointer, &s.number, 0));
    ASK("cuMemGetAddressRange wild",
        d.cuMemGetAddressRange(&s.pointer, &s.number, wild));
    ASK("cuMemGetAddressRange freed",
        d.cuMemGetAddressRange(&s.pointer, &s.number, s.freed));
    ASK("cuMemGetAddressRange no base",
        d.cuMemGetAddressRange(nullptr, &s.number, s.large));
    ASK("cuMemGetAddressRange nothing asked",
        d.cuMemGetAddressRange(nullptr, nullptr, s.spilled));
    ASK("cuPointerGetAttribute null data",
        d.cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                s.large));
    ASK("cuPointerGetAttribute null data, spilled",
        d.cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                s.spilled));
    ASK("cuPointerGetAttribute null address",
        d.cuPointerGetAttribute(&s.word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0));
    ASK("cuPointerGetAttribute wild",
        d.cuPointerGetAttribute(&s.word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                wild));
    ASK("cuPointerGetAttribute freed",
        d.cuPointerGetAttribute(&s.word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                s.freed));
    ASK("cuPointerGetAttribute host pointer",
        d.cuPointerGetAttribute(&s.address, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                s.large));
    ASK("cuPointerGetAttribute host pointer, spilled",
        d.cuPointerGetAttribute(&s.address, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                s.spilled));
    ASK("cuPointerGetAttribute bad attribute",
        d.cuPointerGetAttribute(&s.word, static_cast<CUpointer_attribute>(0),
                                s.large));
    ASK("cuPointerGetAttribute bad attribute, spilled",
        d.cuPointerGetAttribute(&s.word, static_cast<CUpointer_attribute>(0),
                                s.spilled));
    ASK("cuPointerGetAttributes none",
        d.cuPointerGetAttributes(0, nullptr, nullptr, s.large));
    ASK("cuPointerGetAttributes null list",
        d.cuPointerGetAttributes(1, nullptr, &s.address, s.spilled));
    ASK("cuPointerGetAttributes null data",
        d.cuPointerGetAttributes(1, &s.attribute, nullptr, s.spilled));
    const unsigned yes = 1;
    ASK("cuPointerSetAttribute null",
        d.cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                s.large));
    ASK("cuPointerSetAttribute wild",
        d.cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, wild));
    ASK("cuPointerSetAttribute of one that cannot be set",
        d.cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_CONTEXT, s.large));
    static unsigned long long access;
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    ASK("cuMemGetAccess null", d.cuMemGetAccess(nullptr, &here, s.large));
    ASK("cuMemGetAccess nowhere", d.cuMemGetAccess(&access, nullptr, s.large));
    ASK("cuMemGetAccess wild", d.cuMemGetAccess(&access, &here, wild));
    ASK("cuIpcGetMemHandle null", d.cuIpcGetMemHandle(nullptr, s.small));
    ASK("cuIpcGetMemHandle null, spilled",
        d.cuIpcGetMemHandle(nullptr, s.spilled));
    ASK("cuIpcGetMemHandle wild", d.cuIpcGetMemHandle(&s.ipc, wild));
    ASK("cuIpcOpenMemHandle of no handle",
        d.cuIpcOpenMemHandle(&s.pointer, s.ipc,
                             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ASK("cuIpcOpenMemHandle no flags",
        d.cuIpcOpenMemHandle(&s.pointer, s.ipc, 0));
    ASK("cuIpcCloseMemHandle wild", d.cuIpcCloseMemHandle(wild));
    ASK("cuIpcCloseMemHandle of an allocation", d.cuIpcCloseMemHandle(s.large));
    ASK("cuMemImportFromShareableHandle of no file",
        d.cuMemImportFromShareableHandle(
            &s.handle, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    static const CUDA_EXTERNAL_MEMORY_HANDLE_DESC external{};
    static CUexternalMemory opened;
    ASK("cuImportExternalMemory null",
        d.cuImportExternalMemory(nullptr, nullptr));
    ASK("cuImportExternalMemory of nothing",
        d.cuImportExternalMemory(&opened, &external));
    ASK("cuDestroyExternalMemory null", d.cuDestroyExternalMemory(nullptr));
}

void about_copies(questions &q)
{
    ASK("cuMemcpyHtoD null dst", d.cuMemcpyHtoD(0, s.host.data(), 64));
    ASK("cuMemcpyHtoD null src", d.cuMemcpyHtoD(s.large, nullptr, 64));
    ASK("cuMemcpyHtoD zero bytes", d.cuMemcpyHtoD(s.large, s.host.data(), 0));
    ASK("cuMemcpyHtoD wild", d.cuMemcpyHtoD(wild, s.host.data(), 64));
    ASK("cuMemcpyHtoD freed", d.cuMemcpyHtoD(s.freed, s.host.data(), 64));
    ASK("cuMemcpyDtoH wild", d.cuMemcpyDtoH(s.host.data(), wild, 64));
    ASK("cuMemcpyDtoH null dst", d.cuMemcpyDtoH(nullptr, s.large, 64));
    ASK("cuMemcpyDtoD wild dst", d.cuMemcpyDtoD(wild, s.large, 64));
    ASK("cuMemcpyDtoD wild src", d.cuMemcpyDtoD(s.large, wild, 64));
    ASK("cuMemcpyDtoD null both", d.cuMemcpyDtoD(0, 0, 64));
    ASK("cuMemcpyHtoDAsync wild",
        d.cuMemcpyHtoDAsync(wild, s.host.data(), 64, s.stream));
    ASK("cuMemcpy2D null", d.cuMemcpy2D(nullptr));
    ASK("cuMemcpy3D null", d.cuMemcpy3D(nullptr));
    ASK("cuMemsetD8 null", d.cuMemsetD8(0, 0, 64));
    ASK("cuMemsetD8 wild", d.cuMemsetD8(wild, 0, 64));
    ASK("cuMemsetD8 freed", d.cuMemsetD8(s.freed, 0, 64));

    // The same of memory in VRAM, and of memory that is not.
    struct kind
    {
        const char *name;
        CUdeviceptr scene::*at;
        std::size_t bytes;
    };
    for (const kind k : {kind{"large", &scene::large, large_bytes},
                         kind{"spilled", &scene::spilled, spilled_bytes}}) {
        const auto named = [&](const char *text) {
            return text + std::string(", ") + k.name;
        };
        ASK(named("cuMemcpyHtoD past the end"),
            d.cuMemcpyHtoD(s.*k.at + k.bytes - 32, s.host.data(), 64));
        ASK(named("cuMemcpyDtoH past the end"),
            d.cuMemcpyDtoH(s.host.data(), s.*k.at + k.bytes - 32, 64));
        ASK(named("cuMemcpyDtoH zero bytes"),
            d.cuMemcpyDtoH(s.host.data(), s.*k.at, 0));
        ASK(named("cuMemcpyDtoD past the end"),
            d.cuMemcpyDtoD(s.*k.at + k.bytes - 32, s.*k.at, 64));
        ASK(named("cuMemcpyDtoDAsync past the end"),
            d.cuMemcpyDtoDAsync(s.*k.at + k.bytes - 32, s.*k.at, 64, s.stream));
        ASK(named("cuMemcpy2D pitch below width"),
            d.cuMemcpy2D(s.rows(s.*k.at, 32, 4)));
        ASK(named("cuMemcpy2D no rows"), d.cuMemcpy2D(s.rows(s.*k.at, 64, 0)));
        ASK(named("cuMemcpy3D no planes"), d.cuMemcpy3D(s.planes(s.*k.at, 0)));
        ASK(named("cuMemsetD8 zero bytes"), d.cuMemsetD8(s.*k.at, 0, 0));
        ASK(named("cuMemsetD8 past the end"),
            d.cuMemsetD8(s.*k.at + k.bytes - 32, 0, 64));
        ASK(named("cuMemsetD16 misaligned"), d.cuMemsetD16(s.*k.at + 1, 0, 16));
        ASK(named("cuMemsetD32 misaligned"), d.cuMemsetD32(s.*k.at + 2, 0, 16));
        ASK(named("cuMemsetD2D8 pitch below width"),
            d.cuMemsetD2D8(s.*k.at, 32, 0, 64, 4));
    }
}

// The calls for whole rows and planes, and those that do not wait.
void about_other_copies(questions &q)
{
    const std::size_t end = large_bytes - 32;
    ASK("cuMemcpy zero bytes", d.cuMemcpy(s.large, s.spilled, 0));
    ASK("cuMemcpy past the end", d.cuMemcpy(s.large + end, s.large, 64));
    ASK("cuMemcpyAsync zero bytes",
        d.cuMemcpyAsync(s.large, s.spilled, 0, s.stream));
    ASK("cuMemcpyAsync past the end",
        d.cuMemcpyAsync(s.large + end, s.large, 64, s.stream));
    ASK("cuMemcpyDtoHAsync wild",
        d.cuMemcpyDtoHAsync(s.host.data(), wild, 64, s.stream));
    ASK("cuMemcpyDtoHAsync past the end",
        d.cuMemcpyDtoHAsync(s.host.data(), s.large + end, 64, s.stream));
    ASK("cuMemcpyPeer wild",
        d.cuMemcpyPeer(wild, s.context, s.large, s.context, 64));
    ASK("cuMemcpyPeer null context",
        d.cuMemcpyPeer(s.small, nullptr, s.large, nullptr, 64));
    ASK("cuMemcpyPeerAsync wild",
        d.cuMemcpyPeerAsync(wild, s.context, s.large, s.context, 64, s.stream));
    ASK("cuMemcpyPeerAsync null context",
        d.cuMemcpyPeerAsync(s.small, nullptr, s.large, nullptr, 64, s.stream));
    ASK("cuMemcpy2DAsync null", d.cuMemcpy2DAsync(nullptr, s.stream));
    ASK("cuMemcpy2DAsync pitch below width",
        d.cuMemcpy2DAsync(s.rows(s.spilled, 32, 4), s.stream));
    ASK("cuMemcpy2DUnaligned null", d.cuMemcpy2DUnaligned(nullptr));
    ASK("cuMemcpy2DUnaligned pitch below width",
        d.cuMemcpy2DUnaligned(s.rows(s.spilled, 32, 4)));
    ASK("cuMemcpy3DAsync null", d.cuMemcpy3DAsync(nullptr, s.stream));
    ASK("cuMemcpy3DAsync no planes",
        d.cuMemcpy3DAsync(s.planes(s.spilled, 0), s.stream));
    ASK("cuMemcpy3DPeer null", d.cuMemcpy3DPeer(nullptr));
    ASK("cuMemcpy3DPeerAsync null", d.cuMemcpy3DPeerAsync(nullptr, s.stream));
    ASK("cuMemcpyAtoD null array", d.cuMemcpyAtoD(s.large, nullptr, 0, 64));
    ASK("cuMemcpyDtoA null array", d.cuMemcpyDtoA(nullptr, 0, s.large, 64));
    ASK("cuMemsetD8Async wild", d.cuMemsetD8Async(wild, 0, 64, s.stream));
    ASK("cuMemsetD8Async past the end",
        d.cuMemsetD8Async(s.large + end, 0, 64, s.stream));
    ASK("cuMemsetD16Async misaligned",
        d.cuMemsetD16Async(s.spilled + 1, 0, 16, s.stream));
    ASK("cuMemsetD32Async misaligned",
        d.cuMemsetD32Async(s.spilled + 2, 0, 16, s.stream));
    ASK("cuMemsetD2D8Async pitch below width",
        d.cuMemsetD2D8Async(s.spilled, 32, 0, 64, 4, s.stream));
    ASK("cuMemsetD2D16 misaligned",
        d.cuMemsetD2D16(s.spilled + 1, 256, 0, 64, 4));
    ASK("cuMemsetD2D16Async misaligned",
        d.cuMemsetD2D16Async(s.spilled + 1, 256, 0, 64, 4, s.stream));
    ASK("cuMemsetD2D32 misaligned",
        d.cuMemsetD2D32(s.spilled + 2, 256, 0, 32, 4));
    ASK("cuMemsetD2D32Async misaligned",
        d.cuMemsetD2D32Async(s.spilled + 2, 256, 0, 32, 4, s.stream));
}

void about_pools(questions &q)
{
    ASK("cuMemPoolCreate null", d.cuMemPoolCreate(nullptr, &s.pool_props));
    ASK("cuMemPoolCreate null properties", d.cuMemPoolCreate(&s.pool, nullptr));
    ASK("cuMemPoolCreate no type", d.cuMemPoolCreate(&s.pool, &s.pool_props));
    ASK("cuDeviceGetDefaultMemPool null",
        d.cuDeviceGetDefaultMemPool(nullptr, 0));
    ASK("cuDeviceGetDefaultMemPool no such device",
        d.cuDeviceGetDefaultMemPool(&s.other_pool, 99));
    ASK("cuDeviceGetMemPool null", d.cuDeviceGetMemPool(nullptr, 0));
    ASK("cuDeviceGetMemPool no such device",
        d.cuDeviceGetMemPool(&s.other_pool, 99));
    ASK("cuMemGetDefaultMemPool null",
        d.cuMemGetDefaultMemPool(nullptr, nullptr,
                                 CU_MEM_ALLOCATION_TYPE_PINNED));
    ASK("cuMemGetDefaultMemPool null location",
        d.cuMemGetDefaultMemPool(&s.other_pool, nullptr,
                                 CU_MEM_ALLOCATION_TYPE_PINNED));
    ASK("cuMemGetMemPool null",
        d.cuMemGetMemPool(nullptr, nullptr, CU_MEM_ALLOCATION_TYPE_PINNED));
    ASK("cuMemGetMemPool null location",
        d.cuMemGetMemPool(&s.other_pool, nullptr,
                          CU_MEM_ALLOCATION_TYPE_PINNED));
    static cuuint64_t value = 1;
    ASK("cuDeviceSetMemPool no such device", d.cuDeviceSetMemPool(99, s.pool));
    ASK("cuMemSetMemPool null",
        d.cuMemSetMemPool(nullptr, CU_MEM_ALLOCATION_TYPE_PINNED, s.pool));
    ASK("cuMemPoolGetAttribute null value",
        d.cuMemPoolGetAttribute(s.pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                                nullptr));
    const CUmemAccessDesc nobody = {{CU_MEM_LOCATION_TYPE_DEVICE, {99}},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ASK("cuMemPoolSetAccess null", d.cuMemPoolSetAccess(s.pool, nullptr, 1));
    ASK("cuMemPoolSetAccess no such device",
        d.cuMemPoolSetAccess(s.pool, &nobody, 1));
    ASK("cuMemPoolSetAttribute of what is counted",
        d.cuMemPoolSetAttribute(s.pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                                &value));
    ASK("cuMemPoolSetAttribute the most, to what it is not",
        d.cuMemPoolSetAttribute(s.pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
    ASK("cuMemPoolTrimTo null", d.cuMemPoolTrimTo(nullptr, 0));
    ASK("cuMemPoolDestroy null", d.cuMemPoolDestroy(nullptr));
    ASK("cuMemPoolDestroy of the device's own", d.cuMemPoolDestroy(s.pool));
}

void about_graphs(questions &q)
{
    // The header gives this name to the version with flags.
    using instantiate =
        CUresult(CUgraphExec *, CUgraph, CUgraphNode *, char *, std::size_t);
    ASK("cuGraphInstantiate null graph",
        symbol<instantiate>("cuGraphInstantiate_v2", &s.exec, nullptr, nullptr,
                            nullptr, 0));
    ASK("cuGraphInstantiateWithFlags null",
        d.cuGraphInstantiate(nullptr, nullptr, 0));
    ASK("cuGraphInstantiateWithFlags null graph",
        d.cuGraphInstantiate(&s.exec, nullptr, 0));
    ASK("cuGraphInstantiateWithParams null graph",
        d.cuGraphInstantiateWithParams(&s.exec, nullptr, &s.graph_params));
    ASK("cuGraphRetainUserObject null",
        d.cuGraphRetainUserObject(nullptr, nullptr, 1, 0));
    ASK("cuGraphLaunch null", d.cuGraphLaunch(nullptr, s.stream));
    ASK("cuGraphUpload null", d.cuGraphUpload(nullptr, s.stream));
    ASK("cuGraphExecDestroy null", d.cuGraphExecDestroy(nullptr));
}

void about_nodes(questions &q)
{
    ASK("cuGraphAddMemcpyNode null place",
        d.cuGraphAddMemcpyNode(nullptr, s.made_graph(), nullptr, 0,
                               s.copy_to(s.large, 64), s.context));
    ASK("cuGraphAddMemcpyNode null copy",
        d.cuGraphAddMemcpyNode(&s.node, s.made_graph(), nullptr, 0, nullptr,
                               s.context));
    ASK("cuGraphAddMemcpyNode null dependencies",
        d.cuGraphAddMemcpyNode(&s.node, s.made_graph(), nullptr, 1,
                               s.copy_to(s.large, 64), s.context));
    ASK("cuGraphAddMemcpyNode into freed",
        d.cuGraphAddMemcpyNode(&s.node, s.made_graph(), nullptr, 0,
                               s.copy_to(s.freed, 64), s.context));
    ASK("cuGraphAddMemcpyNode past the end",
        d.cuGraphAddMemcpyNode(&s.node, s.made_graph(), nullptr, 0,
                               s.copy_to(s.spilled, spilled_bytes + 1),
                               s.context));
    ASK("cuGraphAddMemsetNode null fill",
        d.cuGraphAddMemsetNode(&s.node, s.made_graph(), nullptr, 0, nullptr,
                               s.context));
    ASK("cuGraphAddMemsetNode into freed",
        d.cuGraphAddMemsetNode(&s.node, s.made_graph(), nullptr, 0,
                               s.zeros_to(s.freed, 64), s.context));
    ASK("cuGraphAddMemsetNode of elements of 3",
        (s.zeros_to(s.spilled, 64), s.zeros.elementSize = 3,
         d.cuGraphAddMemsetNode(&s.node, s.made_graph(), nullptr, 0, &s.zeros,
                                s.context)));
    ASK("cuGraphAddNode null", d.cuGraphAddNode(&s.node, s.made_graph(),
                                                nullptr, nullptr, 0, nullptr));
    ASK("cuGraphAddNode into freed",
        d.cuGraphAddNode(&s.node, s.made_graph(), nullptr, nullptr, 0,
                         s.any_copy_to(s.freed, 64)));
    ASK("cuGraphAddNode past the end",
        d.cuGraphAddNode(&s.node, s.made_graph(), nullptr, nullptr, 0,
                         s.any_copy_to(s.spilled, spilled_bytes + 1)));
    ASK("cuGraphAddChildGraphNode null",
        d.cuGraphAddChildGraphNode(&s.node, s.made_graph(), nullptr, 0,
                                   nullptr));
    ASK("cuGraphMemcpyNodeGetParams null",
        d.cuGraphMemcpyNodeGetParams(s.made_copy_node(), nullptr));
    ASK("cuGraphMemcpyNodeGetParams of a fill",
        d.cuGraphMemcpyNodeGetParams(s.made_set_node(), &s.solid));
    ASK("cuGraphMemcpyNodeSetParams null",
        d.cuGraphMemcpyNodeSetParams(s.made_copy_node(), nullptr));
    ASK("cuGraphMemcpyNodeSetParams into freed",
        d.cuGraphMemcpyNodeSetParams(s.made_copy_node(),
                                     s.copy_to(s.freed, 64)));
    ASK("cuGraphMemcpyNodeSetParams of a fill",
        d.cuGraphMemcpyNodeSetParams(s.made_set_node(),
                                     s.copy_to(s.large, 64)));
    ASK("cuGraphMemsetNodeGetParams null",
        d.cuGraphMemsetNodeGetParams(s.made_set_node(), nullptr));
    ASK("cuGraphMemsetNodeSetParams null",
        d.cuGraphMemsetNodeSetParams(s.made_set_node(), nullptr));
    ASK("cuGraphMemsetNodeSetParams of a copy",
        d.cuGraphMemsetNodeSetParams(s.made_copy_node(),
                                     s.zeros_to(s.large, 64)));
    ASK("cuGraphNodeSetParams null",
        d.cuGraphNodeSetParams(s.made_copy_node(), nullptr));
    ASK("cuGraphNodeSetParams into freed",
        d.cuGraphNodeSetParams(s.made_copy_node(), s.any_copy_to(s.freed, 64)));
    ASK("cuGraphExecMemcpyNodeSetParams null copy",
        (s.made_copy_node(), d.cuGraphExecMemcpyNodeSetParams(
                                 s.made_exec(), s.node, nullptr, s.context)));
    ASK("cuGraphExecMemcpyNodeSetParams of several rows",
        (s.made_copy_node(), s.copy_to(s.large, 64), s.solid.Height = 2,
         d.cuGraphExecMemcpyNodeSetParams(s.made_exec(), s.node, &s.solid,
                                          s.context)));
    ASK("cuGraphExecMemcpyNodeSetParams into freed",
        (s.made_copy_node(),
         d.cuGraphExecMemcpyNodeSetParams(s.made_exec(), s.node,
                                          s.copy_to(s.freed, 64), s.context)));
    ASK("cuGraphExecMemsetNodeSetParams null fill",
        (s.made_set_node(), d.cuGraphExecMemsetNodeSetParams(
                                s.made_exec(), s.node, nullptr, s.context)));
    ASK("cuGraphExecMemsetNodeSetParams into freed",
        (s.made_set_node(),
         d.cuGraphExecMemsetNodeSetParams(s.made_exec(), s.node,
                                          s.zeros_to(s.freed, 64), s.context)));
    ASK("cuGraphExecChildGraphNodeSetParams null",
        (s.made_set_node(),
         d.cuGraphExecChildGraphNodeSetParams(s.made_exec(), s.node, nullptr)));
    ASK("cuGraphExecKernelNodeSetParams null",
        (s.made_copy_node(),
         d.cuGraphExecKernelNodeSetParams(s.made_exec(), s.node, nullptr)));
    CUDA_KERNEL_NODE_PARAMS no_kernel{};
    ASK("cuGraphExecKernelNodeSetParams no kernel",
        (s.made_copy_node(),
         d.cuGraphExecKernelNodeSetParams(s.made_exec(), s.node, &no_kernel)));
    ASK("cuGraphExecNodeSetParams null",
        (s.made_copy_node(),
         d.cuGraphExecNodeSetParams(s.made_exec(), s.node, nullptr)));
    ASK("cuGraphNodeSetEnabled null node",
        (s.made_copy_node(),
         d.cuGraphNodeSetEnabled(s.made_exec(), nullptr, 1)));
    ASK("cuGraphNodeGetEnabled null",
        (s.made_copy_node(),
         d.cuGraphNodeGetEnabled(s.made_exec(), s.node, nullptr)));
    using first_update = CUresult(CUgraphExec, CUgraph, CUgraphNode *,
                                  CUgraphExecUpdateResult *);
    ASK("cuGraphExecUpdate null graph",
        (s.made_copy_node(),
         d.cuGraphExecUpdate(s.made_exec(), nullptr, &s.update)));
    ASK("cuGraphExecUpdate_v1 null graph",
        (s.made_copy_node(),
         symbol<first_update>("cuGraphExecUpdate", s.made_exec(), nullptr,
                              &s.node, &s.update.result)));
    ASK("cuGraphAddDependencies null",
        d.cuGraphAddDependencies(s.made_graph(), nullptr, nullptr, nullptr, 1));
    ASK("cuGraphAddDependencies on itself",
        (s.made_copy_node(),
         d.cuGraphAddDependencies(s.graph, &s.node, &s.node, nullptr, 1)));
    ASK("cuGraphRemoveDependencies null",
        d.cuGraphRemoveDependencies(s.made_graph(), nullptr, nullptr, nullptr,
                                    1));
    ASK("cuGraphRemoveDependencies of no edge",
        (s.made_copy_node(),
         d.cuGraphRemoveDependencies(s.graph, &s.node, &s.node, nullptr, 1)));
    ASK("cuGraphClone null", d.cuGraphClone(&s.graph, nullptr));
    ASK("cuGraphClone null place", d.cuGraphClone(nullptr, s.made_graph()));
    ASK("cuGraphDestroyNode null", d.cuGraphDestroyNode(nullptr));
    ASK("cuGraphDestroy null", d.cuGraphDestroy(nullptr));
}

void about_batches(questions &q)
{
    ASK("cuMemcpyBatchAsync null",
        d.cuMemcpyBatchAsync(nullptr, nullptr, nullptr, 1, &s.how, &s.number, 1,
                             s.stream));
    ASK("cuMemcpyBatchAsync of none",
        (s.how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
         d.cuMemcpyBatchAsync(&s.large, &s.small, &s.other_number, 0, &s.how,
                              &s.number, 1, s.stream)));
    ASK("cuMemcpyBatchAsync without attributes",
        (s.other_number = 64,
         d.cuMemcpyBatchAsync(&s.large, &s.small, &s.other_number, 1, nullptr,
                              nullptr, 0, s.stream)));
    ASK("cuMemcpyBatchAsync on the default stream",
        (s.how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
         s.other_number = 64,
         d.cuMemcpyBatchAsync(&s.large, &s.small, &s.other_number, 1, &s.how,
                              &s.number, 1, nullptr)));
    ASK("cuMemcpyBatchAsync of attributes behind the last",
        (s.how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
         s.other_number = 64, s.number = 1,
         d.cuMemcpyBatchAsync(&s.large, &s.small, &s.other_number, 1, &s.how,
                              &s.number, 1, s.stream)));
    ASK("cuMemcpy3DBatchAsync null",
        d.cuMemcpy3DBatchAsync(1, nullptr, 0, s.stream));
    ASK("cuMemcpy3DBatchAsync of nothing",
        d.cuMemcpy3DBatchAsync(1, &s.batched, 0, s.stream));
}

void about_kernels(questions &q)
{
    ASK("cuModuleLoad null", d.cuModuleLoad(nullptr, "no such file"));
    ASK("cuModuleLoad no such file", d.cuModuleLoad(&s.module, "no such file"));
    ASK("cuModuleLoadData null", d.cuModuleLoadData(&s.module, nullptr));
    ASK("cuModuleLoadData no image",
        d.cuModuleLoadData(&s.module, s.host.data()));
    ASK("cuModuleLoadDataEx null",
        d.cuModuleLoadDataEx(&s.module, nullptr, 0, nullptr, nullptr));
    ASK("cuModuleLoadFatBinary null",
        d.cuModuleLoadFatBinary(&s.module, nullptr));
    ASK("cuModuleGetFunction null",
        d.cuModuleGetFunction(&s.function, nullptr, "add"));
    ASK("cuModuleGetFunction no such name",
        d.cuModuleGetFunction(&s.function, s.loaded(), "no such name"));
    ASK("cuModuleEnumerateFunctions null",
        d.cuModuleEnumerateFunctions(nullptr, 1, nullptr));
    ASK("cuLibraryLoadData null",
        d.cuLibraryLoadData(&s.code_library, nullptr, nullptr, nullptr, 0,
                            nullptr, nullptr, 0));
    ASK("cuLibraryLoadFromFile no such file",
        d.cuLibraryLoadFromFile(&s.code_library, "no such file", nullptr,
                                nullptr, 0, nullptr, nullptr, 0));
    ASK("cuLibraryGetKernel null",
        d.cuLibraryGetKernel(&s.kernel, nullptr, "add"));
    ASK("cuLibraryGetModule null", d.cuLibraryGetModule(&s.module, nullptr));
    ASK("cuLibraryEnumerateKernels null",
        d.cuLibraryEnumerateKernels(nullptr, 1, nullptr));
    ASK("cuKernelGetFunction null",
        d.cuKernelGetFunction(&s.function, nullptr));
    ASK("cuModuleUnload null", d.cuModuleUnload(nullptr));
    ASK("cuLibraryUnload null", d.cuLibraryUnload(nullptr));
    ASK("cuLaunchKernel null", d.cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0,
                                                s.stream, nullptr, nullptr));
    ASK("cuLaunchKernel no blocks",
        d.cuLaunchKernel(s.found(), 0, 1, 1, 1, 1, 1, 0, s.stream, s.nothing(),
                         nullptr));
    ASK("cuLaunchKernel too many threads",
        d.cuLaunchKernel(s.found(), 1, 1, 1, 1025, 1, 1, 0, s.stream,
                         s.nothing(), nullptr));
    ASK("cuLaunchKernelEx null",
        d.cuLaunchKernelEx(nullptr, nullptr, nullptr, nullptr));
    ASK("cuLaunchCooperativeKernel null",
        d.cuLaunchCooperativeKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, s.stream,
                                    nullptr));
    ASK("cuTexObjectCreate null",
        d.cuTexObjectCreate(nullptr, nullptr, nullptr, nullptr));
    ASK("cuTexRefSetAddress null",
        d.cuTexRefSetAddress(&s.number, nullptr, s.large, 64));
    ASK("cuTexRefSetAddress2D null",
        d.cuTexRefSetAddress2D(nullptr, nullptr, s.large, 64));
    ASK("cuMemGetHandleForAddressRange null",
        d.cuMemGetHandleForAddressRange(nullptr, s.large, large_bytes,
                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                        0));
}

void about_host_memory(questions &q)
{
    ASK("cuMemHostAlloc null", d.cuMemHostAlloc(nullptr, 4096, 0));
    ASK("cuMemHostAlloc zero", d.cuMemHostAlloc(&s.address, 0, 0));
    ASK("cuMemAllocHost null",
        symbol<CUresult(void **, unsigned)>("cuMemAllocHost", nullptr, 4096U));
    ASK("cuMemAllocHost_v2 null",
        symbol<CUresult(void **, std::size_t)>("cuMemAllocHost_v2", nullptr,
                                               std::size_t{4096}));
    ASK("cuMemFreeHost wild", d.cuMemFreeHost(s.host.data()));
    ASK("cuMemHostRegister null", d.cuMemHostRegister(nullptr, 4096, 0));
    ASK("cuMemHostRegister zero", d.cuMemHostRegister(s.host.data(), 0, 0));
    ASK("cuMemHostUnregister wild", d.cuMemHostUnregister(s.host.data()));
}

void about_contexts(questions &q)
{
    using of_context = CUresult(CUcontext);
    using of_device = CUresult(CUdevice);
    for (const char *name : {"cuCtxDestroy", "cuCtxDestroy_v2"}) {
        ASK(name + std::string(" null"), symbol<of_context>(name, nullptr));
        ASK(name + std::string(" primary"),
            symbol<of_context>(name, s.context));
    }
    ASK("cuCtxAttach null",
        symbol<CUresult(CUcontext *, unsigned)>("cuCtxAttach", nullptr, 0));
    ASK("cuCtxDetach null", symbol<of_context>("cuCtxDetach", nullptr));
    ASK("cuCtxEnablePeerAccess null", d.cuCtxEnablePeerAccess(nullptr, 0));
    ASK("cuCtxEnablePeerAccess flags", d.cuCtxEnablePeerAccess(s.context, 1));
    ASK("cuCtxDisablePeerAccess null", d.cuCtxDisablePeerAccess(nullptr));
    for (const char *name :
         {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2",
          "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"})
        ASK(name + std::string(" no such device"), symbol<of_device>(name, 99));
    ASK("cuDevicePrimaryCtxRelease twice",
        (s.must(d.cuDevicePrimaryCtxRelease(0)),
         d.cuDevicePrimaryCtxRelease(0)));
    ASK("cuDevicePrimaryCtxReset of one in use", d.cuDevicePrimaryCtxReset(0));
}

// A child's answer, in memory that it shares with its parent.
struct answer
{
    bool given;
    CUresult result;
    CUresult afterwards;
};

[[noreturn]] void child(const question &one, answer &out)
{
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    alarm(time_limit);
    scene s;
    out.result = one.ask(s);
    out.afterwards = s.sound();
    out.given = true;
    // Exit without the driver's own end, which is not part of the question.
    std::_Exit(0);
}

std::string name_of(CUresult result)
{
    // The driver has the names, but this process must not open it.
    static const std::map<int, const char *> names{
        {CUDA_SUCCESS, "success"},
        {CUDA_ERROR_INVALID_VALUE, "invalid value"},
        {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
        {CUDA_ERROR_NOT_INITIALIZED, "not initialised"},
        {CUDA_ERROR_INVALID_DEVICE, "invalid device"},
        {CUDA_ERROR_INVALID_CONTEXT, "invalid context"},
        {CUDA_ERROR_INVALID_HANDLE, "invalid handle"},
        {CUDA_ERROR_NOT_FOUND, "not found"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "illegal address"},
        {CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"},
        {CUDA_ERROR_NOT_PERMITTED, "not permitted"},
        {CUDA_ERROR_NOT_SUPPORTED, "not supported"},
    };
    const auto found = names.find(result);
    return std::to_string(result) +
           (found == names.end() ? "" : std::string(" ") + found->second);
}

std::string line_of(const answer &one, int status)
{
    if (WIFSIGNALED(status))
        return "killed by signal " + std::to_string(WTERMSIG(status));
    if (!one.given)
        return "ended with status " + std::to_string(WEXITSTATUS(status));
    std::string out = name_of(one.result);
    if (one.afterwards != CUDA_SUCCESS)
        out += ", and then " + name_of(one.afterwards);
    return out;
}

int ask_all(const questions &all)
{
    const std::size_t bytes = all.size() * sizeof(answer);
    void *const shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        std::perror("answers: mmap");
        return 1;
    }
    auto *const answers = static_cast<answer *>(shared);
    std::vector<int> statuses(all.size());
    std::map<pid_t, std::size_t> running;
    const unsigned most =
        std::clamp(std::thread::hardware_concurrency(), 1U, side_by_side);
    for (std::size_t next = 0; next < all.size() || !running.empty();) {
        if (next < all.size() && running.size() < most) {
            const pid_t pid = fork();
            if (pid < 0) {
                std::perror("answers: fork");
                return 1;
            }
            if (pid == 0)
                child(all[next], answers[next]);
            running[pid] = next++;
            continue;
        }
        int status = 0;
        const pid_t pid = wait(&status);
        const auto found = running.find(pid);
        if (found == running.end())
            continue;
        statuses[found->second] = status;
        running.erase(found);
    }
    for (std::size_t i = 0; i < all.size(); ++i)
        std::printf("%s: %s\n", all[i].what.c_str(),
                    line_of(answers[i], statuses[i]).c_str());
    return 0;
}

} // namespace
} // namespace harness

int main()
{
    harness::questions all;
    harness::about_starting(all);
    harness::about_allocations(all);
    harness::about_stream_order(all);
    harness::about_streams(all);
    harness::about_handles(all);
    harness::about_arrays(all);
    harness::about_addresses(all);
    harness::about_copies(all);
    harness::about_other_copies(all);
    harness::about_pools(all);
    harness::about_graphs(all);
    harness::about_nodes(all);
    harness::about_batches(all);
    harness::about_kernels(all);
    harness::about_host_memory(all);
    harness::about_contexts(all);
    return harness::ask_all(all);
}

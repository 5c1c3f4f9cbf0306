// SPDX-License-Identifier: GPL-2.0-or-later
// Entry points by name, in the version and for the default stream asked for.
#include "state.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include <dlfcn.h>

namespace sim {

namespace {

// Names with a newer version that takes other arguments, and the first CUDA
// version that has it. All other names mean their highest exported version.
struct version
{
    const char *name;
    int since;
    const char *symbol;
};

constexpr version versions[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"},
    {"cuCtxGetDevice", 2000, "cuCtxGetDevice"},
    {"cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"},
    {"cuCtxSynchronize", 2000, "cuCtxSynchronize"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuEventElapsedTime", 2000, "cuEventElapsedTime"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGetProcAddress", 11030, "cuGetProcAddress"},
    {"cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"},
    {"cuGraphAddDependencies", 10000, "cuGraphAddDependencies"},
    {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
    {"cuGraphAddKernelNode", 10000, "cuGraphAddKernelNode"},
    {"cuGraphExecKernelNodeSetParams", 12000,
     "cuGraphExecKernelNodeSetParams_v2"},
    {"cuGraphExecKernelNodeSetParams", 10010, "cuGraphExecKernelNodeSetParams"},
    {"cuGraphAddNode", 12030, "cuGraphAddNode_v2"},
    {"cuGraphAddNode", 12020, "cuGraphAddNode"},
    {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"},
    {"cuGraphExecUpdate", 10020, "cuGraphExecUpdate"},
    {"cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"},
    {"cuGraphGetEdges", 10000, "cuGraphGetEdges"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"},
    {"cuGraphInstantiate", 10000, "cuGraphInstantiate"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"},
    {"cuGraphKernelNodeGetParams", 10000, "cuGraphKernelNodeGetParams"},
    {"cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams_v2"},
    {"cuGraphKernelNodeSetParams", 10000, "cuGraphKernelNodeSetParams"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"},
    {"cuGraphNodeGetDependencies", 10000, "cuGraphNodeGetDependencies"},
    {"cuGraphRemoveDependencies", 12030, "cuGraphRemoveDependencies_v2"},
    {"cuGraphRemoveDependencies", 10000, "cuGraphRemoveDependencies"},
    {"cuLaunchHostFunc", 99000, "cuLaunchHostFuncOfTomorrow"},
    {"cuLaunchHostFunc", 10000, "cuLaunchHostFunc"},
    {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
    {"cuMemAdvise", 8000, "cuMemAdvise"},
    {"cuMulticastBindAddr", 99000, "cuMulticastBindAddrOfTomorrow"},
    {"cuMulticastBindAddr", 12010, "cuMulticastBindAddr"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
    {"cuMemPrefetchAsync", 8000, "cuMemPrefetchAsync"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCaptureInfo", 10010, "cuStreamGetCaptureInfo"},
    {"cuStreamGetCtx", 12050, "cuStreamGetCtx_v2"},
    {"cuStreamGetCtx", 9020, "cuStreamGetCtx"},
    {"cuStreamUpdateCaptureDependencies", 12030,
     "cuStreamUpdateCaptureDependencies_v2"},
    {"cuStreamUpdateCaptureDependencies", 11030,
     "cuStreamUpdateCaptureDependencies"},
    {"cuMemcpy3DBatchAsync", 13000, "cuMemcpy3DBatchAsync_v2"},
    {"cuMemcpy3DBatchAsync", 12080, "cuMemcpy3DBatchAsync"},
    {"cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"},
    {"cuMemcpyBatchAsync", 12080, "cuMemcpyBatchAsync"},
};

void *lookup(const std::string &symbol, bool per_thread)
{
    // This library itself, whichever other stands in front of it: in front of
    // dlopen(), too.
    static void *const self = [] {
        Dl_info info{};
        dladdr(reinterpret_cast<void *>(&emuv_sim_get), &info);
        return dlmopen(LM_ID_BASE, info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }();
    if (per_thread)
        for (const char *suffix : {"_ptsz", "_ptds"})
            if (void *found = dlsym(self, (symbol + suffix).c_str()))
                return found;
    return dlsym(self, symbol.c_str());
}

struct found
{
    void *address;
    bool too_old; // what asks, for any version of the entry point
};

found entry_point(const std::string &name, int version, bool per_thread)
{
    bool listed = false;
    for (const auto &one : versions) {
        if (name != one.name)
            continue;
        listed = true;
        if (version >= one.since)
            return {lookup(one.symbol, per_thread), false};
    }
    if (listed)
        return {nullptr, true};
    for (const char *suffix : {"_v3", "_v2", ""})
        if (void *address = lookup(name + suffix, per_thread))
            return {address, false};
    return {nullptr, false};
}

} // namespace
} // namespace sim

using namespace sim;

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion,
                          cuuint64_t flags,
                          CUdriverProcAddressQueryResult *symbolStatus)
{
    if (!symbol || !pfn ||
        (flags & ~static_cast<cuuint64_t>(
                     CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                     CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)))
        return CUDA_ERROR_INVALID_VALUE;
    const bool is_ours = std::strncmp(symbol, "cu", 2) == 0;
    const found one =
        is_ours
            ? entry_point(symbol, cudaVersion,
                          flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
            : found{nullptr, false};
    *pfn = one.address;
    if (symbolStatus)
        *symbolStatus = one.address ? CU_GET_PROC_ADDRESS_SUCCESS
                        : one.too_old
                            ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#undef cuGetProcAddress
SIM_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn,
                                     int cudaVersion, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
}

// There is one table, of no functions.
CUresult cuGetExportTable(const void **ppExportTable,
                          const CUuuid *pExportTableId)
{
    if (!ppExportTable || !pExportTableId)
        return CUDA_ERROR_INVALID_VALUE;
    static const std::size_t table = sizeof table;
    const bool there = std::all_of(
        std::begin(pExportTableId->bytes), std::end(pExportTableId->bytes),
        [](unsigned char each) { return each == 0x51; });
    *ppExportTable = there ? &table : nullptr;
    return there ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuProfilerStart()
{
    SIM_ENTER(context);
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop()
{
    SIM_ENTER(context);
    return CUDA_SUCCESS;
}

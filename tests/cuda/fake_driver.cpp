// SPDX-License-Identifier: GPL-2.0-or-later
// The few driver calls that the core makes, answered from tables.
#include "fake_driver.hpp"

#include <cstdlib>
#include <utility>

namespace {

FakeDriver *card;

using Guard = std::lock_guard<std::mutex>;

CUevent event_of(int number)
{
    return reinterpret_cast<CUevent>(static_cast<std::uintptr_t>(number));
}

CUresult create(CUmemGenericAllocationHandle *handle, std::size_t bytes,
                const CUmemAllocationProp *properties, unsigned long long)
{
    const Guard guard(card->lock);
    const bool host =
        properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    const bool peer = !host && properties->location.id != 0;
    auto &used = host   ? card->host_used
                 : peer ? card->peer_used
                        : card->card_used;
    const auto limit = host   ? card->host_bytes
                       : peer ? card->peer_bytes
                              : card->card_bytes;
    if (bytes == 0 || bytes % (2 << 20) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > limit - used) {
        card->host_refused += host ? 1 : 0;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    used += bytes;
    *handle = card->next_handle++;
    card->handles[*handle] = {bytes, host, peer};
    return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle)
{
    const Guard guard(card->lock);
    const auto found = card->handles.find(handle);
    if (found == card->handles.end())
        return CUDA_ERROR_INVALID_VALUE;
    for (const auto &[at, which] : card->mapped)
        if (which == handle)
            std::abort(); // the core unmaps first
    (found->second.host   ? card->host_used
     : found->second.peer ? card->peer_used
                          : card->card_used) -= found->second.bytes;
    card->handles.erase(found);
    return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t,
             CUmemGenericAllocationHandle handle, unsigned long long)
{
    const Guard guard(card->lock);
    if (card->fail_map)
        return CUDA_ERROR_UNKNOWN;
    auto range = card->reserved.upper_bound(at);
    if (range == card->reserved.begin())
        return CUDA_ERROR_INVALID_VALUE;
    --range;
    const auto found = card->handles.find(handle);
    if (found == card->handles.end() || found->second.bytes != bytes ||
        at + bytes > range->first + range->second || card->mapped.contains(at))
        return CUDA_ERROR_INVALID_VALUE;
    card->mapped[at] = handle;
    return CUDA_SUCCESS;
}

} // namespace

FakeDriver::FakeDriver()
{
    card = this;
    calls.cuCtxGetCurrent = [](CUcontext *context) {
        *context = reinterpret_cast<CUcontext>(0x10);
        return CUDA_SUCCESS;
    };
    calls.cuCtxGetDevice = [](CUdevice *device) {
        *device = 0;
        return CUDA_SUCCESS;
    };
    calls.cuCtxSynchronize = [] {
        card->synchronized++;
        return CUDA_SUCCESS;
    };
    calls.cuDeviceGetAttribute = [](int *value, CUdevice_attribute, CUdevice) {
        *value = 0;
        return CUDA_SUCCESS;
    };
    calls.cuEventCreate = [](CUevent *event, unsigned) {
        *event = event_of(1);
        return CUDA_SUCCESS;
    };
    calls.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    calls.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    calls.cuEventQuery = [](CUevent) {
        return card->events_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    calls.cuEventSynchronize = [](CUevent) { return CUDA_SUCCESS; };
    calls.cuEventElapsedTime = [](float *milliseconds, CUevent, CUevent) {
        const bool shared = card->shares_link && card->timed++ % 3 != 1;
        *milliseconds = card->elapsed_milliseconds * (shared ? 1.5F : 1.0F);
        return CUDA_SUCCESS;
    };
    calls.cuMemcpyDtoDAsync_v2 = [](CUdeviceptr, CUdeviceptr, std::size_t,
                                    CUstream) { return CUDA_SUCCESS; };
    calls.cuStreamCreate = [](CUstream *stream, unsigned) {
        *stream = reinterpret_cast<CUstream>(0x20);
        return CUDA_SUCCESS;
    };
    calls.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    calls.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus *status) {
        *status = card->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                  : CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    };
    calls.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode *mode) {
        std::swap(*mode, FakeDriver::capture_mode);
        return CUDA_SUCCESS;
    };
    calls.cuMemGetInfo_v2 = [](std::size_t *free, std::size_t *total) {
        *total = card->card_bytes;
        *free = card->card_bytes - card->card_used;
        return CUDA_SUCCESS;
    };
    calls.cuStreamGetCtx = [](CUstream, CUcontext *context) {
        return card->calls.cuCtxGetCurrent(context);
    };
    calls.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    calls.cuCtxPopCurrent_v2 = [](CUcontext *) { return CUDA_SUCCESS; };
    calls.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
    calls.cuDeviceGetMemPool = [](CUmemoryPool *pool, CUdevice) {
        *pool = reinterpret_cast<CUmemoryPool>(0x30);
        return CUDA_SUCCESS;
    };
    calls.cuDeviceGetDefaultMemPool = calls.cuDeviceGetMemPool;
    calls.cuMemPoolGetAttribute = [](CUmemoryPool, CUmemPool_attribute which,
                                     void *value) {
        if (which != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
            return CUDA_ERROR_INVALID_VALUE;
        *static_cast<cuuint64_t *>(value) = card->pool_reserved;
        return CUDA_SUCCESS;
    };
    calls.cuMemPoolTrimTo = [](CUmemoryPool, std::size_t) {
        card->pool_reserved = card->pool_used;
        return CUDA_SUCCESS;
    };
    calls.cuMemFreeAsync = [](CUdeviceptr at, CUstream) {
        card->freed_async++;
        return card->calls.cuMemFree_v2(at);
    };
    calls.cuDeviceGetGraphMemAttribute =
        [](CUdevice, CUgraphMem_attribute which, void *value) {
            if (which != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
                return CUDA_ERROR_INVALID_VALUE;
            *static_cast<cuuint64_t *>(value) = card->graph_reserved;
            return CUDA_SUCCESS;
        };
    calls.cuDeviceGraphMemTrim = [](CUdevice) {
        card->graph_reserved = card->graph_used;
        return CUDA_SUCCESS;
    };
    calls.cuGraphGetNodes = [](CUgraph, CUgraphNode *nodes,
                               std::size_t *count) {
        *count = card->graph_nodes.size();
        for (std::size_t i = 0; nodes != nullptr && i < *count; i++)
            nodes[i] = reinterpret_cast<CUgraphNode>(&card->graph_nodes[i]);
        return CUDA_SUCCESS;
    };
    calls.cuGraphNodeGetType = [](CUgraphNode, CUgraphNodeType *type) {
        *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        return CUDA_SUCCESS;
    };
    calls.cuGraphMemAllocNodeGetParams =
        [](CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *wanted) {
            *wanted = {};
            wanted->bytesize = *reinterpret_cast<std::uint64_t *>(node);
            return CUDA_SUCCESS;
        };
    calls.cuMemAddressReserve = [](CUdeviceptr *at, std::size_t bytes,
                                   std::size_t, CUdeviceptr,
                                   unsigned long long) {
        const Guard guard(card->lock);
        *at = card->next_address;
        card->next_address += bytes + (64 << 20);
        card->reserved[*at] = bytes;
        return CUDA_SUCCESS;
    };
    calls.cuMemAddressFree = [](CUdeviceptr at, std::size_t bytes) {
        const Guard guard(card->lock);
        const auto found = card->reserved.find(at);
        if (found == card->reserved.end() || found->second != bytes)
            return CUDA_ERROR_INVALID_VALUE;
        card->reserved.erase(found);
        return CUDA_SUCCESS;
    };
    calls.cuMemCreate = create;
    calls.cuMemRelease = release;
    calls.cuMemMap = map;
    calls.cuMemUnmap = [](CUdeviceptr at, std::size_t) {
        const Guard guard(card->lock);
        return card->mapped.erase(at) == 1 ? CUDA_SUCCESS
                                           : CUDA_ERROR_INVALID_VALUE;
    };
    calls.cuMemSetAccess = [](CUdeviceptr at, std::size_t bytes,
                              const CUmemAccessDesc *, std::size_t) {
        const Guard guard(card->lock);
        if (card->fail_access)
            return CUDA_ERROR_UNKNOWN;
        card->accessible[at] = bytes;
        return CUDA_SUCCESS;
    };
    calls.cuMemAlloc_v2 = [](CUdeviceptr *at, std::size_t bytes) {
        const Guard guard(card->lock);
        if (bytes > card->card_bytes - card->card_used)
            return CUDA_ERROR_OUT_OF_MEMORY;
        card->card_used += bytes;
        *at = card->next_address;
        card->next_address += (bytes + 511) & ~std::uint64_t{511};
        card->plain[*at] = bytes;
        return CUDA_SUCCESS;
    };
    calls.cuMemFree_v2 = [](CUdeviceptr at) {
        const Guard guard(card->lock);
        const auto found = card->plain.find(at);
        if (found == card->plain.end())
            return CUDA_ERROR_INVALID_VALUE;
        card->card_used -= found->second;
        card->plain.erase(found);
        return CUDA_SUCCESS;
    };
    calls.cuMemAllocPitch_v2 = [](CUdeviceptr *at, std::size_t *pitch,
                                  std::size_t width, std::size_t height,
                                  unsigned element_bytes) {
        if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
            return CUDA_ERROR_INVALID_VALUE;
        // As an H200's driver has it of more than an address can count.
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(width, height, &bytes) ||
            bytes > SIZE_MAX / 2)
            return CUDA_ERROR_INVALID_VALUE;
        *pitch = (width + 511) / 512 * 512;
        return card->calls.cuMemAlloc_v2(at, *pitch * height);
    };
}

FakeDriver::~FakeDriver()
{
    card = nullptr;
}

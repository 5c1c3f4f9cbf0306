// SPDX-License-Identifier: GPL-2.0-or-later
// Names of results.
#include "cuda.hpp"

namespace {

struct text
{
    CUresult code;
    const char *name;
    const char *words;
};

#define SIM_ERROR(name, words)                                                 \
    {                                                                          \
        name, #name, words                                                     \
    }
constexpr text texts[] = {
    SIM_ERROR(CUDA_SUCCESS, "no error"),
    SIM_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    SIM_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    SIM_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    SIM_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    SIM_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    SIM_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    SIM_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    SIM_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    SIM_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    SIM_ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    SIM_ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    SIM_ERROR(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    SIM_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
              "no kernel image is available for execution on the device"),
    SIM_ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    SIM_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    SIM_ERROR(CUDA_ERROR_OPERATING_SYSTEM,
              "OS call failed or operation not supported on this OS"),
    SIM_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    SIM_ERROR(CUDA_ERROR_ILLEGAL_STATE,
              "the operation cannot be performed in the present state"),
    SIM_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    SIM_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    SIM_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS,
              "an illegal memory access was encountered"),
    SIM_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
              "peer access is already enabled"),
    SIM_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
              "peer access has not been enabled"),
    SIM_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
              "cannot set while device is active in this process"),
    SIM_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    SIM_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
              "part or all of the requested memory range is already mapped"),
    SIM_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
              "pointer does not correspond to a registered memory region"),
    SIM_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    SIM_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    SIM_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              "operation not permitted when stream is capturing"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
              "operation failed due to a previous error during capture"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
              "operation would result in a merge of separate captures"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
              "capture was not ended in the same stream as it began"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
              "capturing stream has unjoined work"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
              "dependency created on uncaptured work in another stream"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
              "operation would make the legacy stream depend on a capturing "
              "blocking stream"),
    SIM_ERROR(CUDA_ERROR_CAPTURED_EVENT,
              "operation not permitted on an event last recorded in a "
              "capturing stream"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
              "attempt to terminate a thread-local capture sequence from "
              "another thread"),
    SIM_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
              "the graph update was not performed because it included "
              "changes which violated constraints specific to instantiated "
              "graph update"),
    SIM_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

const text *find(CUresult code)
{
    for (const text &one : texts)
        if (one.code == code)
            return &one;
    return nullptr;
}

} // namespace

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    const text *one = find(error);
    *pStr = one ? one->name : nullptr;
    return one ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    const text *one = find(error);
    *pStr = one ? one->words : nullptr;
    return one ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

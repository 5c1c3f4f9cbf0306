// SPDX-License-Identifier: LGPL-2.1-or-later
// cuGetProcAddress: which of our functions stands for a name and a version; and
// functions of the driver's that have no names.
#include "hooks/callers.hpp"
#include "hooks/session.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

// The refused ones are forwarders, which no header declares under our name.
#define EMUV_PROCEDURE(name, base, version, ptsz)                              \
    extern "C" void emuv_address_##name() __asm__(#name);
#include "symbols.inc"

namespace emuv::cuda {

namespace {

struct procedure
{
    std::string_view base;
    int version;
    bool per_thread;
    void (*own)();
    const char *symbol_name;
};

constexpr procedure procedures[] = {
#define EMUV_PROCEDURE(name, base, version, ptsz)                              \
    {base, version, ptsz, emuv_address_##name, #name},
#include "symbols.inc"
};

template <std::size_t count>
bool is_among(std::string_view name, const std::string_view (&names)[count])
{
    return std::find(names, names + count, name) != names + count;
}

// True if a function of which only the name is known is harmless. None is taken
// to be that is not known to be: the device may work on memory, or keep work
// for later.
bool is_harmless(std::string_view name)
{
    // Questions, and functions that reach no memory of the device's.
    static constexpr std::string_view families[] = {
        "cuCoredump",  "cuCtxGet",       "cuDeviceGet", "cuEventGet",
        "cuFuncGet",   "cuGraphExecGet", "cuGraphGet",  "cuGraphNodeGet",
        "cuKernelGet", "cuLibraryGet",   "cuLogs",      "cuModuleGet",
        "cuOccupancy", "cuProfiler",     "cuStreamGet",
    };
    static constexpr std::string_view names[] = {
        "cuDevSmResourceSplit",
        "cuEventElapsedTime",
        "cuGetErrorName",
        "cuGetErrorString",
    };
    return is_among(name, names) ||
           std::any_of(std::begin(families), std::end(families),
                       [name](std::string_view each) {
                           return name.starts_with(each);
                       });
}

// Other things that a stream waits for, in memory of the program's own.
constexpr std::string_view waits[] = {
    "cuLaunchHostFunc",
    "cuStreamAddCallback",
    "cuStreamWaitEvent",
    "cuWaitExternalSemaphoresAsync",
};

newer_does what_does(std::string_view name)
{
    newer_does out;
    out.allocate =
        name.find("Alloc") != std::string_view::npos || name == "cuMemCreate";
    out.wait = is_among(name, waits);
    out.work = !out.allocate && !out.wait && !is_harmless(name);
    return out;
}

bool is_known(std::string_view name)
{
    static constexpr const char *names[] = {
#define EMUV_SYMBOL(name) #name,
#include "symbols.inc"
    };
    for (const char *known : names)
        if (name == known)
            return true;
    return false;
}

// True if our headers do not have the function, or have an older one by its
// name.
bool is_newer(const char *name, int version, bool per_thread, void *real)
{
    if (!is_known(name))
        return true;
    if (version <= CUDA_VERSION)
        return false;
    void *known = nullptr;
    CUdriverProcAddressQueryResult status;
    return EMUV_REAL(cuGetProcAddress_v2)(
               name, &known, CUDA_VERSION,
               per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                          : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
               &status) != CUDA_SUCCESS ||
           known != real;
}

} // namespace

void *own_procedure(const char *name, int version, bool per_thread, void *real)
{
    // The newest of the versions that the program's headers know; if that has
    // two stream variants, the one it asked for.
    const procedure *chosen = nullptr;
    for (const procedure &each : procedures) {
        if (each.base != name || each.version > version ||
            (each.per_thread && !per_thread))
            continue;
        if (chosen == nullptr || each.version > chosen->version ||
            (each.version == chosen->version && each.per_thread))
            chosen = &each;
    }
    if (is_newer(name, version, per_thread, real)) {
        const newer_does does = what_does(name);
        return does.any() ? newer_function(name, real, does) : real;
    }
    if (chosen == nullptr)
        return real;
    return reinterpret_cast<void *>(chosen->own);
}

} // namespace emuv::cuda

using namespace emuv::cuda;

namespace {

bool asks_per_thread(cuuint64_t flags)
{
    return (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
}

} // namespace

CUresult cuGetProcAddress(const char *name, void **address, int version,
                          cuuint64_t flags)
{
    const CUresult result =
        EMUV_REAL(cuGetProcAddress)(name, address, version, flags);
    if (result == CUDA_SUCCESS && address != nullptr && *address != nullptr)
        *address =
            own_procedure(name, version, asks_per_thread(flags), *address);
    return result;
}

CUresult cuGetProcAddress_v2(const char *name, void **address, int version,
                             cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    const CUresult result =
        EMUV_REAL(cuGetProcAddress_v2)(name, address, version, flags, status);
    if (result == CUDA_SUCCESS && address != nullptr && *address != nullptr)
        *address =
            own_procedure(name, version, asks_per_thread(flags), *address);
    return result;
}

// CUDA's runtime and tools ask for such tables, and do nothing behind our back.
CUresult cuGetExportTable(const void **table, const CUuuid *which)
{
    const CUresult result = EMUV_REAL(cuGetExportTable)(table, which);
    if (result == CUDA_SUCCESS)
        if (const char *const library =
                private_worker_at(__builtin_return_address(0)))
            work_private(library);
    return result;
}

// SPDX-License-Identifier: LGPL-2.1-or-later
// cuGetProcAddress: which of our functions stands for a name and a version.
#include "hooks/session.hpp"

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

bool hands_out_memory(std::string_view name)
{
    return name.find("Alloc") != std::string_view::npos ||
           name == "cuMemCreate";
}

// Whether it does work on memory, or keeps work for later.
bool works_on_memory(std::string_view name)
{
    static constexpr std::string_view prefixes[] = {
        "cuMemcpy",      "cuMemset",           "cuMemPrefetch",
        "cuMemDiscard",  "cuLaunch",           "cuGraphLaunch",
        "cuMemBatch",    "cuStreamWriteValue", "cuStreamBatchMemOp",
        "cuStreamBegin",
    };
    for (const std::string_view each : prefixes)
        if (name.starts_with(each))
            return true;
    return false;
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

} // namespace

void *own_procedure(const char *name, int version, bool per_thread, void *real)
{
    // Of the versions that the program's headers know, the newest; of that,
    // the stream variant it asked for, where there are two.
    const procedure *chosen = nullptr;
    for (const procedure &each : procedures) {
        if (each.base != name || each.version > version ||
            (each.per_thread && !per_thread))
            continue;
        if (chosen == nullptr || each.version > chosen->version ||
            (each.version == chosen->version && each.per_thread))
            chosen = &each;
    }
    if (chosen == nullptr) {
        const newer_does does{hands_out_memory(name), works_on_memory(name)};
        return (does.allocate || does.work) && !is_known(name)
                   ? newer_function(name, real, does)
                   : real;
    }
    // A driver newer than our headers may have given the name a new meaning.
    if (version > CUDA_VERSION && real != real_address(chosen->symbol_name)) {
        void *known = nullptr;
        CUdriverProcAddressQueryResult status;
        if (EMUV_REAL(cuGetProcAddress_v2)(
                name, &known, CUDA_VERSION,
                per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                           : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                &status) != CUDA_SUCCESS ||
            known != real)
            return newer_function(name, real, {true, true});
    }
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

// SPDX-License-Identifier: LGPL-2.1-or-later
// Modules and libraries: the origin of a kernel decides whether it is trusted.
#include "hooks/session.hpp"

using namespace emuv::cuda;

namespace {

// A handle, by the place that the driver wrote it to.
template <typename Handle>
const void *made_at(const Handle *at)
{
    return at != nullptr ? static_cast<const void *>(*at) : nullptr;
}

CUcontext current(const entry &ours)
{
    CUcontext context = nullptr;
    ours->calls.cuCtxGetCurrent(&context);
    return context;
}

void loaded(const entry &ours, const CUmodule *module, const void *image,
            const void *caller)
{
    ours->kernels->loaded(made_at(module), image, caller, current(ours));
}

} // namespace

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuModuleLoad)(module, path);
    if (ours && result == CUDA_SUCCESS)
        loaded(ours, module, nullptr, __builtin_return_address(0));
    return result;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuModuleLoadData)(module, image);
    if (ours && result == CUDA_SUCCESS)
        loaded(ours, module, image, __builtin_return_address(0));
    return result;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuModuleLoadDataEx)(module, image, count, options, values);
    if (ours && result == CUDA_SUCCESS)
        loaded(ours, module, image, __builtin_return_address(0));
    return result;
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuModuleLoadFatBinary)(module, image);
    if (ours && result == CUDA_SUCCESS)
        loaded(ours, module, image, __builtin_return_address(0));
    return result;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuModuleGetFunction)(function, module, name);
    if (ours && result == CUDA_SUCCESS)
        ours->kernels->derived(module, made_at(function));
    return result;
}

CUresult cuModuleEnumerateFunctions(CUfunction *made, unsigned count,
                                    CUmodule module)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuModuleEnumerateFunctions)(made, count, module);
    for (unsigned i = 0; ours && result == CUDA_SUCCESS && i < count; i++)
        ours->kernels->derived(module, made[i]);
    return result;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code,
                           CUjit_option *jit, void **jit_values, unsigned jits,
                           CUlibraryOption *options, void **values,
                           unsigned count)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuLibraryLoadData)(
        library, code, jit, jit_values, jits, options, values, count);
    if (ours && result == CUDA_SUCCESS)
        ours->kernels->loaded(made_at(library), code,
                              __builtin_return_address(0), nullptr);
    return result;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path,
                               CUjit_option *jit, void **jit_values,
                               unsigned jits, CUlibraryOption *options,
                               void **values, unsigned count)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuLibraryLoadFromFile)(
        library, path, jit, jit_values, jits, options, values, count);
    if (ours && result == CUDA_SUCCESS)
        ours->kernels->loaded(made_at(library), nullptr,
                              __builtin_return_address(0), nullptr);
    return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library,
                            const char *name)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuLibraryGetKernel)(kernel, library, name);
    if (ours && result == CUDA_SUCCESS)
        ours->kernels->derived(library, made_at(kernel));
    return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel *made, unsigned count,
                                   CUlibrary library)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuLibraryEnumerateKernels)(made, count, library);
    for (unsigned i = 0; ours && result == CUDA_SUCCESS && i < count; i++)
        ours->kernels->derived(library, made[i]);
    return result;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuLibraryGetModule)(module, library);
    if (ours && result == CUDA_SUCCESS)
        ours->kernels->derived(library, made_at(module), current(ours));
    return result;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuKernelGetFunction)(function, kernel);
    if (ours && result == CUDA_SUCCESS)
        ours->kernels->derived(kernel, made_at(function), current(ours));
    return result;
}

// Called before its handles are given out anew. A module that does not go after
// all is not trusted from here on.

CUresult cuModuleUnload(CUmodule module)
{
    const entry ours;
    if (ours)
        ours->kernels->unloaded(module);
    return EMUV_REAL(cuModuleUnload)(module);
}

CUresult cuLibraryUnload(CUlibrary library)
{
    const entry ours;
    if (ours)
        ours->kernels->unloaded(library);
    return EMUV_REAL(cuLibraryUnload)(library);
}

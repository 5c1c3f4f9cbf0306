// SPDX-License-Identifier: LGPL-2.1-or-later
// Modules and libraries: the origin of a kernel decides whether it is trusted.
#include "hooks/jit_options.hpp"
#include "hooks/session.hpp"

#include <type_traits>

using namespace emuv::cuda;

namespace {

// A handle, by the address that the driver wrote it to.
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

// Loads a module, or a library.
// @param image  what the driver is given, or null
// @param path  the file that it is given instead, or null
// @param caller  an address in the code that asks for it
// @param as_it_is  the driver does not compile what it has code for
template <typename Handle, typename Load>
CUresult load(const Handle *made, const void *image, const char *path,
              const void *caller, Load real, bool as_it_is = true)
{
    const entry ours;
    const CUresult result = real();
    // A library goes with no context.
    if (ours && result == CUDA_SUCCESS)
        ours->kernels->loaded(made_at(made), image, path, caller,
                              std::is_same_v<Handle, CUmodule> ? current(ours)
                                                               : nullptr,
                              as_it_is);
    return result;
}

} // namespace

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    return load(module, nullptr, path, __builtin_return_address(0),
                [&] { return EMUV_REAL(cuModuleLoad)(module, path); });
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return load(module, image, nullptr, __builtin_return_address(0),
                [&] { return EMUV_REAL(cuModuleLoadData)(module, image); });
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values)
{
    return load(
        module, image, nullptr, __builtin_return_address(0),
        [&] {
            return EMUV_REAL(cuModuleLoadDataEx)(module, image, count, options,
                                                 values);
        },
        only_tell(count, options));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return load(module, image, nullptr, __builtin_return_address(0), [&] {
        return EMUV_REAL(cuModuleLoadFatBinary)(module, image);
    });
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code,
                           CUjit_option *jit, void **jit_values, unsigned jits,
                           CUlibraryOption *options, void **values,
                           unsigned count)
{
    return load(
        library, code, nullptr, __builtin_return_address(0),
        [&] {
            return EMUV_REAL(cuLibraryLoadData)(library, code, jit, jit_values,
                                                jits, options, values, count);
        },
        only_tell(jits, jit));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path,
                               CUjit_option *jit, void **jit_values,
                               unsigned jits, CUlibraryOption *options,
                               void **values, unsigned count)
{
    return load(
        library, nullptr, path, __builtin_return_address(0),
        [&] {
            return EMUV_REAL(cuLibraryLoadFromFile)(
                library, path, jit, jit_values, jits, options, values, count);
        },
        only_tell(jits, jit));
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

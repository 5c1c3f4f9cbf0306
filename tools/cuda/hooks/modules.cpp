// SPDX-License-Identifier: LGPL-2.1-or-later
// Modules and libraries: the origin of a kernel decides whether it is trusted.
#include "hooks/recording.hpp"
#include "hooks/session.hpp"

#include <algorithm>
#include <type_traits>

using namespace emuv::cuda;

namespace {

// A handle, by the address that the driver wrote it to.
template <typename Handle>
const void *made_at(const Handle *at)
{
    return at != nullptr ? static_cast<const void *>(*at) : nullptr;
}

CUcontext current()
{
    CUcontext context = nullptr;
    EMUV_REAL(cuCtxGetCurrent)(&context);
    return context;
}

// The kernels that are followed: the session's, or a recording's. May be null.
known_kernels *followed(const entry &ours)
{
    return ours ? ours->kernels : recorded_kernels();
}

// True if the driver only tells of what it does, by these options. Others may
// have it compile text in place of code.
bool only_tell(unsigned count, const CUjit_option *options)
{
    const auto tells = [](CUjit_option one) {
        switch (one) {
        case CU_JIT_WALL_TIME:
        case CU_JIT_INFO_LOG_BUFFER:
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        case CU_JIT_ERROR_LOG_BUFFER:
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        case CU_JIT_LOG_VERBOSE:
            return true;
        default:
            return false;
        }
    };
    return options == nullptr || std::all_of(options, options + count, tells);
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
    if (known_kernels *const to = followed(ours);
        to != nullptr && result == CUDA_SUCCESS)
        to->loaded(made_at(made), image, path, caller,
                   std::is_same_v<Handle, CUmodule> ? current() : nullptr,
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
    if (known_kernels *const to = followed(ours);
        to != nullptr && result == CUDA_SUCCESS)
        to->derived(module, made_at(function));
    return result;
}

CUresult cuModuleEnumerateFunctions(CUfunction *made, unsigned count,
                                    CUmodule module)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuModuleEnumerateFunctions)(made, count, module);
    known_kernels *const to = followed(ours);
    for (unsigned i = 0; to != nullptr && result == CUDA_SUCCESS && i < count;
         i++)
        to->derived(module, made[i]);
    return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library,
                            const char *name)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuLibraryGetKernel)(kernel, library, name);
    if (known_kernels *const to = followed(ours);
        to != nullptr && result == CUDA_SUCCESS)
        to->derived(library, made_at(kernel));
    return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel *made, unsigned count,
                                   CUlibrary library)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuLibraryEnumerateKernels)(made, count, library);
    known_kernels *const to = followed(ours);
    for (unsigned i = 0; to != nullptr && result == CUDA_SUCCESS && i < count;
         i++)
        to->derived(library, made[i]);
    return result;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuLibraryGetModule)(module, library);
    if (known_kernels *const to = followed(ours);
        to != nullptr && result == CUDA_SUCCESS)
        to->derived(library, made_at(module), current());
    return result;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuKernelGetFunction)(function, kernel);
    if (known_kernels *const to = followed(ours);
        to != nullptr && result == CUDA_SUCCESS)
        to->derived(kernel, made_at(function), current());
    return result;
}

// Called before its handles are given out anew. A module that does not go after
// all is not trusted from here on.

CUresult cuModuleUnload(CUmodule module)
{
    const entry ours;
    if (known_kernels *const to = followed(ours))
        to->unloaded(module);
    return EMUV_REAL(cuModuleUnload)(module);
}

CUresult cuLibraryUnload(CUlibrary library)
{
    const entry ours;
    if (known_kernels *const to = followed(ours))
        to->unloaded(library);
    return EMUV_REAL(cuLibraryUnload)(library);
}

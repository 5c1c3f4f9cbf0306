// SPDX-License-Identifier: LGPL-2.1-or-later
// Kernels: where they come from, and their launches.
#include "hooks/session.hpp"

using namespace emuv::cuda;

namespace {

template <typename Call>
CUresult launch(CUfunction function, CUstream stream, void **parameters,
                void **extra, Call real)
{
    const entry ours;
    mover *const moves = ours ? ours.moving() : nullptr;
    if (moves == nullptr)
        return real();
    return moves->run(
        stream,
        [&](work &out) {
            ours->kernels->scan(ours->calls, function, parameters, extra, out);
        },
        real);
}

} // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    return launch(function, legacy(stream), parameters, extra, [&] {
        return EMUV_REAL(cuLaunchKernel)(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            shared_bytes, stream, parameters, extra);
    });
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x,
                             unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, CUstream stream,
                             void **parameters, void **extra)
{
    return launch(function, per_thread(stream), parameters, extra, [&] {
        return EMUV_REAL(cuLaunchKernel_ptsz)(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            shared_bytes, stream, parameters, extra);
    });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                          void **parameters, void **extra)
{
    const auto real = [&] {
        return EMUV_REAL(cuLaunchKernelEx)(config, function, parameters, extra);
    };
    return config == nullptr ? real()
                             : launch(function, legacy(config->hStream),
                                      parameters, extra, real);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config,
                               CUfunction function, void **parameters,
                               void **extra)
{
    const auto real = [&] {
        return EMUV_REAL(cuLaunchKernelEx_ptsz)(config, function, parameters,
                                                extra);
    };
    return config == nullptr ? real()
                             : launch(function, per_thread(config->hStream),
                                      parameters, extra, real);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x,
                                   unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes,
                                   CUstream stream, void **parameters)
{
    return launch(function, legacy(stream), parameters, nullptr, [&] {
        return EMUV_REAL(cuLaunchCooperativeKernel)(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            shared_bytes, stream, parameters);
    });
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x,
                                        unsigned grid_y, unsigned grid_z,
                                        unsigned block_x, unsigned block_y,
                                        unsigned block_z, unsigned shared_bytes,
                                        CUstream stream, void **parameters)
{
    return launch(function, per_thread(stream), parameters, nullptr, [&] {
        return EMUV_REAL(cuLaunchCooperativeKernel_ptsz)(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            shared_bytes, stream, parameters);
    });
}

// ---- Where kernels come from

namespace {

// A handle, by what the driver wrote it to.
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

// Before somebody else is given its handles. What does not go after all is not
// vouched for from here on.

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

// ---- What outlives a launch's parameters

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address,
                                       size_t bytes, CUmemRangeHandleType type,
                                       unsigned long long flags)
{
    const entry ours;
    if (ours)
        ours->fix(address);
    return EMUV_REAL(cuMemGetHandleForAddressRange)(handle, address, bytes,
                                                    type, flags);
}

CUresult cuTexObjectCreate(CUtexObject *object,
                           const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture,
                           const CUDA_RESOURCE_VIEW_DESC *view)
{
    const entry ours;
    mover *const moves = ours ? ours.moving() : nullptr;
    if (moves != nullptr && resource != nullptr) {
        if (resource->resType == CU_RESOURCE_TYPE_LINEAR)
            moves->fix(resource->res.linear.devPtr);
        else if (resource->resType == CU_RESOURCE_TYPE_PITCH2D)
            moves->fix(resource->res.pitch2D.devPtr);
    }
    return EMUV_REAL(cuTexObjectCreate)(object, resource, texture, view);
}

CUresult cuTexRefSetAddress_v2(size_t *offset, CUtexref reference,
                               CUdeviceptr address, size_t bytes)
{
    const entry ours;
    if (mover *const moves = ours ? ours.moving() : nullptr)
        moves->fix(address);
    return EMUV_REAL(cuTexRefSetAddress_v2)(offset, reference, address, bytes);
}

CUresult cuTexRefSetAddress2D_v3(CUtexref reference,
                                 const CUDA_ARRAY_DESCRIPTOR *array,
                                 CUdeviceptr address, size_t pitch)
{
    const entry ours;
    if (mover *const moves = ours ? ours.moving() : nullptr)
        moves->fix(address);
    return EMUV_REAL(cuTexRefSetAddress2D_v3)(reference, array, address, pitch);
}

CUresult cuTexRefSetAddress2D_v2(CUtexref reference,
                                 const CUDA_ARRAY_DESCRIPTOR *array,
                                 CUdeviceptr address, size_t pitch)
{
    const entry ours;
    if (mover *const moves = ours ? ours.moving() : nullptr)
        moves->fix(address);
    return EMUV_REAL(cuTexRefSetAddress2D_v2)(reference, array, address, pitch);
}

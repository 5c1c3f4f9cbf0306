// SPDX-License-Identifier: GPL-2.0-or-later
// Loading simulated modules and looking into them.
#include "module.hpp"

#include "own_kernels.hpp"
#include "state.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace sim {

std::size_t function::param_bytes() const
{
    std::size_t end = 0;
    for (std::size_t i = 0; i < kernel.param_count; ++i)
        end = std::max(end, kernel.params[i].offset + kernel.params[i].size);
    return end;
}

module::~module()
{
    for (const auto &one : functions)
        the().functions.remove(one.get());
    for (const variable &v : variables)
        if (v.base && v.where->alive) {
            the().space.remove(v.base);
            v.where->memory.release(v.base, v.is.bytes);
            v.where->memory.trim(0);
        }
}

namespace {

CUresult load(context *owner, const void *image, std::shared_ptr<module> &out)
{
    if (!image)
        return CUDA_ERROR_INVALID_VALUE;
    const auto *given = static_cast<const emuv_sim_module *>(image);
    if (const auto *stands = module_for_ptx(static_cast<const char *>(image)))
        given = stands;
    // The magic alone first: an image of another kind may be shorter.
    if (std::strncmp(given->magic, EMUV_SIM_MODULE_MAGIC,
                     sizeof given->magic) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    out = std::make_shared<module>();
    out->owner = owner;
    for (std::size_t i = 0; i < given->kernel_count; ++i) {
        auto made = std::make_shared<function>();
        made->owner = out.get();
        made->kernel = given->kernels[i];
        the().functions.add<void *>(made);
        out->functions.push_back(made);
    }
    for (std::size_t i = 0; i < given->global_count; ++i)
        out->variables.push_back({given->globals[i], nullptr, 0});
    return CUDA_SUCCESS;
}

CUresult place_variables(module &of, context &where)
{
    for (module::variable &v : of.variables) {
        if (v.base)
            continue;
        v.base = where.memory.allocate(v.is.bytes);
        if (!v.base)
            return CUDA_ERROR_OUT_OF_MEMORY;
        v.where = &where;
        mapping m;
        m.base = v.base;
        m.bytes = v.is.bytes;
        m.what = kind::device;
        m.owner = &where;
        m.device = where.dev.ordinal;
        m.reads = m.writes = ~host_bit;
        the().space.add(m);
        auto *to = reinterpret_cast<void *>(v.base);
        if (v.is.initial)
            std::memcpy(to, v.is.initial, v.is.bytes);
        else
            std::memset(to, 0, v.is.bytes);
    }
    return CUDA_SUCCESS;
}

CUresult find_function(const std::shared_ptr<module> &in, const char *name,
                       void **out)
{
    if (!in)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || !name)
        return CUDA_ERROR_INVALID_VALUE;
    for (const auto &one : in->functions)
        if (std::strcmp(one->kernel.name, name) == 0) {
            *out = one.get();
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult find_variable(context &where, const std::shared_ptr<module> &in,
                       const char *name, CUdeviceptr *address, size_t *bytes)
{
    if (!in)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r = place_variables(*in, where))
        return r;
    for (const module::variable &v : in->variables)
        if (std::strcmp(v.is.name, name) == 0) {
            if (address)
                *address = v.base;
            if (bytes)
                *bytes = v.is.bytes;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult param_info(const std::shared_ptr<function> &of, size_t index,
                    size_t *offset, size_t *size)
{
    if (!of)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!offset || index >= of->kernel.param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = of->kernel.params[index].offset;
    if (size)
        *size = of->kernel.params[index].size;
    return CUDA_SUCCESS;
}

} // namespace

CUresult make_launch(context &where, const void *function_handle,
                     const launch_shape &shape, void **params, void **extra,
                     operation &out)
{
    auto what = the().functions.find(function_handle);
    if (!what)
        return CUDA_ERROR_INVALID_HANDLE;
    std::uint64_t threads = 1;
    for (int i = 0; i < 3; ++i) {
        if (shape.grid[i] == 0 || shape.block[i] == 0)
            return CUDA_ERROR_INVALID_VALUE;
        threads *= shape.block[i];
    }
    if (threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;

    auto request = std::make_shared<kernel_request>();
    request->what = what;
    request->shape = shape;
    const std::size_t bytes = what->param_bytes();
    constexpr std::align_val_t alignment{64}; // of the widest, a tensor map
    request->values =
        std::shared_ptr<void>(::operator new(bytes + 1, alignment),
                              [](void *p) { ::operator delete(p, alignment); });
    auto *values = static_cast<unsigned char *>(request->values.get());
    std::memset(values, 0, bytes + 1);

    if (extra) {
        const void *buffer = nullptr;
        std::size_t size = 0;
        for (void **at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
            if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
                buffer = at[1];
            else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE)
                size = *static_cast<std::size_t *>(at[1]);
            else
                return CUDA_ERROR_INVALID_VALUE;
        }
        if (!buffer || size < bytes || params)
            return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(values, buffer, bytes);
    } else if (what->kernel.param_count && !params) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < what->kernel.param_count; ++i) {
        const emuv_sim_param &p = what->kernel.params[i];
        if (params)
            std::memcpy(values + p.offset, params[i], p.size);
        request->pointers.push_back(values + p.offset);
    }
    out.type = CU_GRAPH_NODE_TYPE_KERNEL;
    out.params = request;
    const int device = where.dev.ordinal;
    out.run = [request, device] {
        emuv_sim_launch launch{};
        std::copy_n(request->shape.grid, 3, launch.grid);
        std::copy_n(request->shape.block, 3, launch.block);
        launch.shared_bytes = request->shape.shared_bytes;
        launch.device = device;
        request->what->kernel.run(&launch, request->pointers.data());
    };
    return CUDA_SUCCESS;
}

CUresult from_api(context &where, const CUDA_KERNEL_NODE_PARAMS *in,
                  operation &out)
{
    if (!in)
        return CUDA_ERROR_INVALID_VALUE;
    const launch_shape shape = {{in->gridDimX, in->gridDimY, in->gridDimZ},
                                {in->blockDimX, in->blockDimY, in->blockDimZ},
                                in->sharedMemBytes};
    const void *what = in->func ? static_cast<const void *>(in->func)
                                : static_cast<const void *>(in->kern);
    return make_launch(where, what, shape, in->kernelParams, in->extra, out);
}

} // namespace sim

using namespace sim;

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SIM_ENTER(context);
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<sim::module> made;
    if (CUresult r = load(entered.current, image, made))
        return r;
    if (CUresult r = place_variables(*made, *entered.current))
        return r;
    *module = the().modules.add<CUmodule>(made);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned,
                            CUjit_option *, void **)
{
    return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleUnload(CUmodule hmod)
{
    SIM_ENTER(context);
    auto found = the().modules.find(hmod);
    if (!found || !found->owner)
        return CUDA_ERROR_INVALID_HANDLE;
    wait_all(entered.lock, *found->owner);
    the().modules.remove(hmod);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    SIM_ENTER(context);
    return find_function(the().modules.find(hmod), name,
                         reinterpret_cast<void **>(hfunc));
}

CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule mod)
{
    SIM_ENTER(context);
    auto found = the().modules.find(mod);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(found->functions.size());
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions,
                                    unsigned numFunctions, CUmodule mod)
{
    SIM_ENTER(context);
    auto found = the().modules.find(mod);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!functions)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numFunctions && i < found->functions.size(); ++i)
        functions[i] = reinterpret_cast<CUfunction>(found->functions[i].get());
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod,
                           const char *name)
{
    SIM_ENTER(context);
    return find_variable(*entered.current, the().modules.find(hmod), name, dptr,
                         bytes);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_ENTER(init);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib,
                            CUfunction hfunc)
{
    SIM_ENTER(context);
    auto found = the().functions.find(hfunc);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pi || attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *pi = 1024;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *pi = 32;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *pi = 90;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *pi = found->max_dynamic_shared;
        break;
    default:
        *pi = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib,
                            int value)
{
    SIM_ENTER(context);
    auto found = the().functions.find(hfunc);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        found->max_dynamic_shared = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache)
{
    SIM_ENTER(context);
    return the().functions.find(hfunc) ? CUDA_SUCCESS
                                       : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    SIM_ENTER(context);
    auto found = the().functions.find(hfunc);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!hmod)
        return CUDA_ERROR_INVALID_VALUE;
    *hmod = reinterpret_cast<CUmodule>(found->owner);
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
    SIM_ENTER(context);
    auto found = the().functions.find(hfunc);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = found->kernel.name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex,
                            size_t *paramOffset, size_t *paramSize)
{
    SIM_ENTER(context);
    return param_info(the().functions.find(func), paramIndex, paramOffset,
                      paramSize);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction hfunc)
{
    SIM_ENTER(context);
    if (!the().functions.find(hfunc))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction hfunc)
{
    SIM_ENTER(context);
    return the().functions.find(hfunc) ? CUDA_SUCCESS
                                       : CUDA_ERROR_INVALID_HANDLE;
}

// A library is a module that belongs to no context; a kernel is a function.

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *,
                           void **, unsigned, CUlibraryOption *, void **,
                           unsigned)
{
    SIM_ENTER(init);
    if (!library)
        return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<module> made;
    if (CUresult r = load(nullptr, code, made))
        return r;
    *library = the().modules.add<CUlibrary>(made);
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    SIM_ENTER(init);
    auto found = the().modules.find(library);
    if (!found || found->owner)
        return CUDA_ERROR_INVALID_HANDLE;
    for (const auto &one : the().devices)
        wait_device(entered.lock, one->ordinal);
    the().modules.remove(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library,
                            const char *name)
{
    SIM_ENTER(init);
    return find_function(the().modules.find(library), name,
                         reinterpret_cast<void **>(pKernel));
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    SIM_ENTER(context);
    if (!the().modules.find(library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pMod)
        return CUDA_ERROR_INVALID_VALUE;
    *pMod = reinterpret_cast<CUmodule>(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                            const char *name)
{
    SIM_ENTER(context);
    return find_variable(*entered.current, the().modules.find(library), name,
                         dptr, bytes);
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    SIM_ENTER(context);
    if (!the().functions.find(kernel))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pFunc)
        return CUDA_ERROR_INVALID_VALUE;
    *pFunc = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex,
                              size_t *paramOffset, size_t *paramSize)
{
    SIM_ENTER(init);
    return param_info(the().functions.find(kernel), paramIndex, paramOffset,
                      paramSize);
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
    SIM_ENTER(init);
    auto found = the().functions.find(hfunc);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = found->kernel.name;
    return CUDA_SUCCESS;
}

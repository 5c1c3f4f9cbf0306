// SPDX-License-Identifier: GPL-2.0-or-later
// Asks the CUDA driver for itself, with nothing of CUDA needed to build.
#include "environment.hpp"

#include <memory>

#include <dlfcn.h>
#include <fmt/format.h>

namespace emuvctl {

namespace {

struct close_library
{
    void operator()(void *library) const { ::dlclose(library); }
};

// The parts of the driver's interface that are used, as its documentation
// gives them; a CUresult is an enum, and 0 is success.
using init_function = int (*)(unsigned int flags);
using version_function = int (*)(int *version);
using count_function = int (*)(int *count);
using error_function = int (*)(int result, const char **text);

template <typename Function>
Function symbol(void *library, const char *name)
{
    return reinterpret_cast<Function>(::dlsym(library, name));
}

} // namespace

cuda_state probe_cuda(const char *library)
{
    cuda_state state;
    const std::unique_ptr<void, close_library> cuda(
        ::dlopen(library, RTLD_NOW | RTLD_LOCAL));
    if (!cuda) {
        const char *const why = ::dlerror();
        state.problem = why != nullptr ? why : "dlopen failed";
        return state;
    }
    state.present = true;
    const auto init = symbol<init_function>(cuda.get(), "cuInit");
    const auto version =
        symbol<version_function>(cuda.get(), "cuDriverGetVersion");
    const auto count = symbol<count_function>(cuda.get(), "cuDeviceGetCount");
    const auto error_name =
        symbol<error_function>(cuda.get(), "cuGetErrorName");
    if (init == nullptr || version == nullptr || count == nullptr) {
        state.problem = "it lacks cuInit, cuDriverGetVersion or "
                        "cuDeviceGetCount";
        return state;
    }
    // The version is known even without a device.
    if (version(&state.version) != 0)
        state.version = 0;
    const auto check = [&](const char *call, int result) {
        if (result == 0)
            return true;
        const char *name = nullptr;
        if (error_name == nullptr || error_name(result, &name) != 0 ||
            name == nullptr)
            name = "an unknown error";
        state.problem = fmt::format("{} says {} ({})", call, name, result);
        return false;
    };
    if (check("cuInit", init(0)))
        check("cuDeviceGetCount", count(&state.devices));
    return state;
}

} // namespace emuvctl

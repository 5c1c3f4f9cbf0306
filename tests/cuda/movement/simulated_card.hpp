// SPDX-License-Identifier: GPL-2.0-or-later
// The simulated driver, for tests of the mover in front of it.
#pragma once

#include "base/driver.hpp"

#include <type_traits>

#include <dlfcn.h>
#include <gtest/gtest.h>

/// @return null where it cannot be loaded: dlerror() tells
inline void *sim()
{
    static void *const library = dlopen(EMUV_SIM_LIBRARY, RTLD_NOW);
    return library;
}

/// A function of the driver's, or of the simulation's own.
template <typename Function>
Function *find(const char *name)
{
    return reinterpret_cast<Function *>(dlsym(sim(), name));
}

/// The driver's functions, before a test puts its own in front of them.
inline void take_calls(emuv::cuda::driver &calls)
{
    ASSERT_NE(sim(), nullptr) << dlerror();
#define FILL(name)                                                             \
    calls.name = find<std::remove_pointer_t<decltype(calls.name)>>(#name);
    EMUV_DRIVER_CALLS(FILL)
#undef FILL
}

/// For each thread that calls the driver.
inline void use_context()
{
    CUcontext context = nullptr;
    ASSERT_EQ(find<decltype(cuDevicePrimaryCtxRetain)>(
                  "cuDevicePrimaryCtxRetain")(&context, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(find<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context),
              CUDA_SUCCESS);
}

/// In the first of them.
inline void start_card(const emuv::cuda::driver &calls, CUstream &stream)
{
    ASSERT_EQ(find<decltype(cuInit)>("cuInit")(0), CUDA_SUCCESS);
    ASSERT_NO_FATAL_FAILURE(use_context());
    ASSERT_EQ(calls.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
              CUDA_SUCCESS);
}

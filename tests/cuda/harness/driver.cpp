// SPDX-License-Identifier: GPL-2.0-or-later
// Finding the driver's entry points.
#include "driver.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace harness {

namespace {

[[noreturn]] void give_up(const char *what, const char *why)
{
    std::fprintf(stderr, "harness: %s: %s\n", what, why);
    std::exit(3);
}

driver load()
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        give_up("libcuda.so.1", dlerror());
    driver out;
// The header's macros turn a name into that of its newest version.
#define HARNESS_TEXT(name) #name
#define HARNESS_LOAD(name)                                                     \
    out.name = reinterpret_cast<decltype(out.name)>(                           \
        dlsym(library, HARNESS_TEXT(name)));                                   \
    if (!out.name)                                                             \
        give_up(HARNESS_TEXT(name), "not in libcuda.so.1");
    HARNESS_CALLS(HARNESS_LOAD)
#undef HARNESS_LOAD
#undef HARNESS_TEXT
    if (out.cuInit(0) != CUDA_SUCCESS)
        give_up("cuInit", "failed");
    char name[100] = {};
    if (out.cuDeviceGetName(name, sizeof name, 0) != CUDA_SUCCESS)
        give_up("cuDeviceGetName", "failed");
    out.simulated = std::strstr(name, "Simulated") != nullptr;
    return out;
}

} // namespace

const driver &cuda()
{
    static const driver one = load();
    return one;
}

} // namespace harness

// SPDX-License-Identifier: GPL-2.0-or-later
// NVML beside the simulated driver: this process's memory on each device.
#include "cuda.hpp"
#include "sim.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

// As NVML declares them.
struct nvmlProcessInfo_t
{
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId;
    unsigned computeInstanceId;
};
struct nvmlMemory_t
{
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

namespace {

constexpr int success = 0;
constexpr int invalid_argument = 2;
constexpr int not_found = 6;
constexpr int insufficient_size = 7;
constexpr int library_not_found = 12;

void *driver; // EMUV_LIBCUDA, which the process has open

template <typename Function>
Function *find(const char *name)
{
    return reinterpret_cast<Function *>(dlsym(driver, name));
}

// Handles count from one: none is null.
int ordinal_of(const void *device)
{
    return static_cast<int>(reinterpret_cast<std::size_t>(device) - 1);
}

} // namespace

SIM_EXPORT int nvmlInit_v2()
{
    const char *path = std::getenv("EMUV_LIBCUDA");
    // An empty one would be the program itself.
    if (!path || *path == '\0')
        return library_not_found;
    // The driver itself, not the library in front of it.
    driver = dlmopen(LM_ID_BASE, path, RTLD_NOW | RTLD_NOLOAD);
    return driver ? success : library_not_found;
}

SIM_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    int count = 0;
    find<decltype(cuDeviceGetCount)>("cuDeviceGetCount")(&count);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        CUuuid raw;
        find<decltype(cuDeviceGetUuid)>("cuDeviceGetUuid_v2")(&raw, ordinal);
        std::string text = "GPU-";
        for (int i = 0; i < 16; ++i) {
            char digits[4];
            std::snprintf(digits, sizeof digits, "%02x",
                          static_cast<unsigned char>(raw.bytes[i]));
            text += digits;
            if (i == 3 || i == 5 || i == 7 || i == 9)
                text += '-';
        }
        if (text != uuid)
            continue;
        *device = reinterpret_cast<void *>(std::size_t{1} +
                                           static_cast<std::size_t>(ordinal));
        return success;
    }
    return not_found;
}

SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void *device,
                                                       unsigned *count,
                                                       nvmlProcessInfo_t *all)
{
    if (!device || !count)
        return invalid_argument;
    const emuv_sim_api *api = find<decltype(emuv_sim_get)>("emuv_sim_get")();
    const int ordinal = ordinal_of(device);
    const unsigned room = *count;
    *count = 2;
    if (room < *count)
        return insufficient_size;
    // Somebody else's, too.
    all[0] = {1, 1ULL << 30, ~0U, ~0U};
    all[1] = {static_cast<unsigned>(getpid()), api->vram_used(ordinal), ~0U,
              ~0U};
    return success;
}

SIM_EXPORT int nvmlDeviceGetIndex(void *device, unsigned *index)
{
    if (!device || !index)
        return invalid_argument;
    *index = static_cast<unsigned>(ordinal_of(device));
    return success;
}

SIM_EXPORT int nvmlDeviceGetMemoryInfo(void *device, nvmlMemory_t *memory)
{
    if (!device || !memory)
        return invalid_argument;
    const emuv_sim_api *api = find<decltype(emuv_sim_get)>("emuv_sim_get")();
    std::size_t total = 0;
    find<decltype(cuDeviceTotalMem)>("cuDeviceTotalMem_v2")(&total,
                                                            ordinal_of(device));
    const unsigned long long used = api->vram_used(ordinal_of(device));
    *memory = {total, total - used, used};
    return success;
}

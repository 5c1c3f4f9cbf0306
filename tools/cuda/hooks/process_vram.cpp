// SPDX-License-Identifier: LGPL-2.1-or-later
// Asks the driver how much VRAM this process holds.
#include "hooks/process_vram.hpp"

#include "account/ledger.hpp"
#include "base/driver.hpp"
#include "base/glibc.hpp"
#include "interpose/forward.hpp"
#include "interpose/real_library.hpp"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <new>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

// As NVML declares them. Its header is not needed for three functions.
using nvml_device = struct nvmlDevice_st *;
struct nvml_process
{
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance;
    unsigned compute_instance;
};
constexpr int success = 0;           // NVML_SUCCESS
constexpr int insufficient_size = 7; // NVML_ERROR_INSUFFICIENT_SIZE
constexpr unsigned long long not_available = ~0ULL; // NVML_VALUE_NOT_AVAILABLE

using init_call = int (*)();
using find_call = int (*)(const char *uuid, nvml_device *device);
using list_call = int (*)(nvml_device device, unsigned *count,
                          nvml_process *processes);

std::mutex lock; // guards everything below
find_call find_device;
list_call list_processes;
nvml_device devices[max_devices];
std::vector<nvml_process> processes;

void look()
{
    void *const nvml = find_library("libnvidia-ml.so.1", "EMUV_LIBNVML");
    if (nvml == nullptr)
        return;
    const auto init = reinterpret_cast<init_call>(dlsym(nvml, "nvmlInit_v2"));
    const auto find =
        reinterpret_cast<find_call>(dlsym(nvml, "nvmlDeviceGetHandleByUUID"));
    // Drivers of version 535 have a _v3 with another structure.
    void *const list = dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v2");
    if (init == nullptr || find == nullptr || list == nullptr ||
        init() != success)
        return;
    find_device = find;
    list_processes = reinterpret_cast<list_call>(list);
}

// A whole device, or the part of one that MIG has made.
nvml_device find(int ordinal)
{
    CUuuid uuid;
    if (EMUV_REAL(cuDeviceGetUuid_v2)(&uuid, ordinal) != CUDA_SUCCESS)
        return nullptr;
    nvml_device found = nullptr;
    for (const char *kind : {"GPU", "MIG"}) {
        char text[48];
        int end = std::snprintf(text, sizeof text, "%s", kind);
        for (int i = 0; i < 16; i++)
            end += std::snprintf(
                text + end, sizeof text - static_cast<unsigned>(end), "%s%02x",
                i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                static_cast<unsigned char>(uuid.bytes[i]));
        if (find_device(text, &found) == success)
            return found;
    }
    return nullptr;
}

} // namespace

void open_process_vram()
{
    // The child of a process that has had it is without a driver.
    new (&lock) std::mutex;
    if (list_processes == nullptr)
        look();
}

std::uint64_t process_vram(int device)
{
    if (device < 0 || device >= static_cast<int>(max_devices))
        return 0;
    const std::lock_guard guard(lock);
    if (list_processes == nullptr)
        return 0;
    nvml_device &known = devices[device];
    if (known == nullptr && (known = find(device)) == nullptr)
        return 0;
    // How many there are may grow between the two calls.
    int result = insufficient_size;
    unsigned count = 0;
    for (int tries = 0; result == insufficient_size && tries < 4; tries++) {
        processes.resize(std::max<std::size_t>(2 * count, 32));
        count = static_cast<unsigned>(processes.size());
        result = list_processes(known, &count, processes.data());
    }
    if (result != success)
        return 0;
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++)
        if (processes[i].pid == static_cast<unsigned>(getpid()) &&
            processes[i].used_bytes != not_available)
            sum += processes[i].used_bytes;
    return sum;
}

} // namespace emuv::cuda

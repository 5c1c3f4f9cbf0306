// SPDX-License-Identifier: GPL-2.0-or-later
// As much of a libcuda and of an NVML as 'emuvctl doctor' asks. CUDA is 12.4
// with two devices, NVML has one card. FAKE_CUDA_ERROR holds an error of both.
#include <cstdlib>
#include <cstring>

// NOLINTBEGIN(readability-identifier-naming): these names are NVIDIA's.
#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cuInit(unsigned int /*flags*/)
{
    const char *const error = std::getenv("FAKE_CUDA_ERROR");
    return error != nullptr ? std::atoi(error) : 0;
}

EXPORTED int cuDriverGetVersion(int *version)
{
    *version = 12040;
    return 0;
}

EXPORTED int cuDeviceGetCount(int *count)
{
    *count = 2;
    return 0;
}

EXPORTED int cuGetErrorName(int /*result*/, const char **name)
{
    *name = "CUDA_ERROR_FAKE";
    return 0;
}

EXPORTED int nvmlInit_v2()
{
    return cuInit(0);
}

EXPORTED int nvmlShutdown()
{
    return 0;
}

EXPORTED const char *nvmlErrorString(int /*result*/)
{
    return "a fault of NVML";
}

EXPORTED int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    std::strncpy(text, "580.159.03", size);
    return 0;
}

EXPORTED int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return 0;
}

EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned /*index*/, void **device)
{
    static int card;
    *device = &card;
    return 0;
}

EXPORTED int nvmlDeviceGetName(void * /*device*/, char *text, unsigned size)
{
    std::strncpy(text, "NVIDIA GeForce RTX 4070", size);
    return 0;
}

EXPORTED int nvmlDeviceGetMemoryInfo(void * /*device*/,
                                     unsigned long long *info)
{
    info[0] = 12ULL << 30U; // total, free, used
    info[1] = info[0];
    info[2] = 0;
    return 0;
}

EXPORTED int nvmlDeviceGetPciInfo_v3(void * /*device*/, char *info)
{
    // Behind 16 characters: domain, bus, device, ids of device and vendor.
    const unsigned numbers[] = {1, 10, 0, 0x278610de, 0};
    std::memcpy(info + 16, numbers, sizeof(numbers));
    return 0;
}

EXPORTED int nvmlDeviceGetMinorNumber(void * /*device*/, unsigned *number)
{
    *number = 3;
    return 0;
}

// NOLINTEND(readability-identifier-naming)

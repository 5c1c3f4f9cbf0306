// SPDX-License-Identifier: GPL-2.0-or-later
// As much of a libcuda as 'emuvctl doctor' asks: version 12.4 and two devices,
// or the error that FAKE_CUDA_ERROR holds.
#include <cstdlib>

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

// NOLINTEND(readability-identifier-naming)

// SPDX-License-Identifier: GPL-2.0-or-later
// As much of a CUDA driver as a first call needs, and nothing of a C library's:
// it loads beside any. Its device has 1 GiB, all of it free.

typedef unsigned long word;

int cuInit(unsigned flags)
{
    return (int)flags;
}

int cuDriverGetVersion(int *version)
{
    *version = 12000;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

int cuMemGetInfo_v2(word *free, word *total)
{
    *free = *total = 1UL << 30;
    return 0;
}

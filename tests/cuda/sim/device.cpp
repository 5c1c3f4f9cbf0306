// SPDX-License-Identifier: GPL-2.0-or-later
// Devices: their number, names, sizes and attributes.
#include "state.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace sim {

namespace {

int attribute(CUdevice_attribute which)
{
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return 232448;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        return 1000000;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
        return 512;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 4;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        return 256;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return 4 << 20;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 3;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
        return CU_MEM_HANDLE_TYPE_NONE;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return the().host_numa ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
        return -1;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS:
        return 1;
    default:
        return 0;
    }
}

} // namespace

device::device(int ordinal_, std::size_t vram_bytes)
    : ordinal(ordinal_),
      vram("emuv-sim-vram-store", vram_bytes / frame_bytes, false),
      default_pool(std::make_shared<pool>(*this)), current_pool(default_pool)
{
    the().pools.add<void *>(default_pool);
}

} // namespace sim

using namespace sim;

CUresult cuInit(unsigned Flags)
{
    SIM_ENTER(nothing);
    return Flags ? CUDA_ERROR_INVALID_VALUE : the().initialise();
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    SIM_ENTER(nothing);
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    SIM_ENTER(init);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(the().devices.size());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
    SIM_ENTER(init);
    if (!dev)
        return CUDA_ERROR_INVALID_VALUE;
    if (!the().device_at(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *dev = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    SIM_ENTER(init);
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!the().device_at(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<std::size_t>(len), "emuV Simulated GPU");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    SIM_ENTER(init);
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!the().device_at(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    std::memcpy(uuid->bytes, "emuV simulated ", 15);
    uuid->bytes[15] = static_cast<char>(dev);
    return CUDA_SUCCESS;
}

#undef cuDeviceGetUuid
SIM_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
    SIM_ENTER(init);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    const device *one = the().device_at(dev);
    if (!one)
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = one->vram.capacity() * frame_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    SIM_ENTER(init);
    if (!pi || attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!the().device_at(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *pi =
        attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? dev + 1 : attribute(attrib);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor,
                                              CUdevice dev)
{
    SIM_ENTER(init);
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!the().device_at(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    SIM_ENTER(init);
    if (!pciBusId || len < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (!the().device_at(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(pciBusId, static_cast<std::size_t>(len), "0000:%02X:00.0",
                  static_cast<unsigned>(dev + 1) & 0xff);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    SIM_ENTER(init);
    if (!dev || !pciBusId)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0, bus = 0;
    if (std::sscanf(pciBusId, "%x:%x:", &domain, &bus) != 2 ||
        !the().device_at(static_cast<int>(bus) - 1))
        return CUDA_ERROR_INVALID_DEVICE;
    *dev = static_cast<int>(bus) - 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev,
                               CUdevice peerDev)
{
    SIM_ENTER(init);
    if (!canAccessPeer)
        return CUDA_ERROR_INVALID_VALUE;
    if (!the().device_at(dev) || !the().device_at(peerDev))
        return CUDA_ERROR_INVALID_DEVICE;
    *canAccessPeer =
        dev != peerDev && dev != the().apart && peerDev != the().apart;
    return CUDA_SUCCESS;
}

// SPDX-License-Identifier: LGPL-2.1-or-later
// The sources of memory beyond the card's share, behind one interface.
#include "store/store.hpp"

#include "account/tiers.hpp"
#include "base/file_length.hpp"
#include "base/thread.hpp"
#include "store/placement.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

// Enough for a thread that sleeps on the driver's lock to wake up. A handle of
// 32 MiB in system RAM takes 7 ms. One after the other, they kept others from
// mapping VRAM for 141 ms, and for 2 where 2 ms went by after each (H200).
constexpr std::uint64_t let_in_ns = 200000;
// Fewer bytes are not worth it: they would take a quarter longer.
constexpr std::uint64_t least_let_in_bytes = std::uint64_t{4} << 20;

} // namespace

CUmemAllocationProp properties_of(CUmemLocationType type, int id)
{
    CUmemAllocationProp properties;
    std::memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = type;
    properties.location.id = id;
    return properties;
}

CUmemAccessDesc access_of(int device)
{
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
}

int numa_node_of(const driver &calls, int device)
{
    int node = -1;
    if (calls.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                                   device) != CUDA_SUCCESS)
        return 0;
    return std::max(node, 0);
}

CUmemAllocationProp beyond_share(const driver &calls, int device,
                                 std::uint64_t token)
{
    const int peer = peer_of(token);
    return peer >= 0 ? properties_of(CU_MEM_LOCATION_TYPE_DEVICE, peer)
                     : properties_of(CU_MEM_LOCATION_TYPE_HOST_NUMA,
                                     numa_node_of(calls, device));
}

CUresult create_handle(const driver &calls,
                       const CUmemAllocationProp &properties,
                       std::uint64_t bytes, CUmemGenericAllocationHandle &made)
{
    const CUresult result = calls.cuMemCreate(&made, bytes, &properties, 0);
    if (properties.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA &&
        bytes >= least_let_in_bytes)
        sleep_ns(let_in_ns);
    return result;
}

namespace {

// Creates handles as create_handles() does.
// @param place  has each unit where it is wanted, or the driver's reason
template <typename Place>
CUresult each_handle(const driver &calls, const CUmemAllocationProp &properties,
                     CUdeviceptr at, std::uint64_t bytes,
                     std::uint64_t unit_bytes, std::vector<unit> &units,
                     Place place)
{
    for (std::uint64_t done = 0; done < bytes;) {
        unit next;
        next.at = at + done;
        next.bytes = next_unit(bytes - done, unit_bytes);
        CUresult result =
            create_handle(calls, properties, next.bytes, next.handle);
        if (result != CUDA_SUCCESS)
            return result;
        result = place(next);
        if (result != CUDA_SUCCESS) {
            calls.cuMemRelease(next.handle);
            return result;
        }
        units.push_back(next);
        done += next.bytes;
    }
    return CUDA_SUCCESS;
}

} // namespace

CUresult create_handles(const driver &calls,
                        const CUmemAllocationProp &properties, CUdeviceptr at,
                        std::uint64_t bytes, std::uint64_t unit_bytes,
                        std::vector<unit> &units)
{
    return each_handle(calls, properties, at, bytes, unit_bytes, units,
                       [](unit &made) {
                           made.mapped = false;
                           return CUDA_SUCCESS;
                       });
}

CUresult map_handles(const driver &calls, const CUmemAllocationProp &properties,
                     CUdeviceptr at, std::uint64_t bytes,
                     std::uint64_t unit_bytes, std::vector<unit> &units)
{
    return each_handle(calls, properties, at, bytes, unit_bytes, units,
                       [&calls](const unit &made) {
                           return calls.cuMemMap(made.at, made.bytes, 0,
                                                 made.handle, 0);
                       });
}

namespace {

// Makes units beyond a device's share, by create_handles() or map_handles().
CUresult make_beyond_share(decltype(&map_handles) how, const driver &calls,
                           CUdeviceptr at, std::uint64_t bytes,
                           std::uint64_t unit_bytes, int device,
                           std::uint64_t token, std::vector<unit> &units)
{
    const std::size_t first = units.size();
    const CUresult result = how(calls, beyond_share(calls, device, token), at,
                                bytes, unit_bytes, units);
    for (std::size_t i = first; i < units.size(); i++)
        units[i].peer = peer_of(token);
    return result;
}

} // namespace

CUresult numa_store::map(CUdeviceptr at, std::uint64_t bytes,
                         std::uint64_t unit_bytes, int device, int,
                         std::uint64_t token, std::vector<unit> &units)
{
    return make_beyond_share(map_handles, calls_, at, bytes, unit_bytes, device,
                             token, units);
}

CUresult numa_store::create(CUdeviceptr at, std::uint64_t bytes,
                            std::uint64_t unit_bytes, int device,
                            std::uint64_t token, std::vector<unit> &units)
{
    return make_beyond_share(create_handles, calls_, at, bytes, unit_bytes,
                             device, token, units);
}

CUresult numa_store::unmap(const unit &made)
{
    const CUresult unmapped =
        made.mapped ? calls_.cuMemUnmap(made.at, made.bytes) : CUDA_SUCCESS;
    const CUresult released = calls_.cuMemRelease(made.handle);
    return unmapped != CUDA_SUCCESS ? unmapped : released;
}

namespace {

constexpr int populate_write = 23; // MADV_POPULATE_WRITE, since Linux 5.14

// Gives the range back to the reservation it was taken from.
void restore_reservation(void *at, std::uint64_t bytes)
{
    mmap(at, bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

} // namespace

CUresult page_store::map(CUdeviceptr at, std::uint64_t bytes, std::uint64_t,
                         int, int fd, std::uint64_t offset,
                         std::vector<unit> &units)
{
    void *const address = reinterpret_cast<void *>(at);
    const bool own = fd < 0;
    if (own) {
        fd = static_cast<int>(syscall(SYS_memfd_create, "emuv-store", 1u));
        offset = 0;
        if (fd >= 0 && !set_length(fd, bytes)) {
            close(fd);
            fd = -1;
        }
    }
    // No file may have that length, or be opened: it goes without one.
    const int flags =
        MAP_SHARED | MAP_FIXED | (own && fd < 0 ? MAP_ANONYMOUS : 0);
    void *const mapped = mmap(address, bytes, PROT_READ | PROT_WRITE, flags, fd,
                              static_cast<off_t>(offset));
    if (own && fd >= 0)
        close(fd);
    if (mapped == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    // Otherwise a child shares the pages for good, and would write to them.
    madvise(mapped, bytes, MADV_DONTFORK);
    // The driver has one error for all pages that it cannot register. Populate
    // them first, to tell a lack of memory from the rest.
    if (madvise(mapped, bytes, populate_write) == -1 && errno != EINVAL) {
        restore_reservation(address, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = calls_.cuMemHostRegister_v2(
        address, bytes,
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS) {
        CUdeviceptr seen = 0;
        result = calls_.cuMemHostGetDevicePointer_v2(&seen, address, 0);
        if (result == CUDA_SUCCESS && seen == at) {
            units.push_back({.at = at, .bytes = bytes});
            return CUDA_SUCCESS;
        }
        // The device sees the pages elsewhere: the address would be a lie.
        calls_.cuMemHostUnregister(address);
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    restore_reservation(address, bytes);
    return result;
}

CUresult page_store::unmap(const unit &mapped)
{
    void *const address = reinterpret_cast<void *>(mapped.at);
    const CUresult result = calls_.cuMemHostUnregister(address);
    restore_reservation(address, mapped.bytes);
    return result;
}

} // namespace emuv::cuda

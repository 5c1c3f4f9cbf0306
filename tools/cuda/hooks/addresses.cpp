// SPDX-License-Identifier: LGPL-2.1-or-later
// Questions about an address. The driver sees our allocations as several parts
// or as host memory, and sees nothing where a unit is unmapped.
#include "hooks/session.hpp"
#include "interpose/message.hpp"

#include <atomic>

using namespace emuv::cuda;

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes,
                                 CUdeviceptr address)
{
    const entry ours;
    allocation_view view;
    if (!ours || !ours.table().find(address, view) ||
        !(view.split || view.host))
        return EMUV_REAL(cuMemGetAddressRange_v2)(base, bytes, address);
    if (base != nullptr)
        *base = view.base;
    if (bytes != nullptr)
        *bytes = view.bytes;
    return CUDA_SUCCESS;
}

namespace {

// Asks the driver about an address, at which there may be nothing just now.
template <typename Call>
CUresult while_mapped(const entry &ours, CUdeviceptr address, Call ask)
{
    allocation_view view;
    if (!ours || ours->movers.empty() || !ours.table().find(address, view))
        return ask();
    mover *const moves = ours.table().moving().of(view.device);
    return moves != nullptr ? moves->while_mapped(address, ask) : ask();
}

// Answers one attribute of an allocation that the driver sees as several parts,
// or as host memory. False: the driver's answer is right.
bool answer(const allocation_view &view, CUpointer_attribute attribute,
            CUdeviceptr address, void *data, CUresult &result)
{
    result = CUDA_SUCCESS;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (!view.split)
            return false;
        *static_cast<CUcontext *>(data) = view.context;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned *>(data) = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *static_cast<CUdeviceptr *>(data) = address;
        return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        // Device memory has none.
        *static_cast<void **>(data) = nullptr;
        result = CUDA_ERROR_INVALID_VALUE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(data) = view.device;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr *>(data) = view.base;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t *>(data) = view.bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        // The driver has a number for each of its mappings, counted from 1.
        if (view.serial == 0)
            return false;
        *static_cast<unsigned long long *>(data) = view.serial | 1ull << 63;
        return true;
    default:
        return false;
    }
}

} // namespace

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                               CUdeviceptr address)
{
    const entry ours;
    allocation_view view;
    CUresult result = CUDA_SUCCESS;
    if (ours && data != nullptr && ours.table().find(address, view) &&
        (view.split || view.host) &&
        answer(view, attribute, address, data, result))
        return result;
    return while_mapped(ours, address, [&] {
        return EMUV_REAL(cuPointerGetAttribute)(data, attribute, address);
    });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr address)
{
    const entry ours;
    // The driver's answer comes first: it knows what it refuses.
    const CUresult result = while_mapped(ours, address, [&] {
        return EMUV_REAL(cuPointerGetAttributes)(count, attributes, data,
                                                 address);
    });
    allocation_view view;
    if (!ours || result != CUDA_SUCCESS || attributes == nullptr ||
        data == nullptr || !ours.table().find(address, view) ||
        !(view.split || view.host))
        return result;
    for (unsigned i = 0; i < count; i++) {
        CUresult each = CUDA_SUCCESS;
        if (data[i] != nullptr)
            answer(view, attributes[i], address, data[i], each);
    }
    return result;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr address)
{
    const entry ours;
    allocation_view view;
    // The driver says of handles that nothing can be set, and of its own
    // allocations that this cannot.
    if (ours && value != nullptr &&
        attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
        ours.table().find(address, view) && view.split)
        return CUDA_ERROR_INVALID_VALUE;
    // The attribute belongs to the memory that is there now, and would not move
    // with a unit.
    if (ours && !ours->fix(address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return EMUV_REAL(cuPointerSetAttribute)(value, attribute, address);
}

CUresult cuMemGetAccess(unsigned long long *flags,
                        const CUmemLocation *location, CUdeviceptr address)
{
    const entry ours;
    return while_mapped(ours, address, [&] {
        return EMUV_REAL(cuMemGetAccess)(flags, location, address);
    });
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    const entry ours;
    allocation_view view;
    if (!ours || handle == nullptr || !ours.table().find(address, view) ||
        !view.split)
        return EMUV_REAL(cuIpcGetMemHandle)(handle, address);
    static std::atomic<bool> said;
    if (!said.exchange(true))
        say(ours->asked.ipc
                ? "cuIpcGetMemHandle: memory in system RAM has no IPC handle"
                : "cuIpcGetMemHandle: allocations of 2 MiB and more have an "
                  "IPC handle only with EMUV_IPC=1");
    // The driver's answer for any memory that is mapped from handles.
    return CUDA_ERROR_INVALID_VALUE;
}

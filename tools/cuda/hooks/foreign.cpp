// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that other processes made, and the program opens.
#include "hooks/session.hpp"

using namespace emuv::cuda;

namespace {

using kind = foreign::key::kind;

// The device of a handle's memory, or -1 if that is system RAM.
int device_of(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp properties{};
    const bool known = EMUV_REAL(cuMemGetAllocationPropertiesFromHandle)(
                           &properties, handle) == CUDA_SUCCESS;
    return known && properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE
               ? properties.location.id
               : -1;
}

// Opens memory by an IPC handle, and charges it, or closes it again.
template <typename Call>
CUresult opens(CUdeviceptr *at, Call from_driver)
{
    const entry ours;
    if (!ours || !ours.table().others().counts())
        return from_driver();
    // The context may go as soon as the driver has answered.
    foreign::opening where{current_device(ours->calls), nullptr,
                           ours.table().next_serial()};
    ours->calls.cuCtxGetCurrent(&where.context);
    const CUresult result = from_driver();
    if (result != CUDA_SUCCESS)
        return result;
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    EMUV_REAL(cuMemGetAddressRange_v2)(&base, &bytes, *at);
    EMUV_REAL(cuPointerGetAttribute)
    (&where.device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, *at);
    if (ours.table().others().open({kind::address, *at}, where, bytes))
        return result;
    EMUV_REAL(cuIpcCloseMemHandle)(*at);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

} // namespace

// It is charged once it is mapped: see cuMemMap().
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                        void *shared,
                                        CUmemAllocationHandleType type)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuMemImportFromShareableHandle)(handle, shared, type);
    if (!ours || result != CUDA_SUCCESS || !ours.table().others().counts())
        return result;
    if (const int device = device_of(*handle); device >= 0)
        ours.table().others().open({kind::handle, *handle}, {.device = device},
                                   0);
    return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle,
                               unsigned flags)
{
    return opens(at, [&] {
        return EMUV_REAL(cuIpcOpenMemHandle_v2)(at, handle, flags);
    });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *at, CUipcMemHandle handle,
                            unsigned flags)
{
    return opens(
        at, [&] { return EMUV_REAL(cuIpcOpenMemHandle)(at, handle, flags); });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr at)
{
    const entry ours;
    const auto real = [at] { return EMUV_REAL(cuIpcCloseMemHandle)(at); };
    return ours ? ours.table().others().close({kind::address, at}, real)
                : real();
}

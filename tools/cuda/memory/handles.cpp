// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that the program makes by cuMemCreate, and maps where it likes.
#include "memory/handles.hpp"

#include "base/around.hpp"
#include "base/size.hpp"
#include "memory/mappings.hpp"

namespace emuv::cuda {

CUresult handles::create(CUmemGenericAllocationHandle *handle,
                         std::size_t bytes,
                         const CUmemAllocationProp &properties,
                         unsigned long long flags)
{
    created made;
    made.bytes = bytes;
    made.device = properties.location.id;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (budget_.charge_vram(made.device, bytes)) {
        result = calls_.cuMemCreate(handle, bytes, &properties, flags);
        if (result != CUDA_SUCCESS)
            budget_.uncharge_vram(made.device, bytes);
    }
    while (result == CUDA_ERROR_OUT_OF_MEMORY &&
           can_be_host(bytes, properties)) {
        const auto beyond = budget_.charge_ram(made.device, bytes);
        if (!beyond)
            break;
        made.taken = {charge_kind::host, beyond->token};
        auto host = beyond_share(calls_, made.device, beyond->token);
        host.requestedHandleTypes = properties.requestedHandleTypes;
        result = calls_.cuMemCreate(handle, bytes, &host, flags);
        if (result == CUDA_SUCCESS)
            spills_.happened_to_handle(bytes, budget_.ledger_of(made.device));
        else if (!budget_.uncharge_lacking(made.device, *beyond))
            break;
    }
    if (result != CUDA_SUCCESS)
        return result;
    const std::lock_guard guard(lock_);
    const std::uint64_t id = next_id_++;
    handles_[*handle] = {id, 1};
    created_[id] = made;
    return result;
}

bool handles::can_be_host(std::uint64_t bytes,
                          const CUmemAllocationProp &properties) const
{
    constexpr unsigned file = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return host_.can_create() && bytes > 0 && bytes % chunk_bytes == 0 &&
           (properties.requestedHandleTypes & ~file) == 0;
}

// Under the lock.
void handles::drop_if_unused(std::map<std::uint64_t, created>::iterator found)
{
    const created &of = found->second;
    if (of.references > 0 || of.mapped > 0)
        return;
    budget_.give_back(of.device, of.bytes, of.taken);
    created_.erase(found);
}

std::uint64_t handles::take_handle(CUmemGenericAllocationHandle handle)
{
    const std::lock_guard guard(lock_);
    const auto found = handles_.find(handle);
    if (found == handles_.end())
        return 0;
    const std::uint64_t id = found->second.id;
    if (--found->second.references == 0)
        handles_.erase(found);
    return id;
}

void handles::settle_handle(CUmemGenericAllocationHandle handle,
                            std::uint64_t id, bool released)
{
    const std::lock_guard guard(lock_);
    if (released) {
        const auto of = created_.find(id);
        of->second.references--;
        drop_if_unused(of);
        return;
    }
    handle_use &kept = handles_[handle];
    kept.id = id;
    kept.references++;
}

void handles::mapped(CUdeviceptr at, std::uint64_t bytes,
                     CUmemGenericAllocationHandle handle)
{
    const std::lock_guard guard(lock_);
    const auto found = handles_.find(handle);
    if (found == handles_.end())
        return;
    mappings_[at] = {bytes, found->second.id};
    created_[found->second.id].mapped++;
}

handles::mappings handles::take_mappings(CUdeviceptr at, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    return take_from(mappings_, at, bytes);
}

void handles::settle_mappings(mappings taken, bool unmapped)
{
    const std::lock_guard guard(lock_);
    if (!unmapped) {
        mappings_.merge(taken);
        return;
    }
    for (const auto &[at, gone] : taken) {
        const auto of = created_.find(gone.id);
        of->second.mapped--;
        drop_if_unused(of);
    }
}

void handles::retained(CUmemGenericAllocationHandle handle, CUdeviceptr at)
{
    const std::lock_guard guard(lock_);
    const auto found = around(mappings_, at, &mapping::bytes);
    if (found == mappings_.end())
        return;
    const auto of = created_.find(found->second.id);
    if (of == created_.end())
        return;
    of->second.references++;
    handle_use &again = handles_[handle];
    again.id = of->first;
    again.references++;
}

void handles::show_properties(CUmemGenericAllocationHandle handle,
                              CUmemAllocationProp &properties)
{
    const std::lock_guard guard(lock_);
    const auto found = handles_.find(handle);
    if (found == handles_.end())
        return;
    const auto of = created_.find(found->second.id);
    if (of == created_.end() || !of->second.host())
        return;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = of->second.device;
}

bool handles::find(CUdeviceptr address, allocation_view &view)
{
    const std::lock_guard guard(lock_);
    const auto found = around(mappings_, address, &mapping::bytes);
    if (found == mappings_.end())
        return false;
    const auto of = created_.find(found->second.id);
    if (of == created_.end())
        return false;
    view = {.base = found->first,
            .bytes = found->second.bytes,
            .device = of->second.device,
            .host = of->second.host()};
    return true;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that the program makes by cuMemCreate, and maps where it likes.
#pragma once

#include "account/budget.hpp"
#include "base/driver.hpp"
#include "memory/allocation_view.hpp"
#include "memory/first_spill.hpp"
#include "store/store.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace emuv::cuda {

/// The program's own handles. Created memory lives, and is charged, while a
/// handle or a mapping of it exists. Every call may come from any thread.
class handles
{
public:
    /// All outlive this object.
    handles(const driver &calls, budget &shares, const store &host,
            first_spill &spills)
        : calls_(calls), budget_(shares), host_(host), spills_(spills)
    {}
    handles(const handles &) = delete;
    handles &operator=(const handles &) = delete;

    /// cuMemCreate for device memory. Beyond the share, it creates system RAM.
    CUresult create(CUmemGenericAllocationHandle *handle, std::size_t bytes,
                    const CUmemAllocationProp &properties,
                    unsigned long long flags);
    /// True if such a handle can be system RAM.
    bool can_be_host(std::uint64_t bytes,
                     const CUmemAllocationProp &properties) const;

    // A handle or a mapping is out of the maps while the driver takes it back.
    // Another thread may be given the same handle or address before the
    // driver's answer is here. With that answer, the ones taken out are
    // settled.

    /// cuMemRelease, which @p from_driver makes.
    template <typename Call>
    CUresult release(CUmemGenericAllocationHandle handle, Call from_driver)
    {
        const std::uint64_t id = take_handle(handle);
        const CUresult result = from_driver();
        if (id != 0)
            settle_handle(handle, id, result == CUDA_SUCCESS);
        return result;
    }
    /// cuMemUnmap.
    template <typename Call>
    CUresult unmap(CUdeviceptr at, std::uint64_t bytes, Call from_driver)
    {
        mappings taken = take_mappings(at, bytes);
        const CUresult result = from_driver();
        settle_mappings(std::move(taken), result == CUDA_SUCCESS);
        return result;
    }

    /// cuMemMap and cuMemRetainAllocationHandle have succeeded.
    void mapped(CUdeviceptr at, std::uint64_t bytes,
                CUmemGenericAllocationHandle handle);
    void retained(CUmemGenericAllocationHandle handle, CUdeviceptr at);

    /// Puts the device that the program asked for into the driver's answer.
    void show_properties(CUmemGenericAllocationHandle handle,
                         CUmemAllocationProp &properties);

    /// The mapping around @p address, if there is one.
    bool find(CUdeviceptr address, allocation_view &view);

private:
    struct created
    {
        std::uint64_t bytes = 0;
        int device = 0;
        charge taken;
        unsigned references = 1;
        unsigned mapped = 0; // times

        bool host() const { return taken.kind == charge_kind::host; }
    };
    struct mapping
    {
        std::uint64_t bytes = 0;
        std::uint64_t id = 0;
    };
    struct handle_use // a handle, for created memory that may have several
    {
        std::uint64_t id = 0;
        unsigned references = 0;
    };
    using mappings = std::map<CUdeviceptr, mapping>;

    std::uint64_t take_handle(CUmemGenericAllocationHandle handle);
    void settle_handle(CUmemGenericAllocationHandle handle, std::uint64_t id,
                       bool released);
    mappings take_mappings(CUdeviceptr at, std::uint64_t bytes);
    void settle_mappings(mappings taken, bool unmapped);
    void drop_if_unused(std::map<std::uint64_t, created>::iterator found);

    const driver &calls_;
    budget &budget_;
    const store &host_;
    first_spill &spills_;

    std::mutex lock_;                          // guards all below
    std::map<std::uint64_t, created> created_; // by a number of our own
    std::map<CUmemGenericAllocationHandle, handle_use> handles_;
    mappings mappings_;
    std::uint64_t next_id_ = 1;
};

} // namespace emuv::cuda

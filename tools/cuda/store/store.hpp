// SPDX-License-Identifier: LGPL-2.1-or-later
// The sources of memory beyond the card's share, behind one interface.
#pragma once

#include "account/budget.hpp"
#include "base/driver.hpp"

#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// A unit of an allocation.
struct unit
{
    CUdeviceptr at = 0;
    std::uint64_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0; ///< 0: registered pages, or none
    int peer = -1;      ///< the card that lends it; -1: none does
    bool mapped = true; ///< at its address; else nothing is there
};

/// A comparison of two stores, in bytes copied a second, both ways together.
struct store_trial
{
    double rate = 0;             ///< of the one that was chosen
    const char *other = nullptr; ///< the name of the one that was not
    double other_rate = 0;
    double seconds = 0; ///< the time that the comparison took
};

/// Host memory under device addresses.
class store
{
public:
    store() = default;
    store(const store &) = delete;
    store &operator=(const store &) = delete;
    virtual ~store() = default;

    /// A word for messages.
    virtual const char *name() const = 0;

    /// True if the store gives handles, as VRAM has: the driver then takes both
    /// in one call. Otherwise no copy may cross the seam (copy_part).
    virtual bool by_handle() const = 0;

    /// True if a handle of host memory can be had by itself, for a program that
    /// maps it at an address of its own.
    virtual bool can_create() const = 0;

    /// Called each time before memory is taken. A store that has to choose its
    /// kind does so at the first call.
    /// @param shares  charged while kinds are tried
    virtual void choose(int device, budget &shares)
    {
        (void)device;
        (void)shares;
    }

    /// The trial that led to the choice; null if there was none.
    virtual const store_trial *trial() const { return nullptr; }

    /// Maps @p bytes of host memory at @p at, in a reserved range.
    /// @param unit_bytes  the size of a handle
    /// @param fd, offset  the region the memory is charged as; -1 for none
    /// @param units  out: mapped units are appended, also on failure
    virtual CUresult map(CUdeviceptr at, std::uint64_t bytes,
                         std::uint64_t unit_bytes, int device, int fd,
                         std::uint64_t offset, std::vector<unit> &units) = 0;

    /// Makes memory for a reserved range as map() does, and maps it nowhere.
    /// Only for a store that gives handles.
    virtual CUresult create(CUdeviceptr at, std::uint64_t bytes,
                            std::uint64_t unit_bytes, int device,
                            std::uint64_t offset, std::vector<unit> &units)
    {
        (void)at, (void)bytes, (void)unit_bytes, (void)device, (void)offset;
        (void)units;
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    /// Undoes map() or create() for one unit.
    virtual CUresult unmap(const unit &made) = 0;
};

/// Handles at HOST_NUMA: the driver's own host memory. Every call takes a range
/// that is part VRAM and part such handles.
class numa_store final : public store
{
public:
    explicit numa_store(const driver &calls) : calls_(calls) {}

    const char *name() const override { return "HOST_NUMA handles"; }
    bool by_handle() const override { return true; }
    bool can_create() const override { return true; }
    CUresult map(CUdeviceptr at, std::uint64_t bytes, std::uint64_t unit_bytes,
                 int device, int fd, std::uint64_t offset,
                 std::vector<unit> &units) override;
    CUresult create(CUdeviceptr at, std::uint64_t bytes,
                    std::uint64_t unit_bytes, int device, std::uint64_t offset,
                    std::vector<unit> &units) override;
    CUresult unmap(const unit &made) override;

private:
    const driver &calls_;
};

/// Pages of /dev/emuvN, or of a memfd, placed over the reserved range and
/// registered with the driver. A copy that crosses from them into VRAM would
/// fail (CUDA_ERROR_INVALID_VALUE), so it is cut at the seam.
class page_store final : public store
{
public:
    explicit page_store(const driver &calls) : calls_(calls) {}

    const char *name() const override { return "registered pages"; }
    bool by_handle() const override { return false; }
    bool can_create() const override { return false; }
    CUresult map(CUdeviceptr at, std::uint64_t bytes, std::uint64_t unit_bytes,
                 int device, int fd, std::uint64_t offset,
                 std::vector<unit> &units) override;
    CUresult unmap(const unit &mapped) override;

private:
    const driver &calls_;
};

/// The argument of cuMemCreate for pinned memory on a node.
CUmemAllocationProp properties_of(CUmemLocationType type, int id);

/// The argument of cuMemSetAccess that lets a device read and write.
CUmemAccessDesc access_of(int device);

/// The NUMA node nearest to @p device; 0 if the host has none.
int numa_node_of(const driver &calls, int device);

/// The argument of cuMemCreate for memory beyond a device's share.
/// @param token  of its charge: it lies on another card, or in system RAM
CUmemAllocationProp beyond_share(const driver &calls, int device,
                                 std::uint64_t token);

/// Creates one handle, as cuMemCreate() does. The driver maps nothing
/// meanwhile, and who creates one after the other has its lock again before
/// those get it who wait for it. So each one in system RAM lets them go first.
CUresult create_handle(const driver &calls,
                       const CUmemAllocationProp &properties,
                       std::uint64_t bytes, CUmemGenericAllocationHandle &made);

/// Creates handles of @p unit_bytes (the rest as next_unit() says), for units
/// one behind the other.
/// @param units  out: units are appended, also on failure
CUresult create_handles(const driver &calls,
                        const CUmemAllocationProp &properties, CUdeviceptr at,
                        std::uint64_t bytes, std::uint64_t unit_bytes,
                        std::vector<unit> &units);

/// The same, each mapped at its address.
CUresult map_handles(const driver &calls, const CUmemAllocationProp &properties,
                     CUdeviceptr at, std::uint64_t bytes,
                     std::uint64_t unit_bytes, std::vector<unit> &units);

} // namespace emuv::cuda

// SPDX-License-Identifier: GPL-2.0-or-later
// Device addresses: one arena of this process's addresses, with its
// reservations and its mappings.
#pragma once

#include "frames.hpp"

#include <map>

namespace sim {

struct context;
struct pool;

enum class kind
{
    device,     // cuMemAlloc and its kin
    pooled,     // cuMemAllocAsync
    vmm,        // cuMemMap
    host,       // cuMemHostAlloc
    registered, // cuMemHostRegister
    managed,    // cuMemAllocManaged
    opened,     // cuIpcOpenMemHandle
};

// A range of addresses with memory behind it.
struct mapping
{
    std::uintptr_t base = 0;
    std::size_t bytes = 0;
    kind what = kind::device;
    std::shared_ptr<physical> memory; // of kind vmm
    context *owner = nullptr;         // null for vmm
    pool *from = nullptr;             // of kind pooled
    int device = 0;
    unsigned flags = 0;       // as given to cuMemHostAlloc or -Register
    std::uint64_t id = 0;     // CU_POINTER_ATTRIBUTE_BUFFER_ID
    std::uint32_t reads = 0;  // a bit a device: may read
    std::uint32_t writes = 0; // a bit a device: may write

    std::uintptr_t end() const { return base + bytes; }
    bool in_vram() const
    {
        return what == kind::device || what == kind::pooled ||
               what == kind::opened ||
               (what == kind::vmm && memory->on_device());
    }
    bool on_host() const
    {
        return what == kind::host || what == kind::registered;
    }
};

// The bit of the host beside those of the devices.
inline constexpr std::uint32_t host_bit = 1U << 31;

class address_space
{
public:
    // Far more than tests need, and little enough for ThreadSanitizer.
    static constexpr std::size_t arena_bytes = std::size_t{1} << 39;

    void open(); // reserves the arena

    bool in_arena(std::uintptr_t address) const
    {
        return address - arena_ < arena_bytes;
    }

    // Zero when there is no room. An address that is wanted and not free
    // is ignored, as by the driver.
    std::uintptr_t reserve(std::size_t bytes, std::size_t alignment,
                           std::uintptr_t wanted, bool by_user);
    void unreserve(std::uintptr_t base);
    // The reservation that holds an address; zero bytes when none does.
    struct range
    {
        std::uintptr_t base = 0;
        std::size_t bytes = 0;
        bool by_user = false;
    };
    range reservation(std::uintptr_t address) const;
    std::size_t reservation_count() const { return reserved_.size(); }

    // Nothing is there any more: a touch faults.
    void clear(std::uintptr_t base, std::size_t bytes);

    // The mapping that holds an address, or null.
    mapping *find(std::uintptr_t address);
    mapping *find(CUdeviceptr address)
    {
        return find(static_cast<std::uintptr_t>(address));
    }
    // True if anything is mapped in a range.
    bool any(std::uintptr_t base, std::size_t bytes);
    mapping &add(mapping m);
    void remove(std::uintptr_t base) { mappings.erase(base); }

    std::map<std::uintptr_t, mapping> mappings;

private:
    std::uintptr_t arena_ = 0;
    std::uintptr_t next_ = 0; // addresses are not used again at once
    std::map<std::uintptr_t, range> reserved_;
};

} // namespace sim

// SPDX-License-Identifier: LGPL-2.1-or-later
// Instances and clients as plain values, from ioctls or from sysfs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <linux/emuv.h>

namespace emuv {

/// "The driver's choice" for an id or a NUMA node.
inline constexpr int any = EMUV_ANY;

/// A client's own counters of its work; they only grow.
struct counters
{
    std::uint64_t fetched_bytes = 0; ///< moved from system RAM to VRAM
    std::uint64_t evicted_bytes = 0; ///< moved from VRAM to system RAM
    std::uint64_t spills = 0;        ///< allocations placed in system RAM
    /// Work whose memory should have been prefetched but was not.
    std::uint64_t faults = 0;
    std::uint64_t hit_bytes = 0;  ///< given to work, found in VRAM
    std::uint64_t miss_bytes = 0; ///< given to work, found in system RAM
    std::uint64_t stalled_ns = 0; ///< work's wait for memory

    bool operator==(const counters &) const = default;
};

/// The values to create an instance with.
struct instance_spec
{
    int id = any;                     ///< 0 to EMUV_MAX_INSTANCES - 1, or any
    std::string gpu_model;            ///< printable ASCII, 1 to 63 characters
    std::uint64_t physical_bytes = 0; ///< share of VRAM, in bytes
    std::uint64_t virtual_bytes = 0;  ///< share of RAM, in bytes; whole chunks
    /// The part of virtual_bytes that one client may allocate, in whole
    /// chunks; 0: all.
    std::uint64_t client_virtual_bytes = 0;
    int numa_node = any;             ///< the source of its RAM, or any
    bool numa_bind = false;          ///< take RAM from numa_node only
    std::uint16_t pci_device_id = 0; ///< the card it belongs to; 0: none
    bool overcommit = false;         ///< promise more RAM than the host has
    bool guaranteed = false;         ///< reserve its share of RAM at once
    /// Its swap file: a block device, a file that takes direct I/O and has
    /// virtual_bytes, or a folder to make such a file in. Empty: none
    std::string swap;

    bool operator==(const instance_spec &) const = default;
};

/// An instance: its limits, and the memory it holds.
struct instance_info
{
    int id = 0;
    std::string gpu_model; ///< as it was given
    std::uint64_t physical_bytes = 0;
    std::uint64_t virtual_bytes = 0;
    std::uint64_t client_virtual_bytes = 0; ///< that one client may allocate
    std::uint64_t physical_used_bytes = 0;  ///< charged by its clients
    std::uint64_t virtual_used_bytes = 0;   ///< held by its regions
    std::uint64_t unowned_bytes = 0;        ///< used, but freed by owner
    std::uint64_t resident_bytes = 0;       ///< system RAM that backs it now
    std::uint64_t reserve_bytes = 0;        ///< RAM reserved and unused
    bool guaranteed = false;                ///< all its RAM was reserved
    std::uint64_t swapped_bytes = 0;        ///< in its swap file
    bool swaps = false;                     ///< it has a swap file
    std::uint64_t chunk_bytes = EMUV_CHUNK_BYTES;
    std::uint32_t clients = 0;
    int numa_node = any;
    bool numa_bind = false; ///< its RAM comes from numa_node only
    std::uint16_t pci_device_id = 0;
    std::string uuid; ///< 8-4-4-4-12 hexadecimal digits
    counters moved;

    /// Physical and virtual bytes together.
    [[nodiscard]] std::uint64_t total_bytes() const noexcept
    {
        return physical_bytes + virtual_bytes;
    }
    /// "emuvN".
    [[nodiscard]] std::string name() const;

    bool operator==(const instance_info &) const = default;
};

/// A client (an open file of an instance's node), and the memory it holds.
struct client_info
{
    std::uint64_t client = 0; ///< its number, from 1, never used again
    int pid = 0;              ///< of the opener; 0: not visible from here
    std::string comm;         ///< the opener's name at the time
    std::uint64_t physical_bytes = 0; ///< charged
    std::uint64_t virtual_bytes = 0;  ///< allocated
    std::uint64_t imported_bytes = 0; ///< held of other clients' regions
    counters moved;
    // These are 0 unless the memory was asked about (EMUV_QUERY_MEMORY).
    std::uint64_t resident_bytes = 0;  ///< the part of it that is in RAM now
    std::uint64_t pinned_bytes = 0;    ///< the part of that a device has pinned
    std::uint64_t lingering_bytes = 0; ///< freed, but still in use

    bool operator==(const client_info &) const = default;
};

/// The version of the driver that answers.
struct driver_version
{
    std::uint32_t abi = 0;         ///< EMUV_ABI_VERSION of the driver
    std::uint64_t chunk_bytes = 0; ///< EMUV_CHUNK_BYTES of the driver
    std::string module_version;    ///< "MAJOR.MINOR.PATCH"
};

/// "emuvN".
std::string instance_name(int id);

/// 16 bytes, big endian, as 8-4-4-4-12 hexadecimal digits.
std::string format_uuid(const std::array<std::uint8_t, EMUV_UUID_LEN> &uuid);

} // namespace emuv

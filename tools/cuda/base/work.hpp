// SPDX-License-Identifier: LGPL-2.1-or-later
// Work that the program hands to a device.
#pragma once

#include "base/address.hpp"

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>

#include <cuda.h>

namespace emuv::cuda {

/// The launches of a kernel, while memory may move.
struct launch_counts
{
    std::atomic<std::uint64_t> proven{0}; ///< trusted by a proof
    std::atomic<std::uint64_t> named{0};  ///< trusted by a name
    std::atomic<std::uint64_t> untrusted{0};
};

/// One work, and the addresses it is given.
struct work
{
    static constexpr std::size_t max_addresses = 1024;
    static constexpr std::size_t max_bases = 512;

    /// The kind of work: work of the same kind has the same number.
    std::uint64_t what = 0;
    /// The kernel's name, if it is a kernel and has one; the driver's string.
    const char *kernel = nullptr;
    /// True if it is trusted: it reaches memory by its addresses alone.
    bool trusted = false;
    /// Why it is not, where that is known: a string that stays.
    const char *why = nullptr;
    /// True if a proof is the reason.
    bool proven = false;
    /// True if its name would do, should the proof not hold for this launch.
    bool by_name = false;
    /// True if it may touch any length from an address on.
    bool open_ended = false;
    std::uint32_t count = 0;
    /// The work may store the first so many addresses in memory, where other
    /// work finds them without being given them.
    std::uint32_t left = 0;
    std::array<CUdeviceptr, max_addresses> addresses;
    /// Those that are pointers. Others may be numbers that look like addresses,
    /// or what was left where a pointer may stand.
    std::bitset<max_addresses> pointers;
    /// True if a proof tells all pointers: while it holds, the work reaches
    /// nothing by any other address.
    bool pointers_are_all = false;
    /// An address on which trust relies. It has to be in a block, or in another
    /// allocation that the driver knows. Unless a loaded number is added to it,
    /// it may be in the program's own memory as well.
    struct base
    {
        CUdeviceptr address;
        bool is_added_to;
    };
    /// They are among the addresses.
    std::array<base, max_bases> bases;
    std::uint32_t base_count = 0;
    /// Its launch is counted there; or null.
    launch_counts *counts = nullptr;

    /// Adds an address; work with too many of them is not trusted.
    /// @param is_pointer  whether it is known to be no number
    void add(CUdeviceptr address, bool is_pointer = false)
    {
        if (count >= max_addresses) {
            trusted = false;
            return;
        }
        pointers[count] = is_pointer;
        addresses[count++] = address;
    }

    /// True if addresses that are no pointers count for nothing.
    [[nodiscard]] bool goes_by_pointers() const
    {
        return proven && pointers_are_all;
    }
    /// True if the work may reach memory by this one of its addresses.
    [[nodiscard]] bool may_go_by(std::uint32_t which) const
    {
        return pointers[which] || !goes_by_pointers();
    }

    /// Adds an address that trust relies on.
    void rely_on(CUdeviceptr address, bool is_added_to = false)
    {
        if (base_count < max_bases)
            bases[base_count++] = {address, is_added_to};
        else
            doubt({address, is_added_to});
    }

    /// The proof does not hold for this launch, since an address on which it
    /// relies is not known: its name decides. No name helps where the address
    /// could be the loaded number that is added to it.
    void doubt(const base &unknown)
    {
        trusted = trusted && by_name && !unknown.is_added_to;
        proven = false;
        if (!trusted)
            why = base_is_unknown;
    }
    static constexpr const char *base_is_unknown =
        "a parameter that it goes by is no address in an allocation";

    /// Counts the launch, now that it is known whether it is trusted.
    void count_launch() const
    {
        if (counts == nullptr)
            return;
        (!trusted ? counts->untrusted
         : proven ? counts->proven
                  : counts->named)
            .fetch_add(1, std::memory_order_relaxed);
    }
};

} // namespace emuv::cuda

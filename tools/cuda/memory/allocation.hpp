// SPDX-License-Identifier: LGPL-2.1-or-later
// An allocation in the table: the program's memory at an address.
#pragma once

#include "account/budget.hpp"
#include "base/driver.hpp"
#include "memory/vacancies.hpp"

#include <cstdint>
#include <map>

namespace emuv::cuda {

/// Memory that the program was given, and how it is given back.
struct allocation
{
    enum class maker
    {
        driver, ///< counted by us
        range,  ///< a range of ours, or part of one
        piece,  ///< part of a chunk of ours
    };
    maker made_by = maker::driver;
    std::uint64_t bytes = 0; ///< as asked for; the driver's as charged
    int device = 0;
    CUcontext context = nullptr;
    std::uint64_t serial = 0; ///< no two have the same
    charge taken = {};        ///< of the driver's
    CUdeviceptr chunk = 0;    ///< of a piece: the begin of its chunk
    /// Of a range: the part of it that is this one's. Of the driver's memory:
    /// the part that is kept when it is freed.
    std::uint64_t reserved_bytes = 0;
    vacancies::range_of range = {}; ///< where several share it
    bool spilled = false;           ///< some of it was made in system RAM
    bool in_order = false; ///< made in stream order, to be kept when freed

    /// True if we made it, and not the driver.
    bool is_ours() const { return made_by != maker::driver; }
    bool pooled() const { return taken.kind == charge_kind::pooled; }

    /// The addresses in a range of ours; 0 for anything else.
    std::uint64_t range_bytes() const
    {
        return made_by == maker::range ? reserved_bytes : 0;
    }
    /// The bytes that the program may use of memory that we placed; 0 for any
    /// other.
    std::uint64_t our_bytes() const { return is_ours() ? bytes : 0; }
};

/// Allocations by address, arrays by handle. An allocation that moves between
/// two tables moves as a node.
using allocations = std::map<CUdeviceptr, allocation>;

} // namespace emuv::cuda

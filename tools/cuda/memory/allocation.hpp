// SPDX-License-Identifier: LGPL-2.1-or-later
// An entry of the table: what the program was given at an address.
#pragma once

#include "account/budget.hpp"
#include "base/driver.hpp"

#include <cstdint>
#include <map>

namespace emuv::cuda {

/// What the program was given, and how it is given back.
struct allocation
{
    enum class maker
    {
        driver, ///< counted by us
        range,  ///< a range of ours, from its start on
        piece,  ///< part of a chunk of ours
    };
    maker made_by = maker::driver;
    std::uint64_t bytes = 0; ///< as the program asked for it
    int device = 0;
    CUcontext context = nullptr;
    std::uint64_t serial = 0; ///< no two have the same
    charge taken = {};        ///< of the driver's
    CUdeviceptr chunk = 0;    ///< of a piece: where that begins
    /// Of a range all of it; of what is the driver's, as far as it is kept when
    /// it is freed.
    std::uint64_t reserved_bytes = 0;
    bool spilled = false;  ///< some of it was made in system RAM
    bool in_order = false; ///< made in stream order, to be kept when freed

    /// By us, not by the driver.
    bool is_ours() const { return made_by != maker::driver; }
    bool pooled() const { return taken.kind == charge_kind::pooled; }

    /// The addresses of a range of our own; none of anything else.
    std::uint64_t range_bytes() const
    {
        return made_by == maker::range ? reserved_bytes : 0;
    }
    /// What the program may use of what we placed; none of anything else.
    std::uint64_t our_bytes() const { return is_ours() ? bytes : 0; }
};

/// By address, or by an array's handle. An allocation that moves between two
/// tables moves as a node.
using allocations = std::map<CUdeviceptr, allocation>;

} // namespace emuv::cuda

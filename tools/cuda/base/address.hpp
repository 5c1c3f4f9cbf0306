// SPDX-License-Identifier: LGPL-2.1-or-later
// Which numbers may be addresses.
#pragma once

#include <cstdint>

namespace emuv::cuda {

/// True if a number may be an address that moves. These are a process's, of 47
/// to 57 bits, and none is in the first 4 GiB (see ranges::reserve()). Few
/// other numbers are in this range.
constexpr bool may_be_address(std::uint64_t number)
{
    return number >> 32 != 0 && number >> 57 == 0;
}

} // namespace emuv::cuda

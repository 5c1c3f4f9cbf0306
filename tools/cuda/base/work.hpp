// SPDX-License-Identifier: LGPL-2.1-or-later
// A piece of work that the program hands to a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda.h>

namespace emuv::cuda {

/// Whether a number may be an address that moves: they are those of a process,
/// of 47 to 57 bits, and none is in the first 4 GiB (see memory::reserve()).
/// What is left are few.
constexpr bool may_be_address(CUdeviceptr number)
{
    return number >> 32 != 0 && number >> 57 == 0;
}

/// What work is given.
struct work
{
    static constexpr std::size_t max_names = 1024;

    /// What runs. Work of the same kind has the same number.
    std::uint64_t what = 0;
    /// Its name, where it is a kernel and has one; the driver's.
    const char *kernel = nullptr;
    /// Whether it reaches memory only by the addresses it is given.
    bool vouched = false;
    /// Whether it may be of any length from there on.
    bool open_ended = false;
    std::uint32_t count = 0;
    /// The first so many of these it may leave in memory, where others find
    /// them that are not given them.
    std::uint32_t left = 0;
    std::array<CUdeviceptr, max_names> names;

    /// Adds an address; with too many of them nothing is vouched for.
    void name(CUdeviceptr address)
    {
        if (count < max_names)
            names[count++] = address;
        else
            vouched = false;
    }
};

} // namespace emuv::cuda

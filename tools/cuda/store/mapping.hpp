// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory under a second address, and other memory under the same one.
#pragma once

#include "base/driver.hpp"

#include <cstdint>

namespace emuv::cuda {

/// Maps a handle at an address of its own, for @p device to read and write.
/// @return 0 if that fails
CUdeviceptr map_alias(const driver &calls, CUmemGenericAllocationHandle handle,
                      std::uint64_t bytes, int device);

/// Undoes map_alias(). 0 is none.
void unmap_alias(const driver &calls, CUdeviceptr at, std::uint64_t bytes);

/// Maps a handle in a range that is reserved and has nothing mapped.
bool map_at(const driver &calls, CUdeviceptr at, std::uint64_t bytes,
            CUmemGenericAllocationHandle handle, int device);

} // namespace emuv::cuda

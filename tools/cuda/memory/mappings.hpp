// SPDX-License-Identifier: LGPL-2.1-or-later
// A table of mappings by address, of which a part is taken out.
#pragma once

#include <cstdint>
#include <map>

#include <cuda.h>

namespace emuv::cuda {

/// Takes the mappings that begin in a range out of a table.
/// @param all  guarded by the caller
template <typename Mapping>
std::map<CUdeviceptr, Mapping> take_from(std::map<CUdeviceptr, Mapping> &all,
                                         CUdeviceptr at, std::uint64_t bytes)
{
    std::map<CUdeviceptr, Mapping> taken;
    auto each = all.lower_bound(at);
    while (each != all.end() && each->first - at < bytes)
        taken.insert(all.extract(each++));
    return taken;
}

} // namespace emuv::cuda

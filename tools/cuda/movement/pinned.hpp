// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory of the host's that kernels can read.
#pragma once

#include "base/driver.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// More than so many bytes is data, and no table of addresses.
inline constexpr std::size_t max_table_bytes = std::size_t{64} << 10;

/// Reads a table of addresses of the host's, which need not be there.
/// @param bytes  of which those beyond the last whole address are left out
/// @return nothing where not all of it can be read
std::vector<CUdeviceptr> read_table(const void *from, std::size_t bytes);

/// What a program has the driver pin. By any thread.
class pinned
{
public:
    void add(const void *at, std::size_t bytes);
    /// @return how many bytes there were; 0 where it was none
    std::size_t remove(const void *at);

    /// How many bytes there are from an address on; 0 where it is not pinned.
    std::size_t bytes_from(CUdeviceptr address) const;

private:
    std::atomic<bool> any_{false};
    mutable std::mutex lock_; // guards what follows
    std::map<std::uintptr_t, std::size_t> by_base_;
};

} // namespace emuv::cuda

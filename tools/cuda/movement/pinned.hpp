// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory beside the device's that kernels can read.
#pragma once

#include "base/driver.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// What is read of a table at once: it goes on for as long as there is an
/// address in each such part.
inline constexpr std::size_t table_part_bytes = std::size_t{64} << 10;
/// Longer than that it is not searched.
inline constexpr std::size_t max_table_bytes = 256 * table_part_bytes;

enum class reading
{
    done,
    absent, ///< it is the device's, or nobody's
    denied, ///< nobody may look, so that it may be anything
};

/// Reads a table of addresses of the host's, which need not be there.
/// @param bytes  of which those beyond the last whole address are left out
/// @param words  out: none where not all of it can be read
reading read_table(const void *from, std::size_t bytes,
                   std::vector<CUdeviceptr> &words);

/// Reads a little of it, here and there: in a table of addresses there are some
/// wherever one looks.
/// @param words  out: what can be read of that
reading sample_table(const void *from, std::size_t bytes,
                     std::vector<CUdeviceptr> &words);

/// Memory beside the device's own that a program has the driver give to
/// kernels: pinned, or managed. By any thread.
class pinned
{
public:
    struct stretch
    {
        std::size_t bytes = 0; ///< from the address on; 0 where it is none
        /// The driver may move it, and looking at it has it do so.
        bool managed = false;
    };

    void add(const void *at, std::size_t bytes, bool managed = false);
    /// @return what there was from its begin on
    stretch remove(const void *at);

    stretch from(CUdeviceptr address) const;

private:
    std::atomic<bool> any_{false};
    mutable std::mutex lock_; // guards what follows
    std::map<std::uintptr_t, stretch> by_base_;
};

} // namespace emuv::cuda

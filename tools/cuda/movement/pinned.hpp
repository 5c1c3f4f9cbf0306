// SPDX-License-Identifier: LGPL-2.1-or-later
// Pinned and managed memory, which kernels can read.
#pragma once

#include "base/driver.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// The bytes of a table that are read at once. Reading goes on while each such
/// window has an address in it.
inline constexpr std::size_t table_window_bytes = std::size_t{64} << 10;
/// The most bytes of a table that are searched. A longer one may name anything.
inline constexpr std::size_t max_table_bytes = 256 * table_window_bytes;

enum class reading
{
    done,
    absent, ///< the memory is the device's, or nobody's
    denied, ///< reading is not allowed, so it may be anything
};

/// Reads a table of addresses in the host's memory, which need not be there.
/// @param bytes  those beyond the last whole address are left out
/// @param words  out: none if not all of it can be read
reading read_table(const void *from, std::size_t bytes,
                   std::vector<CUdeviceptr> &words);

/// Reads a few samples of a table: one of addresses has some in each sample.
/// @param words  out: all that can be read there
reading sample_table(const void *from, std::size_t bytes,
                     std::vector<CUdeviceptr> &words);

/// Memory beside the device's own that a program has the driver give to
/// kernels: pinned, or managed. For any thread.
class pinned
{
public:
    struct area
    {
        std::size_t bytes = 0; ///< from the address on; 0: there is none
        /// The driver may move it, and does so when the host reads it.
        bool managed = false;
        CUcontext context = nullptr; ///< with which it goes
        std::uint64_t number = 0;    ///< of its addition
    };

    void add(const void *at, std::size_t bytes, bool managed = false,
             CUcontext context = nullptr);
    /// @return the area that began there, no longer one of them; or none
    area remove(const void *at);

    /// The number of the next addition.
    std::uint64_t next() const;

    /// A context is gone, with the memory of a number below @p before that was
    /// made in it.
    void gone(CUcontext context, std::uint64_t before);

    area from(CUdeviceptr address) const;

private:
    std::atomic<bool> any_{false};
    mutable std::mutex lock_; // guards all below
    std::map<std::uintptr_t, area> by_base_;
    std::uint64_t next_ = 0;
};

} // namespace emuv::cuda

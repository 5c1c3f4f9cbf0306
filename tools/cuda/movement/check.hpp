// SPDX-License-Identifier: LGPL-2.1-or-later
// Whether a program's kernels keep to what they are given.
#pragma once

#include "base/work.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

namespace emuv::cuda {

/// What is found out of kernels where nothing moves, but while one runs that is
/// vouched for nothing is mapped besides what it was given: one that reaches
/// anything else ends with CUDA_ERROR_ILLEGAL_ADDRESS. Of all devices, by any
/// thread.
class check
{
public:
    /// @param tell  called once, when the device reports an error, with the
    ///   kernel that ran and what the driver calls that error
    explicit check(void (*tell)(const char *kernel, CUresult error))
        : tell_(tell)
    {}
    check(const check &) = delete;
    check &operator=(const check &) = delete;

    /// A kernel is about to be launched. What is none does not count.
    void begins(const work &launch);

    /// The device reports an error.
    /// @param kernel  what ran, if it was one; else null
    void failed(const char *kernel, CUresult error);

    /// Names, between commas: as many as there is room for in a line.
    using names = std::array<char, 256>;

    struct result
    {
        std::uint64_t launches = 0; ///< that reached nothing else
        std::size_t kernels = 0;    ///< of so many kernels
        /// Likewise of others, that nobody vouches for.
        std::uint64_t unvouched_launches = 0;
        std::size_t unvouched_kernels = 0;
        names unvouched{};
        bool failed = false;
    };
    result so_far() const;

private:
    void add_name(const char *name);

    void (*const tell_)(const char *kernel, CUresult error);
    mutable std::mutex lock_; // guards all below
    result found_;
    std::set<std::uint64_t> kernels_; // by their handles
    std::set<std::uint64_t> unvouched_;
    std::size_t named_bytes_ = 0;
};

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// Checks that a program's kernels keep to the memory that they are given.
#pragma once

#include "base/work.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

namespace emuv::cuda {

/// Findings about kernels while nothing moves. While a trusted kernel runs,
/// only the memory that it was given is mapped. A kernel that reaches anything
/// else ends with CUDA_ERROR_ILLEGAL_ADDRESS. One object serves all devices and
/// all threads.
class check
{
public:
    /// @param tell  called once, when the device reports an error, with the
    ///   kernel that ran, whether a proof was why it is trusted, and the
    ///   driver's error
    explicit check(void (*tell)(const char *kernel, bool proven,
                                CUresult error))
        : tell_(tell)
    {}
    check(const check &) = delete;
    check &operator=(const check &) = delete;

    /// A kernel is about to be launched. Other work does not count.
    void begins(const work &launch);

    /// The device reports an error.
    /// @param kernel  the kernel that ran; null for other work
    /// @param proven  a proof is why it is trusted
    void failed(const char *kernel, bool proven, CUresult error);

    /// Names between commas, as many as fit in a line.
    using names = std::array<char, 256>;

    struct result
    {
        std::uint64_t launches = 0; ///< that reached nothing else
        std::size_t kernels = 0;    ///< in those launches
        /// The same of kernels that are not trusted.
        std::uint64_t untrusted_launches = 0;
        std::size_t untrusted_kernels = 0;
        names untrusted{};
        bool failed = false;
    };
    result so_far() const;

private:
    void add_name(const char *name);

    void (*const tell_)(const char *kernel, bool proven, CUresult error);
    mutable std::mutex lock_; // guards all below
    result found_;
    std::set<std::uint64_t> kernels_; // by their handles
    std::set<std::uint64_t> untrusted_;
    std::size_t named_bytes_ = 0;
};

} // namespace emuv::cuda

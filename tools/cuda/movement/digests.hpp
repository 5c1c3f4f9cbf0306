// SPDX-License-Identifier: LGPL-2.1-or-later
// Whether memory has changed.
#pragma once

#include "base/driver.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// Sums of memory by a kernel of our own (digest.hpp), several at a time. The
/// numbers of those under way are for whoever locks; the rest is for one
/// thread, in one context.
class digests
{
public:
    using value = std::array<std::uint64_t, 2>;

    static constexpr std::size_t max_under_way = 12;

    /// @param calls  outlives this object
    explicit digests(const driver &calls) : calls_(calls) {}
    digests(const digests &) = delete;
    digests &operator=(const digests &) = delete;

    /// In the current context, for close() to end.
    /// @param priority  of the kernel, as for cuStreamCreateWithPriority
    /// @return false where the driver does not; close() is due all the same
    bool open(int priority);
    void close();

    /// A number for one more, to be given back. There has to be one.
    std::size_t take();
    void put(std::size_t number) { free_.push_back(number); }
    bool any_free() const { return !free_.empty(); }

    /// Begins to look.
    /// @param bytes  a multiple of 16
    /// @param done  is recorded behind it
    bool begin(std::size_t number, CUdeviceptr at, std::uint64_t bytes,
               CUevent done);

    /// What it came to, once that is done.
    value result(std::size_t number) const;

private:
    const driver &calls_;
    // One each: where the program's kernels fill the card, digests run as one
    // of them ends, all that wait for it at once. Of those in one stream the
    // second would wait for the next one's end.
    std::array<CUstream, max_under_way> streams_{};
    CUmodule module_ = nullptr;
    CUfunction kernel_ = nullptr;
    CUdeviceptr scratch_ = 0;
    value *results_ = nullptr;
    std::vector<std::size_t> free_;
};

} // namespace emuv::cuda

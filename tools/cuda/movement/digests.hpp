// SPDX-License-Identifier: LGPL-2.1-or-later
// Tells whether memory has changed.
#pragma once

#include "base/driver.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// Sums of memory by a kernel of our own (digest.hpp), several at a time. The
/// caller locks for take(), put() and any_free(). The other functions are for
/// one thread, in one context.
class digests
{
public:
    using value = std::array<std::uint64_t, 2>;

    static constexpr std::size_t max_under_way = 12;

    /// @param calls  outlives this object
    explicit digests(const driver &calls) : calls_(calls) {}
    digests(const digests &) = delete;
    digests &operator=(const digests &) = delete;

    /// Begins in the current context, for close() to end.
    /// @param priority  of the kernel, as for cuStreamCreateWithPriority
    /// @return false where the driver fails; close() is due all the same
    bool open(int priority);
    void close();

    /// The number of one more digest, to be given back. There has to be a free
    /// one.
    std::size_t take();
    void put(std::size_t number) { free_.push_back(number); }
    bool any_free() const { return !free_.empty(); }

    /// Begins a digest.
    /// @param bytes  a multiple of 16
    /// @param done  is recorded behind it
    /// @param after  it waits for that event. Null: for none
    bool begin(std::size_t number, CUdeviceptr at, std::uint64_t bytes,
               CUevent done, CUevent after = nullptr);

    /// The digest, once it is done.
    value result(std::size_t number) const;

private:
    const driver &calls_;
    // A stream for each digest. If the program's kernels fill the card, all
    // waiting digests run as one of those kernels ends. In one stream, the
    // second digest would wait for the next kernel's end.
    std::array<CUstream, max_under_way> streams_{};
    CUmodule module_ = nullptr;
    CUfunction kernel_ = nullptr;
    CUdeviceptr scratch_ = 0;
    value *results_ = nullptr;
    std::vector<std::size_t> free_;
};

} // namespace emuv::cuda

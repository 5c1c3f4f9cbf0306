// SPDX-License-Identifier: LGPL-2.1-or-later
// A piece of system RAM, shared by what is smaller: a chunk by allocations.
#pragma once

#include "base/size.hpp"

#include <cstdint>
#include <map>

namespace emuv::cuda {

/// Tracks the parts of a chunk that are taken, or of more than one. Not for
/// several threads at once.
class slab
{
public:
    /// cuMemAlloc promises 256 bytes, and gives 512.
    static constexpr std::uint64_t alignment = 512;

    explicit slab(std::uint64_t bytes = chunk_bytes) : bytes_(bytes) {}

    /// Takes the first gap that is large enough.
    /// @param bytes  above 0
    /// @param offset  out: the offset in the chunk
    /// @return false if there is no such gap
    bool take(std::uint64_t bytes, std::uint64_t &offset);

    /// True if take() finds one.
    bool has_gap(std::uint64_t bytes) const;

    /// Gives back a part that take() gave, with the same @p bytes.
    void give(std::uint64_t offset, std::uint64_t bytes);

    /// True if no part is taken.
    bool empty() const;

private:
    std::uint64_t bytes_;
    // Offset to size. No two of them touch.
    std::map<std::uint64_t, std::uint64_t> gaps_{{0, bytes_}};
};

} // namespace emuv::cuda

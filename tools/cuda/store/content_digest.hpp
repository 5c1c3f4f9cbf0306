// SPDX-License-Identifier: LGPL-2.1-or-later
// A digest of memory, taken by the processor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace emuv::cuda {

/// A 128-bit sum over memory that comes in pieces, in order. Two contents that
/// differ have the same sum by chance once in 2^128 tries. movement/digest.hpp
/// mixes words in the same way.
class content_digest
{
public:
    using value = std::array<std::uint64_t, 2>;

    /// Takes the next piece.
    /// @param bytes  a multiple of 16
    void add(const void *piece, std::size_t bytes)
    {
        const char *at = static_cast<const char *>(piece);
        for (const char *const end = at + bytes; at != end; at += 16) {
            std::uint64_t x = 0;
            std::uint64_t y = 0;
            std::memcpy(&x, at, sizeof x);
            std::memcpy(&y, at + sizeof x, sizeof y);
            x = (x ^ (index_++ * 0xd6e8feb86659fd93u)) * 0x9e3779b97f4a7c15u;
            x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
            x ^= x >> 32;
            y = (y + x) * 0x94d049bb133111ebu;
            y = (y ^ (y >> 31)) * 0xd6e8feb86659fd93u;
            y ^= y >> 32;
            sum_[0] += x ^ (y << 1);
            sum_[1] += y;
        }
    }

    /// Of all pieces so far.
    const value &sum() const { return sum_; }

private:
    std::uint64_t index_ = 0;
    value sum_{};
};

} // namespace emuv::cuda

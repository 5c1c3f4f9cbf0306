// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that was freed in stream order, and is kept for the next request.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <cuda.h>

namespace emuv::cuda {

/// Free memory, and the work behind which it is free. The caller locks.
///
/// A program that repeats itself has to be given the same addresses again: only
/// then is a round known by its past. So of the vacancies that fit best, the
/// one with the lowest address is taken. That choice depends only on what is
/// free, and not on the order in which it was freed.
class vacancies
{
public:
    /// Memory that was freed in a stream is free for later work in that stream.
    struct stream_of
    {
        CUcontext context = nullptr;
        CUstream stream = nullptr;
        auto operator<=>(const stream_of &) const = default;
    };
    struct vacancy
    {
        CUdeviceptr base = 0;
        std::uint64_t bytes = 0;
        stream_of behind;
    };

    /// After so many requests, nobody asks for an idle vacancy any more.
    static constexpr std::uint64_t max_idle_asks = 16384;
    /// Idle ones are looked for once in so many requests.
    static constexpr std::uint64_t asks_between_looks = 1024;

    /// The size to make instead of @p bytes, if it will be kept. There are few,
    /// so that memory that grows a little each time fits where it was. At most
    /// a sixteenth more, or the driver's own 512 bytes. Memory of a chunk and
    /// more has whole chunks anyway.
    static std::uint64_t size_for(std::uint64_t bytes);

    void put(const vacancy &freed);

    /// @param bytes  wanted; up to an eighth more will do
    /// @return the vacancy, no longer free; or nothing
    std::optional<vacancy> take(std::uint64_t bytes, const stream_of &behind);

    /// Takes all vacancies that @p which accepts.
    template <typename Which>
    std::vector<vacancy> take_if(Which which)
    {
        std::vector<vacancy> out;
        for (auto each = free_.begin(); each != free_.end();) {
            const vacancy found{each->first.base, each->first.bytes,
                                each->first.behind};
            if (!which(found)) {
                ++each;
                continue;
            }
            bytes_ -= found.bytes;
            out.push_back(found);
            each = free_.erase(each);
        }
        return out;
    }

    /// Takes vacancies that nobody asks for any more. May be called for every
    /// request.
    std::vector<vacancy> take_idle();

    /// Bytes of all of them.
    std::uint64_t bytes() const { return bytes_; }

private:
    struct key
    {
        stream_of behind;
        std::uint64_t bytes;
        CUdeviceptr base;
        auto operator<=>(const key &) const = default;
    };
    std::map<key, std::uint64_t> free_; // with asks_ at that time
    std::uint64_t bytes_ = 0;
    std::uint64_t asks_ = 0;
    std::uint64_t next_look_ = 0; // after so many requests
};

} // namespace emuv::cuda

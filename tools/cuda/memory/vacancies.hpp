// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that was freed in stream order, and is kept for who asks next.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <cuda.h>

namespace emuv::cuda {

/// What is free, and behind which work. Whoever uses it locks.
///
/// A program that does the same again and again has to be given the same
/// addresses again: only then is a round known by its past. So of what fits
/// best that with the lowest address is taken, which depends on what is free
/// alone, and not on the order in which it was freed.
class vacancies
{
public:
    /// What was freed in a stream is free for what comes behind that in it.
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

    /// What has lain there for so many requests, nobody asks for any more.
    static constexpr std::uint64_t max_idle_asks = 16384;
    /// Which is looked for once in so many.
    static constexpr std::uint64_t asks_between_looks = 1024;

    void put(const vacancy &freed);

    /// @param bytes  wanted; what is up to an eighth larger will do
    /// @return where it is, and no longer free; or nothing
    std::optional<vacancy> take(std::uint64_t bytes, const stream_of &behind);

    /// Takes all of which @p which says so.
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

    /// Takes what nobody asks for any more. For every request there may be.
    std::vector<vacancy> take_idle();

    /// Of all of them.
    std::uint64_t bytes() const { return bytes_; }

private:
    struct key
    {
        stream_of behind;
        std::uint64_t bytes;
        CUdeviceptr base;
        auto operator<=>(const key &) const = default;
    };
    std::map<key, std::uint64_t> free_; // since which ask
    std::uint64_t bytes_ = 0;
    std::uint64_t asks_ = 0;
    std::uint64_t next_look_ = 0; // at so many asks
};

} // namespace emuv::cuda

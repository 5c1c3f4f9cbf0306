// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that was freed in stream order, and is kept for the next request.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <cuda.h>

namespace emuv::cuda {

/// Free memory, and the work behind which it is free. The caller locks.
///
/// A program that repeats itself has to be given the same addresses again: only
/// then is a round known by its past. So of the vacancies that fit best, the
/// one with the lowest address is taken. That choice depends only on what is
/// free, and not on the order in which it was freed.
///
/// A range of ours that was made for one allocation serves the next one of its
/// size. A program of many sizes would hold memory for each of them so. So once
/// it has shown that it frees much of what it allocates, ranges are made that
/// several share. They replace vacant ones. Memory that stays, such as weights,
/// is mostly allocated before: it keeps ranges of its own. The parts of a
/// shared range grow together again. None is filled to its end: work that is
/// given the end of an allocation must not seem to be given the next one.
class vacancies
{
public:
    /// Memory that was freed in a stream is free for later work in that stream.
    /// If no work may use it any more, it is free for all work in its context.
    struct stream_of
    {
        CUcontext context = nullptr;
        CUstream stream = nullptr;
        bool is_any = false;
        auto operator<=>(const stream_of &) const = default;
    };
    /// The shared range that a vacancy is part of; of any other, nothing.
    struct range_of
    {
        CUdeviceptr base = 0;
        std::uint64_t bytes = 0;
        bool operator==(const range_of &) const = default;
    };
    struct vacancy
    {
        CUdeviceptr base = 0;
        std::uint64_t bytes = 0;
        stream_of behind;
        range_of range = {};

        CUdeviceptr end() const { return base + bytes; }
        /// True if nobody else has any of its range.
        bool is_whole() const
        {
            return range.bytes == 0 || bytes == range.bytes;
        }
    };
    /// Cut off a vacancy, from its begin; the rest is still free.
    struct taken
    {
        vacancy cut;
        std::uint64_t left_bytes = 0; ///< of the rest
    };

    /// After so many requests, nobody asks for an idle vacancy any more.
    static constexpr std::uint64_t max_idle_asks = 16384;
    /// Idle ones are looked for once in so many requests.
    static constexpr std::uint64_t asks_between_looks = 1024;
    /// One that is in excess is idle after so many requests, at first.
    static constexpr std::uint64_t least_idle_asks = 512;

    /// The size to make instead of @p bytes, if it will be kept. There are few,
    /// so that memory that grows a little each time fits where it was. At most
    /// a sixteenth more, or the driver's own 512 bytes. Memory of a chunk and
    /// more has whole chunks anyway.
    static std::uint64_t size_for(std::uint64_t bytes);

    /// @return what it has become, joined with those beside it in its range
    vacancy put(const vacancy &freed);

    /// The bytes to cut off for a request.
    static std::uint64_t cut_for(std::uint64_t bytes);
    /// The bytes of a new range for several requests such as this one.
    /// @param all  bytes there are, in use or vacant
    /// @return 0 where it is to have one of its own
    static std::uint64_t shared_for(std::uint64_t bytes, std::uint64_t all);

    /// @param bytes  wanted; up to an eighth more will do where a vacancy is
    ///   taken as it is
    std::optional<taken> take(std::uint64_t bytes, const stream_of &behind);

    /// Takes the vacancies of a stream that a new shared range replaces there.
    /// They are the largest ones that were made for one allocation.
    /// @param bytes  of all of them, at most
    std::vector<vacancy> take_replaced(std::uint64_t bytes,
                                       const stream_of &behind);

    /// Takes all vacancies that @p which accepts, by their sizes.
    template <typename Which>
    std::vector<vacancy> take_if(Which which)
    {
        std::vector<vacancy> out;
        for (const vacancy &each : by_bytes())
            if (which(each)) {
                remove(each);
                out.push_back(each);
            }
        return out;
    }

    /// Takes whole vacancies that nobody asks for any more. To be called for
    /// every request that found none.
    /// @param excess  bytes of chunks and more that had better be vacant no
    ///   longer. Those that are idle longest go first, once nobody has asked
    ///   for them for a while. That while becomes twice as long each time that
    ///   one is asked for again
    std::vector<vacancy> take_idle(std::uint64_t excess);

    /// Bytes of all of them, and of those that can be given back.
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t whole_bytes() const { return whole_bytes_; }

private:
    struct aged
    {
        vacancy what;
        std::uint64_t asks = 0; // asks_ as it was put
    };
    struct key
    {
        stream_of behind;
        bool is_shared = false;
        std::uint64_t bytes = 0;
        CUdeviceptr base = 0;
        auto operator<=>(const key &) const = default;
    };
    static key key_of(const vacancy &of)
    {
        return {of.behind, of.range.bytes > 0, of.bytes, of.base};
    }
    const vacancy *smallest(const stream_of &behind, bool is_shared,
                            std::uint64_t bytes) const;
    const vacancy *find(std::uint64_t bytes, const stream_of &behind,
                        std::uint64_t &cut) const;
    std::vector<vacancy> by_bytes() const;
    static bool join(vacancy &one, const vacancy &next);
    void note_miss(std::uint64_t bytes, const stream_of &behind);
    void enter(const vacancy &of, std::uint64_t asks);
    void remove(const vacancy &of);
    std::map<CUdeviceptr, aged> free_; // by address
    std::set<key> by_size_;            // the same
    std::uint64_t bytes_ = 0;
    std::uint64_t whole_bytes_ = 0;
    std::uint64_t asks_ = 0;
    std::uint64_t next_look_ = 0; // after so many requests
    // Those that left as excess, the last of them.
    struct left
    {
        stream_of behind;
        std::uint64_t bytes = 0;
        std::uint64_t asks = 0; // asks_ as it left
    };
    std::array<left, 64> left_{};
    std::size_t next_left_ = 0;
    std::uint64_t idle_asks_ = least_idle_asks;
    std::uint64_t next_regret_ = 0; // after so many requests
};

} // namespace emuv::cuda

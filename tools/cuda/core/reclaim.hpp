// SPDX-License-Identifier: LGPL-2.1-or-later
// Requests that would spill, refused once for what is given back then.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace emuv::cuda {

/// Whether a request for memory that VRAM has no room for is to be refused.
///
/// A caching allocator keeps what the program has freed. One that gives it back
/// when it is told that there is no more, and asks for the same again at once,
/// holds less for it: what nobody uses need not spill. So such a request is
/// refused once, and granted when it comes again. Where less is given back than
/// was asked for, some memory is granted before the next refusal; whoever does
/// not ask again is not refused again.
///
/// For several threads at once.
class reclaim
{
public:
    /// How many refusals a program gets before what they take counts, and which
    /// part of its time they may take then: one in so many.
    static constexpr unsigned free_refusals = 64;
    static constexpr std::uint64_t part_of_time = 20;
    /// What is granted after a refusal that did not help, after the second in
    /// a row twice as much, and so on to four times as much.
    static constexpr std::uint64_t patience_bytes = std::uint64_t{128} << 20;

    /// Somebody asks for memory: whether it is a request that was refused.
    /// Each has to be told, what VRAM has room for as well.
    /// @param thread, device  who, and where
    /// @param returned  bytes that the program has ever given back
    /// @param now_ns  of a clock that does not go back
    bool comes_again(std::uintptr_t thread, int device, std::uint64_t bytes,
                     std::uint64_t returned, std::uint64_t now_ns);

    /// What does not come again, VRAM has no room for, and is of one who would
    /// ask again.
    /// @return whether to refuse it
    bool refuse(std::uintptr_t thread, int device, std::uint64_t bytes,
                std::uint64_t returned, std::uint64_t now_ns);

private:
    struct request
    {
        std::uint64_t bytes;
        std::uint64_t returned;
        std::uint64_t since_ns;
    };

    std::mutex lock_;
    // Refused, and not made again yet.
    std::map<std::pair<std::uintptr_t, int>, request> refused_;
    bool unheard_ = false; // one was never made again
    unsigned count_ = 0;
    unsigned in_vain_ = 0;       // the last so many
    std::uint64_t to_grant_ = 0; // bytes, before the next refusal
    std::uint64_t spent_ns_ = 0;
    std::uint64_t begun_ns_ = 0;
};

} // namespace emuv::cuda

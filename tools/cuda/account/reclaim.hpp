// SPDX-License-Identifier: LGPL-2.1-or-later
// Refuses requests that would spill once, so that their program frees memory.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace emuv::cuda {

/// Decides whether to refuse a request for memory that VRAM has no room for.
///
/// A caching allocator keeps what the program has freed. When it is refused,
/// it may give that back, and ask for the same again at once. Then unused
/// memory need not spill. So such a request is refused once, and granted when
/// it comes again. If that makes no room, some memory is granted before the
/// next refusal. Once a refused request is not repeated, none is refused again.
///
/// For several threads at once.
class reclaim
{
public:
    /// A device gets so many refusals before the time counts that passes until
    /// requests come again. After these, that may be all time divided by
    /// this.
    static constexpr unsigned free_refusals = 64;
    static constexpr std::uint64_t divisor_of_time = 20;
    /// So much is granted after a refusal that did not help. After the second
    /// in a row it is twice as much, and so on to four times as much.
    static constexpr std::uint64_t patience_bytes = std::uint64_t{128} << 20;

    /// Memory of a device has been given back.
    void returned(int device, std::uint64_t bytes);

    /// A thread asks for memory. Every request has to be told, also one that
    /// VRAM has room for.
    /// @param thread  the one that asks
    /// @param fits  true if VRAM has room for it
    /// @return true if it is the request that was refused
    /// @param now_ns  of a clock that does not go back
    bool comes_again(std::uintptr_t thread, int device, std::uint64_t bytes,
                     bool fits, std::uint64_t now_ns);

    /// Takes a request that does not come again, that VRAM has no room for,
    /// and whose program would ask again.
    /// @param missing  bytes of room that it would take
    /// @return true if it is to be refused
    bool refuse(std::uintptr_t thread, int device, std::uint64_t bytes,
                std::uint64_t missing, std::uint64_t now_ns);

    /// Refuses nothing from now on.
    void stop();

private:
    struct device_state
    {
        // The request that was refused and has not come again.
        bool pending = false;
        std::uintptr_t thread = 0;
        std::uint64_t bytes = 0;
        std::uint64_t missing = 0;
        std::uint64_t returned_before = 0;
        std::uint64_t since_ns = 0;

        std::uint64_t returned = 0; // bytes, ever
        unsigned count = 0;
        unsigned in_vain = 0;       // the last so many
        std::uint64_t to_grant = 0; // bytes, before the next refusal
        std::uint64_t spent_ns = 0;
        std::uint64_t begun_ns = 0;
    };

    std::mutex lock_;
    std::map<int, device_state> devices_;
    bool stopped_ = false; // one never came again, or none is wanted
};

} // namespace emuv::cuda

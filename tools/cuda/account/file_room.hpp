// SPDX-License-Identifier: LGPL-2.1-or-later
// Room in a file, for memory that has none in system RAM.
#pragma once

#include "base/size.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace emuv::cuda {

/// The bytes of a file that the memory of all devices of a process takes. A
/// part of it is kept for memory that moves: it goes to the file before other
/// memory has come from there. Every call may come from any thread.
class file_room
{
public:
    /// @param bytes  whole chunks
    explicit file_room(std::uint64_t bytes)
        : bytes_(bytes),
          kept_bytes_(
              std::min(most_kept_bytes, bytes / 4 / chunk_bytes * chunk_bytes))
    {}
    file_room(const file_room &) = delete;
    file_room &operator=(const file_room &) = delete;

    /// That memory may be made for.
    std::uint64_t new_bytes() const { return bytes_ - kept_bytes_; }
    /// That are kept for memory that moves.
    std::uint64_t kept_bytes() const { return kept_bytes_; }
    std::uint64_t used_bytes() const { return used_bytes_.load(); }

    /// @param is_new  the memory is being made; else it moves
    /// @return false where there is not so much; nothing is charged then
    bool charge(std::uint64_t bytes, bool is_new)
    {
        const std::uint64_t most = is_new ? new_bytes() : bytes_;
        std::uint64_t used = used_bytes_.load();
        do {
            if (used > most || bytes > most - used)
                return false;
        } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
        return true;
    }
    void uncharge(std::uint64_t bytes) { used_bytes_ -= bytes; }

private:
    static constexpr std::uint64_t most_kept_bytes = std::uint64_t{64} << 20;

    const std::uint64_t bytes_;
    const std::uint64_t kept_bytes_;
    std::atomic<std::uint64_t> used_bytes_{0};
};

} // namespace emuv::cuda

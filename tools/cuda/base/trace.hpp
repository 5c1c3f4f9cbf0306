// SPDX-License-Identifier: LGPL-2.1-or-later
// A record of movement in time, for chrome://tracing and Perfetto.
#pragma once

#include "base/statistics.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace emuv::cuda {

/// A file in Chrome's trace event format, whole JSON behind each event: a
/// program may end at any time. One write puts the event over the array's end,
/// with a new end behind it.
class trace
{
public:
    trace() = default;
    trace(const trace &) = delete;
    trace &operator=(const trace &) = delete;
    ~trace();

    /// Called once, before other threads use the object. If another process
    /// records in @p path, the file is "PATH.PID" instead.
    /// @return 0 or an errno; ESPIPE where the file has no offsets
    int open(const char *path);

    /// Lets go of the parent's file, in the child of a fork(): nothing is
    /// recorded any more.
    void close_after_fork();

    /// False until a file is open, and once it cannot be written any more: then
    /// nothing is recorded.
    bool is_on() const { return on_.load(std::memory_order_relaxed); }

    enum class row
    {
        to_vram = 1,
        to_ram,
        waits,
        calls, ///< of the driver, that take long
    };

    /// A span: one bar in one row of the picture.
    /// @param address, bytes  the memory it is about
    /// @param card  that lends the memory beyond VRAM; -1: none does
    void span(row where, const char *name, std::uint64_t start_ns,
              std::uint64_t end_ns, std::uint64_t address, std::uint64_t bytes,
              std::uint64_t next_use, int card = -1);

    /// A mark: this kernel ran for the first time. It is not trusted, so all
    /// movement stops while it runs.
    /// @param why  the reason
    void kernel(const char *name, const char *why);

    /// The state of one device, for the tracks of counters.
    struct levels
    {
        int device = 0;
        std::uint64_t vram_bytes = 0;  ///< charged to this process
        std::uint64_t ram_bytes = 0;   ///< of its memory, in system RAM
        std::uint64_t cards_bytes = 0; ///< of its memory, on other cards
    };

    /// Bytes have crossed the link of @p device.
    /// @param card  the one at the other end; -1: system RAM is
    void crossed(int device, const moved_bytes &bytes, int card);

    /// Records the counters of a device if any has changed, and the last time
    /// is counter_ns past at least.
    void count(const levels &now, std::uint64_t now_ns);

    static constexpr std::uint64_t counter_ns = 10'000'000;

private:
    // The counters of one device.
    struct counted
    {
        std::uint64_t at_ns = 0; // when they were recorded; 0: never
        std::uint64_t vram_bytes = 0;
        std::uint64_t ram_bytes = 0;
        std::uint64_t cards_bytes = 0;
        bool has_cards = false;
        moved_bytes with_ram = {}; // since then
        moved_bytes with_cards = {};
        bool link_was_busy = false;
    };

    void put(std::string_view events);
    bool write(std::string_view text);
    counted &of_device(int device);

    std::atomic<bool> on_{false};
    std::mutex lock_; // guards all below: one event at a time
    int fd_ = -1;
    std::uint64_t end_ = 0; // the offset of the array's end
    std::string text_;      // what is written; kept for its capacity
    std::vector<counted> counted_;
};

} // namespace emuv::cuda

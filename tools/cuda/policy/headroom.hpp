// SPDX-License-Identifier: LGPL-2.1-or-later
// The amount of VRAM kept for units on the move.
#pragma once

#include <cstdint>

namespace emuv::cuda {

/// The VRAM planned for units in transit, and for units prefetched ahead of
/// their use. It displaces memory that could have stayed, and that memory then
/// moves: N bytes in a circle over B cost more than N-B. So it is small while
/// the program waits for the link. It grows when the program waits and the link
/// rests: the next unit then lacks VRAM that evicted units still hold. If the
/// running kernel fills the card, only its end tells if those are dirty
/// (docs/notebook/2026-11-measurements.md, "Products").
///
/// All times are of one clock that does not go back, in nanoseconds. The
/// caller locks.
class headroom
{
public:
    /// One unit on its way in, and one that has left: with less, or none, the
    /// same crosses the link in movement_bench.
    static constexpr std::uint64_t least_bytes = std::uint64_t{64} << 20;
    static constexpr std::uint64_t first_bytes = std::uint64_t{192} << 20;
    static constexpr std::uint64_t most_bytes = std::uint64_t{448} << 20;

    std::uint64_t bytes() const { return bytes_; }

    /// Starts to measure anew: the past does not stand for the future.
    void begin(std::uint64_t now_ns);

    /// The work from a moment on.
    struct to_do
    {
        bool brings = false; ///< the link has anything to bring
        bool maps = false;   ///< the driver has anything to map
    };

    void looked(to_do now, std::uint64_t now_ns);

    /// A launch has waited so long for memory that was not there.
    void waited(std::uint64_t ns) { waited_ns_ += ns; }

    /// Chooses anew, by the time since begin() or the last choice.
    /// @return true if the amount has changed
    bool choose(std::uint64_t now_ns);

private:
    static constexpr std::uint64_t step_bytes = std::uint64_t{128} << 20;
    static_assert(least_bytes < first_bytes && first_bytes < most_bytes);
    // Parts of the time. A longer wait is worth a change. A link that rests for
    // longer could carry more, unless the driver is busy mapping. A link that
    // rests for less carries too much.
    static constexpr std::uint64_t long_wait = 64;
    static constexpr std::uint64_t long_rest = 8;
    static constexpr std::uint64_t short_rest = 16;

    std::uint64_t bytes_ = first_bytes;
    std::uint64_t since_ns_ = 0;
    std::uint64_t looked_ns_ = 0;
    std::uint64_t brought_ns_ = 0;
    std::uint64_t busy_ns_ = 0; // the link or the driver
    std::uint64_t waited_ns_ = 0;
    to_do seen_;
};

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// How much VRAM is planned for what moves.
#pragma once

#include <cstdint>

namespace emuv::cuda {

/// What of VRAM is planned for all that is under way, and for what lies there
/// ahead of its use. It takes the place of what could have stayed, and is moved
/// in its stead: N bytes in a circle over B then cost more than N-B. So it is
/// little where the link is what the program waits for. Where the program waits
/// while nothing is on its way it is more, since VRAM is what the next unit
/// lacks, held by units on their way out: whether they have changed can be seen
/// only as the kernel that runs ends, where that fills the card
/// (docs/notebook/2026-11-measurements.md, "Products").
///
/// All times are of one clock that does not go back, in nanoseconds. Whoever
/// uses it locks.
class headroom
{
public:
    /// One unit on its way in, and one that has left: with less, or none, the
    /// same crosses the link in movement_bench.
    static constexpr std::uint64_t least_bytes = std::uint64_t{64} << 20;
    static constexpr std::uint64_t first_bytes = std::uint64_t{192} << 20;
    static constexpr std::uint64_t most_bytes = std::uint64_t{448} << 20;

    std::uint64_t bytes() const { return bytes_; }

    /// What was until now is not what comes to stay.
    void begin(std::uint64_t now_ns);

    /// @param brings  whether from now on the link has anything to bring
    /// @param maps  whether the driver has anything to map
    void looked(bool brings, bool maps, std::uint64_t now_ns);

    /// A launch has waited so long for what was not there.
    void waited(std::uint64_t ns) { waited_ns_ += ns; }

    /// Chooses anew, by what has been since it began, or chose last.
    /// @return whether it is another amount now
    bool choose(std::uint64_t now_ns);

private:
    static constexpr std::uint64_t step_bytes = std::uint64_t{128} << 20;
    static_assert(least_bytes < first_bytes && first_bytes < most_bytes);
    // Parts of the time: to wait for longer is worth a mend, a link that rests
    // for longer could carry more, unless the driver is busy mapping, and one
    // that rests for less carries too much.
    static constexpr std::uint64_t long_wait = 64;
    static constexpr std::uint64_t long_rest = 8;
    static constexpr std::uint64_t short_rest = 16;

    std::uint64_t bytes_ = first_bytes;
    std::uint64_t since_ns_ = 0;
    std::uint64_t looked_ns_ = 0;
    std::uint64_t brought_ns_ = 0;
    std::uint64_t busy_ns_ = 0; // the link or the driver
    std::uint64_t waited_ns_ = 0;
    bool brings_ = false;
    bool maps_ = false;
};

} // namespace emuv::cuda

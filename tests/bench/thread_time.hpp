// SPDX-License-Identifier: GPL-2.0-or-later
// The time of a program's thread that is played from a tape.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bench {

/// When the program's thread goes on, in nanoseconds of a clock. A call of the
/// program's takes as long as the driver took, and as the engine takes on top.
/// A thread that waits for the device goes on when that is done.
struct thread_time
{
    std::uint64_t at = 0; ///< its time; the player sleeps until then

    /// A call begins.
    void calls(std::uint64_t now) { since_ = now; }
    /// It waits for the device; until goes_on().
    void waits(std::uint64_t now) { at += now - since_; }
    void goes_on(std::uint64_t now)
    {
        at = std::max(at, now);
        since_ = now;
    }
    /// The call ends.
    /// @param host  nanoseconds that it took the driver
    void returns(std::uint64_t now, std::uint64_t host)
    {
        at += host + (now - since_);
    }

private:
    std::uint64_t since_ = 0;
};

} // namespace bench

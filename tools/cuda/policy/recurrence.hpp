// SPDX-License-Identifier: LGPL-2.1-or-later
// The test that tells a real round of a program from one that looks like it.
#pragma once

#include "policy/schedule.hpp"

#include <cstdint>

namespace emuv::cuda {

/// Compares the memory that a round touches with that of the round before.
///
/// The layers of a model look alike to a schedule until it has seen one twice.
/// The same kernels work on the same activations, and each layer has weights of
/// its own. All layers take equally long, and yet the best place for one's
/// memory is of no use to the others.
class recurrence
{
public:
    static constexpr std::uint64_t never = UINT64_MAX;

    /// A step begins that touches something.
    /// @param lag  how many steps ago the same was done; 0 when unknown
    void step(std::uint64_t lag)
    {
        if (lag == 0 || !same_round(lag, lag_))
            touched_bytes_ = strange_bytes_ = seen_ = 0;
        seen_++;
        lag_ = lag;
        if (++steps_ % half_life == 0) {
            touched_bytes_ /= 2;
            strange_bytes_ /= 2;
        }
    }

    /// It touches so many bytes.
    /// @param ago  how many steps ago they were touched last, or never
    void touches(std::uint64_t bytes, std::uint64_t ago)
    {
        if (ago < lag_ / 2)
            return; // again, in this round
        touched_bytes_ += bytes;
        strange_bytes_ += ago > lag_ + lag_ / 16 ? bytes : 0;
    }

    /// True if the same memory comes again, but for a sixteenth of it.
    bool holds() const
    {
        return lag_ != 0 && strange_bytes_ <= touched_bytes_ / 16;
    }

    /// True if holds(), after at least a quarter of a round.
    bool has_been_seen() const { return holds() && seen_ > lag_ / 4; }

private:
    // In steps. A round may touch something new now and then.
    static constexpr std::uint64_t half_life = 1024;

    std::uint64_t lag_ = 0;
    std::uint64_t steps_ = 0;
    std::uint64_t seen_ = 0; // steps, of rounds that look like this one
    std::uint64_t touched_bytes_ = 0;
    std::uint64_t strange_bytes_ = 0; // of those, not within the last round
};

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// How far a program is ahead of its device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// Knows by the round before how long the device has to do with what it has in
/// hand: how long it was busy with the same steps then. Whoever uses it locks.
class lead
{
public:
    /// Steps of a round that are kept; in one that is longer nobody knows.
    static constexpr std::size_t max_steps = std::size_t{1} << 16;

    /// Work has ended, of which as much as was handed over was under way.
    /// @param step  its number, from 1; 0 for what is no step
    void ended(std::uint64_t step, std::uint64_t handed_over_ns,
               std::uint64_t now_ns);

    /// How long the device will be busy from the begin of one step to the end
    /// of another.
    /// @param lag  how many steps ago the same was done
    /// @return 0 where nobody knows
    std::uint64_t busy_ns(std::uint64_t first, std::uint64_t last,
                          std::uint64_t lag) const;

private:
    struct end
    {
        std::uint64_t step = 0;
        std::uint64_t busy_ns = 0; // all that ever was
    };
    const end *end_of(std::uint64_t step) const;

    std::vector<end> ends_; // by step
    std::uint64_t busy_ns_ = 0;
    std::uint64_t last_end_ns_ = 0;
};

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// Chooses the units that stay in system RAM while nothing moves.
#pragma once

#include "movement/block.hpp"
#include "policy/schedule.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// The properties of a unit that choose_places() weighs.
struct placed_unit
{
    std::uint64_t bytes = 0;
    std::uint32_t uses = 0;  ///< in a round
    std::uint64_t first = 0; ///< the step of the first use, if any
    bool pinned = false;     ///< never to be in system RAM
    int priority = 0;        ///< of those used as often, the lowest go first
};

/// Chooses units to be in system RAM, as many bytes as do not fit. The choice
/// keeps reads over the link few, and spreads them evenly over the round.
///
/// The units used least often go first. A program's thread runs ahead of the
/// card while the card reads over the link, and the card then catches up. If
/// all units in system RAM were used at a round's end, nothing would be left to
/// catch up with. That happens if the memory allocated last lies there.
/// @param excess  bytes that do not fit
/// @return for each unit whether it is to be in system RAM
std::vector<bool> choose_places(const std::vector<placed_unit> &units,
                                std::uint64_t excess);

/// Has places chosen once, and again when more or less fits.
class arrangement
{
public:
    /// True if it is time to arrange. If so, it counts as done.
    /// @param excess  bytes that do not fit
    bool is_due(const schedule &uses, std::uint64_t excess);

    /// Does what is_due() asked for: sets each unit's stays_away. The lock is
    /// let go while the places are chosen.
    /// @param blocks, uses  guarded by the lock
    void arrange(std::unique_lock<std::mutex> &lock,
                 const std::vector<block_ref> &blocks,
                 const schedule &uses) const;

    /// Something else has been done since.
    void forget() { made_ = false; }

private:
    // Units go to their places once. If a program's memory comes and goes, they
    // would be on their way for good.
    static constexpr std::uint64_t kept_rounds = 8;

    bool made_ = false;
    std::uint64_t excess_ = 0; // it was made for
    std::uint64_t until_ = 0;  // the step up to which it is kept
};

} // namespace emuv::cuda

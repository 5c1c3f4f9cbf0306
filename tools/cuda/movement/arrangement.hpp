// SPDX-License-Identifier: LGPL-2.1-or-later
// Which units are in system RAM for good, where nothing moves.
#pragma once

#include "movement/block.hpp"
#include "policy/schedule.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// What choose_places() weighs of a unit.
struct placed_unit
{
    std::uint64_t bytes = 0;
    std::uint32_t uses = 0;  ///< in a round
    std::uint64_t first = 0; ///< the step of the first; no matter without uses
};

/// Chooses units to be in system RAM, as many bytes as do not fit, such that
/// as little as possible is read over the link, and evenly over the round.
///
/// Those go first that are used least often. A program's thread runs ahead of
/// the card while that reads over the link, and the card then catches up. Where
/// all that is in system RAM is used at a round's end, as it is when what was
/// allocated last is there, nothing is left to catch up with.
/// @param excess  bytes that do not fit
/// @return for each unit whether it is to be in system RAM
std::vector<bool> choose_places(const std::vector<placed_unit> &units,
                                std::uint64_t excess);

/// Has places chosen, once, and again where more or less fits.
class arrangement
{
public:
    /// Whether it is time to. If so, it counts as done.
    /// @param excess  bytes that do not fit
    bool is_due(const schedule &uses, std::uint64_t excess);

    /// What is_due() was about: sets each unit's stays_away, with the lock let
    /// go for that.
    /// @param blocks, uses  what the lock guards
    void arrange(std::unique_lock<std::mutex> &lock,
                 const std::vector<block_ref> &blocks,
                 const schedule &uses) const;

    /// Something else has been done since.
    void forget() { made_ = false; }

private:
    // Units go to their places once. A program whose memory comes and goes
    // would have them on their way for good.
    static constexpr std::uint64_t kept_rounds = 8;

    bool made_ = false;
    std::uint64_t excess_ = 0; // it was made for
    std::uint64_t until_ = 0;  // which step it is kept, whatever comes
};

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// The test that tells if a program is faster while its memory moves.
#include "policy/pace.hpp"

#include "policy/schedule.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace emuv::cuda {

void pace::begin(std::uint64_t lag, std::uint64_t now_ns)
{
    lag_ = lag;
    count_ = 0;
    start_ns_ = now_ns;
    disturbed_ = false;
}

void pace::settle_moving(std::uint64_t now_ns)
{
    state_ = state::settled;
    another_ = unarranged_ = false;
    is_ = mode::moving;
    kind_ = lag_;
    begin(lag_, now_ns);
}

// True if standing still is worse than moving, whatever comes. If moving has
// lost before, only a much longer round reopens the question: times may have
// changed.
bool pace::is_too_slow(double ns, std::uint64_t longest_ns) const
{
    if (moves())
        return false;
    const bool compared =
        (state_ == state::settled || state_ == state::arranged) && !another_;
    // Short rounds are measured several at once: up to the end of this one. In
    // a round that does not count, memory is mapped that was mapped nowhere.
    const auto steps = static_cast<double>((count_ + lag_ - 1) / lag_ * lag_);
    const double times = (skip_ > 0 ? 2 : 1) * worth_arranging;
    if (state_ == state::still && !another_ && ns >= shortest_ns &&
        ns > times * moving_ns_ * steps)
        return true;
    return ns > static_cast<double>(longest_ns) +
                    (compared ? 2 * still_ns_ * static_cast<double>(lag_) : 0);
}

void pace::ended(std::uint64_t lag, std::uint64_t now_ns,
                 std::uint64_t longest_ns, bool recurs)
{
    if (always_)
        return;
    blind_ += lag != 0 ? 1 : 0;
    if (lag == 0 || lag_ == 0 || !same_round(lag, lag_)) {
        another_ = another_ || lag == 0;
        begin(lag, now_ns);
        if (!moves() && lag != 0 &&
            blind_ > std::max(blind_steps, blind_rounds * lag))
            settle_moving(now_ns);
        return;
    }
    count_++;
    const auto ns = static_cast<double>(now_ns - start_ns_);
    if (is_too_slow(ns, longest_ns)) {
        settle_moving(now_ns);
        return;
    }
    if (count_ % lag_ != 0 || ns < shortest_ns)
        return;
    const double step_ns = ns / static_cast<double>(count_);
    const bool disturbed = disturbed_;
    begin(lag, now_ns);
    blind_ = 0;
    if (another_ || !same_kind_of_round(lag, kind_)) {
        another_ = false;
        kind_ = lag;
        state_ = state::trial;
        tried_ = tried_disturbed_ = 0;
        moving_ns_ = std::numeric_limits<double>::max();
        skip_ = is_ == mode::moving ? 0 : 1;
        if (std::exchange(is_, mode::moving) != mode::moving)
            return;
    }
    if (skip_ > 0)
        skip_--;
    else
        measured(
            {.step_ns = step_ns, .disturbed = disturbed, .recurs = recurs});
}

// Tries something else from here on.
void pace::try_next(state next)
{
    state_ = next;
    unarranged_ = false;
    is_ = next == state::still ? mode::still : mode::arranged;
    skip_ = 1;
    tried_ = tried_disturbed_ = 0;
}

// True if the present mode has been tried for so many rounds that count.
bool pace::is_known(bool disturbed, unsigned rounds)
{
    if (disturbed && ++tried_disturbed_ <= disturbed_rounds)
        return false;
    return ++tried_ >= rounds;
}

// Takes note of a whole round.
void pace::measured(const past_round &one)
{
    switch (state_) {
    case state::trial:
        moving_ns_ = std::min(moving_ns_, one.step_ns);
        if (is_known(one.disturbed, trial_rounds))
            try_next(state::still);
        break;
    case state::still:
        if (!is_known(one.disturbed, 1))
            break;
        still_ns_ = one.step_ns;
        arranged_ns_ = std::numeric_limits<double>::max();
        if (one.recurs) {
            try_next(state::arranged);
        } else {
            state_ = state::settled;
            is_ = moving_ns_ < still_ns_ ? mode::moving : mode::still;
            unarranged_ = true;
        }
        break;
    case state::arranged:
        if (!one.disturbed)
            arranged_ns_ = std::min(arranged_ns_, one.step_ns);
        if (!is_known(one.disturbed, arranged_rounds))
            break;
        state_ = state::settled;
        // If moving has lost, memory stands still, arranged or not.
        is_ = moving_ns_ < std::min(still_ns_, arranged_ns_) ? mode::moving
                                                             : mode::arranged;
        still_ns_ = std::min(still_ns_, arranged_ns_);
        break;
    case state::settled:
        if (unarranged_ && one.recurs)
            try_next(state::arranged);
        break;
    }
}

} // namespace emuv::cuda

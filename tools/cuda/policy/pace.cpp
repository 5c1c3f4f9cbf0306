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
    moves_again_ = !moves();
    is_ = mode::moving;
    kind_ = lag_;
    begin(lag_, now_ns);
}

// True if standing still is worse than moving, whatever comes. How long moving
// takes has been measured, or is presumed (@p longest_ns). If moving has lost
// before, only a much longer round reopens the question: times may have
// changed.
bool pace::is_too_slow(double ns, std::uint64_t longest_ns) const
{
    if (moves())
        return false;
    const auto longest = static_cast<double>(longest_ns);
    if (is_another_kind(lag_))
        return ns > longest;
    // Short rounds are measured several at once: up to the end of this one. In
    // a round that does not count, memory is mapped that was mapped nowhere.
    const auto steps = static_cast<double>((count_ + lag_ - 1) / lag_ * lag_);
    const double moving = (skip_ > 0 ? 2 : 1) * moving_ns_ * steps;
    if (state_ == state::still)
        return ns >= shortest_ns && ns > worth_arranging * moving;
    return ns > std::max(longest, worth_arranging * moving);
}

void pace::ended(std::uint64_t lag, std::uint64_t now_ns,
                 std::uint64_t longest_ns, bool recurs)
{
    if (always_)
        return;
    blind_ += lag != 0 ? 1 : 0;
    if (lag == 0 || lag_ == 0 || !same_round(lag, lag_)) {
        moves_again_ = false;
        another_ = another_ || lag == 0;
        begin(lag, now_ns);
        if (!moves() && lag != 0 &&
            blind_ > std::max(blind_steps, blind_rounds * lag))
            settle_moving(now_ns);
        return;
    }
    count_++;
    // A pause that began before this round was taken from it as a whole.
    const auto ns = static_cast<double>(now_ns - std::min(now_ns, start_ns_));
    if (is_too_slow(ns, longest_ns)) {
        // A pause that nobody knows of looks the same. So it decides nothing
        // but that this kind is measured.
        if (state_ == state::settled || is_another_kind(lag)) {
            begin_kind(lag);
            begin(lag, now_ns);
        } else {
            lost_ = std::min(lost_ + 1, most_doublings);
            settle_moving(now_ns);
        }
        return;
    }
    if (count_ % lag_ != 0 || ns < shortest_ns)
        return;
    moves_again_ = false;
    const double step_ns = ns / static_cast<double>(count_);
    const bool disturbed = disturbed_;
    begin(lag, now_ns);
    blind_ = 0;
    if (is_another_kind(lag)) {
        const bool moved = moves();
        begin_kind(lag);
        if (!moved)
            return;
    }
    if (skip_ > 0)
        skip_--;
    else
        measured(
            {.step_ns = step_ns, .disturbed = disturbed, .recurs = recurs});
}

// True if the rounds of this lag are not those that state_ is about.
bool pace::is_another_kind(std::uint64_t lag) const
{
    return another_ || !same_kind_of_round(lag, kind_);
}

// Measures the rounds of this lag from here on.
void pace::begin_kind(std::uint64_t lag)
{
    another_ = false;
    kind_ = lag;
    try_next(state::trial);
}

// Tries something else from here on.
void pace::try_next(state next)
{
    const mode then = next == state::trial   ? mode::moving
                      : next == state::still ? mode::still
                                             : mode::arranged;
    skip_ = is_ == then ? 0 : 1;
    moves_again_ = then == mode::moving && !moves();
    is_ = then;
    state_ = next;
    unarranged_ = false;
    tried_.clear();
    tried_disturbed_ = 0;
    trials_ = 0;
}

void pace::trial_times::add(double step_ns)
{
    std::size_t at = count_++;
    for (; at > 0 && sorted_[at - 1] > step_ns; at--)
        sorted_[at] = sorted_[at - 1];
    sorted_[at] = step_ns;
}

// Takes a round if it is typical, or too many were not. True once there are as
// many as count.
bool pace::is_known(const past_round &one, std::size_t rounds)
{
    if (one.disturbed && ++tried_disturbed_ <= disturbed_rounds)
        return false;
    tried_.add(one.step_ns);
    return tried_.count() >= rounds;
}

// Takes note of a whole round.
void pace::measured(const past_round &one)
{
    switch (state_) {
    case state::trial:
        if (!is_known(one, trial_rounds))
            break;
        moving_ns_ = tried_.typical();
        tried_.clear();
        if (++trials_ >= 1u << lost_)
            try_next(state::still);
        break;
    case state::still:
        if (!is_known(one, still_rounds))
            break;
        still_ns_ = tried_.typical();
        if (one.recurs) {
            try_next(state::arranged);
        } else {
            state_ = state::settled;
            is_ = moving_ns_ < still_ns_ ? mode::moving : mode::still;
            lost_ = moves() ? std::min(lost_ + 1, most_doublings) : 0;
            unarranged_ = true;
        }
        break;
    case state::arranged:
        // Memory that is still not arranged takes for ever.
        if (!is_known({.step_ns = one.disturbed
                                      ? std::numeric_limits<double>::max()
                                      : one.step_ns,
                       .disturbed = one.disturbed,
                       .recurs = one.recurs},
                      still_rounds))
            break;
        state_ = state::settled;
        if (tried_.typical() < std::numeric_limits<double>::max())
            still_ns_ = tried_.typical();
        // If moving has lost, memory stands still, arranged or not.
        is_ = moving_ns_ < still_ns_ ? mode::moving : mode::arranged;
        lost_ = moves() ? std::min(lost_ + 1, most_doublings) : 0;
        break;
    case state::settled:
        if (unarranged_ && one.recurs)
            try_next(state::arranged);
        break;
    }
}

} // namespace emuv::cuda

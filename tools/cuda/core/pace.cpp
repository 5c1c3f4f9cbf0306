// SPDX-License-Identifier: LGPL-2.1-or-later
// Whether a program is faster while its memory moves.
#include "pace.hpp"

#include "schedule.hpp"

#include <algorithm>
#include <limits>

namespace emuv::cuda {

namespace {

// What looks like now may lie several rounds back as well.
bool same_kind(std::uint64_t lag, std::uint64_t kind)
{
    const std::uint64_t more = std::max(lag, kind);
    const std::uint64_t less = std::min(lag, kind);
    const std::uint64_t times = less > 0 ? (more + less / 2) / less : 0;
    return times > 0 && times <= 4 && same_round(more, times * less);
}

} // namespace

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
    another_ = false;
    moves_ = true;
    kind_ = lag_;
    begin(lag_, now_ns);
}

void pace::ended(std::uint64_t lag, std::uint64_t now_ns,
                 std::uint64_t longest_ns)
{
    if (always_)
        return;
    blind_ += lag != 0 ? 1 : 0;
    if (lag == 0 || lag_ == 0 || !same_round(lag, lag_)) {
        another_ = another_ || lag == 0;
        begin(lag, now_ns);
        if (!moves_ && lag != 0 &&
            blind_ > std::max(blind_steps, blind_rounds * lag))
            settle_moving(now_ns);
        return;
    }
    count_++;
    const auto ns = static_cast<double>(now_ns - start_ns_);
    // Where moving has lost, it takes more: times may have changed.
    const bool compared = state_ == state::settled && !another_;
    if (!moves_ &&
        ns > static_cast<double>(longest_ns) +
                 (compared ? 2 * still_ns_ * static_cast<double>(lag_) : 0)) {
        settle_moving(now_ns);
        return;
    }
    if (count_ % lag_ != 0 || ns < shortest_ns)
        return;
    const double step_ns = ns / static_cast<double>(count_);
    const bool disturbed = disturbed_;
    begin(lag, now_ns);
    blind_ = 0;
    if (another_ || !same_kind(lag, kind_)) {
        another_ = false;
        kind_ = lag;
        state_ = state::still;
        skip_ = moves_ ? 1 : 0;
        if (moves_) {
            moves_ = false;
            return;
        }
    }
    if (skip_ > 0)
        skip_--;
    else
        measured(step_ns, disturbed);
}

// Takes note of a whole round.
void pace::measured(double step_ns, bool disturbed)
{
    if (state_ == state::still) {
        still_ns_ = step_ns;
        best_ns_ = std::numeric_limits<double>::max();
        state_ = state::trial;
        moves_ = true;
        skip_ = 1;
        tried_ = tried_disturbed_ = 0;
    } else if (state_ == state::trial) {
        best_ns_ = std::min(best_ns_, step_ns);
        if (best_ns_ <= still_ns_) {
            state_ = state::settled;
        } else if (!disturbed || ++tried_disturbed_ > disturbed_rounds) {
            if (++tried_ < trial_rounds)
                return;
            state_ = state::settled;
            moves_ = false;
        }
    }
}

} // namespace emuv::cuda

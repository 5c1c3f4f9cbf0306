// SPDX-License-Identifier: LGPL-2.1-or-later
// A program's point in its own past, told by blocks it touches seldom.
#include "policy/landmarks.hpp"

#include <algorithm>

namespace emuv::cuda {

// Finds the step at which a landmark came as long before @p step as it came
// before now.
std::uint32_t landmarks::seen_before(const sighting &one,
                                     std::uint32_t step) const
{
    const std::uint64_t ago = work_ - one.work;
    const auto found = past_.find(one.given.base);
    if (found == past_.end() || ago + slack(ago) > step ||
        is_chance(one.idle, ago))
        return no_step;
    const history &of = found->second;
    const std::uint64_t first = step - ago - slack(ago);
    const std::uint64_t end = step - ago + std::min(ago, slack(ago)) + 1;
    for (auto each = of.from(end); each != of.uses.begin();)
        if ((--each)->step < first)
            break;
        else if (each->touches(one.given))
            return each->step;
    return no_step;
}

// Counts the last landmarks that came so, each at a step of its own. Work that
// was unknown when it came counts for the step before.
std::uint32_t landmarks::count_before(std::uint32_t step) const
{
    std::array<std::uint32_t, max_last> at{};
    auto end = at.begin();
    for (std::uint32_t i = 0; i < std::min(noted_, max_last); i++) {
        const std::uint32_t then = seen_before(last_[i], step);
        if (then != no_step && std::find(at.begin(), end, then) == end)
            *end++ = then;
    }
    return static_cast<std::uint32_t>(end - at.begin());
}

// Finds the step at which a landmark came, if that is about where it is due: as
// far behind the last point as now is.
std::uint32_t landmarks::due(const landmark &one, std::uint32_t steps) const
{
    const std::uint64_t since = work_ - told_at_;
    const std::uint64_t at = told_ + since;
    const std::uint64_t most = slack(since);
    const std::uint64_t end = std::min<std::uint64_t>(
        at + most + 1, steps - std::min<std::uint64_t>(steps, min_round));
    std::uint32_t nearest = no_step;
    std::uint64_t least = most + 1;
    for (auto each = one.of->from(at - std::min(at, most));
         each != one.of->uses.end() && each->step < end; ++each) {
        const std::uint64_t off =
            each->step > at ? each->step - at : at - each->step;
        if (off < least && each->touches(one.given)) {
            nearest = each->step;
            least = off;
        }
    }
    return nearest;
}

// Of the last steps at which one of these landmarks came, finds the one with
// most of the last landmarks before it.
std::uint32_t landmarks::anywhere(std::uint32_t steps) const
{
    std::uint32_t found = no_step;
    std::uint32_t most = enough - 1;
    for (const landmark &one : found_) {
        std::uint32_t looked = 0;
        for (auto each = one.of->uses.rbegin();
             each != one.of->uses.rend() && looked < max_counterparts;
             ++each, ++looked) {
            if (!each->touches(one.given) || each->step + min_round >= steps)
                continue;
            const std::uint32_t count = count_before(each->step);
            if (count > most) {
                found = each->step;
                most = count;
            }
        }
    }
    return found;
}

landmarks::point landmarks::tell(std::uint32_t steps)
{
    if (!leading_ && is_row_over())
        lost_ = 0;
    point out;
    // A landmark that never kept an order says nothing now, unless nothing else
    // has told the point for long.
    bool counts = !leading_ || work_ - told_at_ > in_a_row;
    if (leading_) {
        const bool is_known = lost_ == 0;
        int most = 0;
        for (const landmark &one : found_) {
            int &trust = one.of->trust;
            const bool chance = is_chance(one.idle, work_ - told_at_);
            if (chance && trust <= 0)
                continue;
            const std::uint32_t then = due(one, steps);
            counts = counts || trust > 0;
            if (then != no_step && (out.step == no_step || trust > most) &&
                (trust > 0 || count_before(then) >= enough)) {
                out = {then, true};
                most = trust;
            }
            if (is_known && !chance)
                trust = then != no_step ? std::min(trust + 1, most_trust)
                                        : std::max(trust - 1, -most_trust);
        }
    }
    if (out.step == no_step && counts && (leading_ || lost_ + 1 >= enough_lost))
        out.step = anywhere(steps);
    for (const landmark &one : found_)
        last_[noted_++ % max_last] = {one.given, one.idle, work_};
    if (out.step != no_step) {
        lost_ = 0;
        told_ = out.step;
        told_at_ = work_;
        leading_ = true;
    } else if (counts) {
        lost_++;
        lost_at_ = work_;
        leading_ = leading_ && lost_ < enough_lost;
    }
    return out;
}

} // namespace emuv::cuda

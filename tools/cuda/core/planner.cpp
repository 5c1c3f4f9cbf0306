// SPDX-License-Identifier: LGPL-2.1-or-later
// When to plan anew which units leave VRAM after which uses.
#include "planner.hpp"

#include "placement.hpp"
#include "plan.hpp"

#include <algorithm>

namespace emuv::cuda {

bool planner::is_due(const schedule &uses, std::uint64_t excess)
{
    const std::uint64_t round = uses.lag();
    const std::uint64_t now = uses.steps();
    const std::uint64_t off =
        excess > excess_ ? excess - excess_ : excess_ - excess;
    const bool another =
        !same_round(round, round_) || off > excess / 8 + max_unit_bytes;
    if (round == 0 || now < made_at_ + (another ? round / 4 : age_))
        return false;
    age_ = another ? round : std::min(2 * age_, 16 * round);
    round_ = round;
    excess_ = excess;
    made_at_ = now;
    return true;
}

void planner::plan(std::unique_lock<std::mutex> &lock,
                   const std::vector<block_ref> &blocks, const schedule &uses)
{
    struct unit_of
    {
        block_ref of;
        std::size_t index;
    };
    std::vector<unit_of> places;
    std::vector<planned_unit> units;
    std::vector<idle_gap> gaps;
    constexpr std::uint64_t none = UINT64_MAX;
    std::vector<std::uint64_t> first;
    std::vector<std::uint64_t> last;
    const auto add = [&](std::size_t unit, std::uint64_t from,
                         std::uint64_t to) {
        // What is shorter is of no use, and most are.
        if (to - from > round_ / round_parts)
            gaps.push_back({static_cast<std::uint32_t>(unit),
                            static_cast<std::uint32_t>(from % round_),
                            static_cast<std::uint32_t>(to - from)});
    };
    for (const block_ref &each : blocks) {
        const std::size_t count = each->slots.size();
        const std::size_t begin = places.size();
        first.assign(count, none);
        last.assign(count, 0);
        if (!each->fixed)
            uses.uses(each->base, [&](std::uint64_t step, std::uint32_t a,
                                      std::uint32_t b) {
                for (std::size_t i = a; i <= b && i < count; i++) {
                    if (first[i] == none)
                        first[i] = step;
                    else
                        add(begin + i, last[i], step);
                    last[i] = step;
                }
            });
        for (std::size_t i = 0; i < count; i++) {
            places.push_back({each, i});
            // Room in system RAM that there is need not be made. What was
            // placed there first is no choice: it lies together, and may stay.
            const slot &one = each->slots[i];
            units.push_back({one.bytes, one.leaves_for != never_leaves &&
                                            (one.where == place::evicting ||
                                             one.host != 0)});
            if (first[i] != none)
                add(begin + i, last[i], first[i] + round_);
        }
    }
    const auto round = static_cast<std::uint32_t>(round_);
    const std::uint64_t excess = excess_;
    lock.unlock();
    const auto shortest = plan_absences(gaps, units, round, excess);
    lock.lock();
    for (std::size_t i = 0; i < places.size(); i++)
        places[i].of->slots[places[i].index].leaves_for = shortest[i];
}

} // namespace emuv::cuda

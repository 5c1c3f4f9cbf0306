// SPDX-License-Identifier: LGPL-2.1-or-later
// Chooses the units that stay in system RAM while nothing moves.
#include "movement/arrangement.hpp"

#include "base/thread.hpp"
#include "store/placement.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace emuv::cuda {

std::vector<bool> choose_places(const std::vector<placed_unit> &units,
                                std::uint64_t excess)
{
    std::vector<bool> chosen(units.size());
    std::vector<std::size_t> order(units.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::erase_if(order, [&](std::size_t each) { return units[each].pinned; });
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (units[a].uses != units[b].uses)
            return units[a].uses < units[b].uses;
        if (units[a].priority != units[b].priority)
            return units[a].priority < units[b].priority;
        return units[a].first != units[b].first
                   ? units[a].first < units[b].first
                   : a < b;
    });
    for (auto at = order.begin(); at != order.end() && excess > 0;) {
        const placed_unit &first = units[*at];
        const auto end = std::find_if(at, order.end(), [&](std::size_t each) {
            return units[each].uses != first.uses ||
                   units[each].priority != first.priority;
        });
        double alike = 0;
        for (auto each = at; each != end; ++each)
            alike += static_cast<double>(units[*each].bytes);
        // The fraction of these equally used units that is to be away. A unit
        // is chosen whenever the bytes chosen so far fall short of that.
        const double fraction =
            std::min(1.0, static_cast<double>(excess) / alike);
        double passed = 0;
        std::uint64_t away = 0;
        for (; at != end; ++at) {
            passed += static_cast<double>(units[*at].bytes);
            if (static_cast<double>(away) >= passed * fraction)
                continue;
            chosen[*at] = true;
            away += units[*at].bytes;
        }
        excess -= std::min(excess, away);
    }
    return chosen;
}

bool arrangement::is_due(const schedule &uses, std::uint64_t excess)
{
    const std::uint64_t off =
        excess > excess_ ? excess - excess_ : excess_ - excess;
    if (uses.lag() == 0 || (made_ && (off <= excess_ / 8 + max_unit_bytes ||
                                      uses.steps() < until_)))
        return false;
    made_ = true;
    excess_ = excess;
    until_ = uses.steps() + kept_rounds * uses.lag();
    return true;
}

void arrangement::arrange(std::unique_lock<std::mutex> &lock,
                          const std::vector<block_ref> &blocks,
                          const schedule &uses) const
{
    std::vector<candidate> candidates;
    std::vector<placed_unit> units;
    for (const block_ref &each : blocks) {
        if (each->fixed)
            continue;
        const std::size_t begin = candidates.size();
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            candidates.push_back({each, i, 0});
            const slot &one = each->slots[i];
            units.push_back(
                {one.bytes, 0, 0, one.said.pinned, one.said.priority});
        }
        uses.uses(each->base, [&](std::uint64_t step, const touch &given) {
            for (std::size_t i = given.first;
                 i <= given.last && i < each->slots.size(); i++) {
                placed_unit &one = units[begin + i];
                // The round begins with the same step each time.
                if (one.uses++ == 0)
                    one.first = step % uses.lag();
            }
        });
    }
    const std::uint64_t excess = excess_;
    lock.unlock();
    const auto chosen = choose_places(units, excess);
    lock_soon(lock);
    for (std::size_t i = 0; i < candidates.size(); i++)
        candidates[i].unit().stays_away = chosen[i];
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// The plan of the units that leave VRAM, and of the times they are away.
#include "policy/plan.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

namespace emuv::cuda {

namespace {

// Gaps whose lengths differ by less than the round divided by this are alike.
constexpr std::uint32_t alike_divisor = 16;
constexpr std::uint32_t grades = 2 * alike_divisor;
// A bin of the round may take so many times its even share, tried in turn; 0
// for any.
constexpr std::array<std::uint64_t, 7> shares = {1, 2, 3, 4, 6, 8, 0};
// Units away are counted by moments, so many to each bin. Counted by bins, a
// unit back within its bin would seem never to have left, and another unit
// would leave in its stead.
constexpr std::uint32_t moments_to_a_bin = 8;
constexpr std::uint32_t round_moments = round_bins * moments_to_a_bin;

// Grades a gap by its useful length for its cost: 0 for a whole round at the
// least cost.
// @param length  in units of the round / alike_divisor
std::uint32_t grade_of(std::uint64_t length, std::uint32_t cost)
{
    const std::uint64_t worth = length * (grades / alike_divisor) / cost;
    return grades -
           static_cast<std::uint32_t>(std::min(std::uint64_t{grades}, worth));
}

// A number's bits in reverse: those of 0, 1, 2 and so on are as far from each
// other as can be.
std::uint32_t spread(std::uint32_t number)
{
    std::uint32_t reversed = 0;
    for (std::uint32_t bit = 1; bit < round_moments; bit *= 2)
        reversed = 2 * reversed + (number & bit ? 1 : 0);
    return reversed;
}

// A gap in moments of the round: the one in which the unit leaves, and the
// number of whole moments it is away after that.
struct absence
{
    std::uint32_t leaves;
    std::uint32_t covers;
    std::size_t gap;

    std::uint32_t comes() const { return leaves + covers + 1; }
};

// Gaps of one unit that cannot be told apart: it leaves for all of them or
// none.
struct choice
{
    std::uint32_t unit;
    std::uint32_t length; // in units of the round / alike_divisor
    std::uint32_t cost;
    std::uint32_t grade;  // the best come first
    std::uint32_t rank;   // among those alike that leave at the same moment
    std::uint32_t leaves; // the first moment
    bool anew;            // after all of them
    std::vector<absence> gaps;
};

// The choice made if no bin of the round takes more than so much.
struct attempt
{
    std::vector<bool> leaves; // for each gap
    std::uint64_t met = 0;    // of the excess, over all moments
};

attempt attempt_with(const std::vector<choice> &order, std::size_t gaps,
                     const std::vector<planned_unit> &units, std::uint32_t bins,
                     std::uint64_t excess, std::uint64_t most)
{
    attempt made;
    made.leaves.resize(gaps);
    const std::uint32_t moments = bins * moments_to_a_bin;
    std::array<std::uint64_t, round_moments> away{};
    std::array<std::uint64_t, round_bins> leaving{};
    std::array<std::uint64_t, round_bins> coming{};
    const auto bin_of = [&](std::uint32_t moment) {
        return moment % moments / moments_to_a_bin;
    };
    // A unit that stays for a long gap stays for shorter ones.
    std::vector<bool> closed(units.size());
    // By the useful length of a gap, which shrinks as others are chosen.
    using turn = std::pair<std::uint32_t, std::uint32_t>;
    std::priority_queue<turn, std::vector<turn>, std::greater<>> turns;
    for (std::uint32_t i = 0; i < order.size(); i++)
        turns.emplace(order[i].grade, i);
    while (!turns.empty()) {
        const auto [before, index] = turns.top();
        turns.pop();
        const choice &each = order[index];
        if (closed[each.unit])
            continue;
        const std::uint64_t bytes = units[each.unit].bytes;
        const std::uint64_t copied = each.anew ? 0 : bytes;
        std::uint32_t wanted = 0;
        std::uint32_t covered = 0;
        bool fits = true;
        for (const absence &gap : each.gaps) {
            covered += gap.covers;
            for (std::uint32_t i = 1; i <= gap.covers; i++)
                wanted += away[(gap.leaves + i) % moments] < excess ? 1 : 0;
            fits = fits && leaving[bin_of(gap.leaves)] + copied <= most &&
                   coming[bin_of(gap.comes())] + copied <= most;
        }
        const std::uint32_t now = grade_of(std::uint64_t{each.length} * wanted /
                                               std::max(covered, 1u),
                                           each.cost);
        if (!each.anew && fits && wanted > 0 && now > before) {
            turns.emplace(now, index);
            continue;
        }
        if (wanted == 0 || !fits) {
            closed[each.unit] = !each.anew;
            continue;
        }
        for (const absence &gap : each.gaps) {
            leaving[bin_of(gap.leaves)] += copied;
            coming[bin_of(gap.comes())] += copied;
            for (std::uint32_t i = 1; i <= gap.covers; i++)
                away[(gap.leaves + i) % moments] += bytes;
            made.leaves[gap.gap] = true;
        }
    }
    for (std::uint32_t i = 0; i < moments; i++)
        made.met += std::min(excess, away[i]);
    return made;
}

// All that can be chosen, the best first.
std::vector<choice> ordered(const std::vector<idle_gap> &gaps,
                            const std::vector<planned_unit> &units,
                            std::uint32_t bins, std::uint32_t round)
{
    const auto bin_of = [&](std::uint64_t time) { return time * bins / round; };
    const auto moment_of = [&](std::uint64_t time) {
        return static_cast<std::uint32_t>(time * bins * moments_to_a_bin /
                                          round);
    };
    const auto ends = [](const idle_gap &gap) {
        return std::uint64_t{gap.from} + gap.length;
    };
    // Most are back before it is worth anything.
    std::vector<std::size_t> by_steps;
    for (std::size_t i = 0; i < gaps.size(); i++)
        if (bin_of(ends(gaps[i])) > bin_of(gaps[i].from) + 1)
            by_steps.push_back(i);
    std::sort(by_steps.begin(), by_steps.end(),
              [&](std::size_t one, std::size_t other) {
                  const idle_gap &a = gaps[one];
                  const idle_gap &b = gaps[other];
                  return a.unit != b.unit ? a.unit < b.unit : a.steps > b.steps;
              });
    std::vector<choice> order;
    std::uint32_t steps = 0; // of the last one's first
    for (const std::size_t number : by_steps) {
        const idle_gap &gap = gaps[number];
        const std::uint32_t leaves = moment_of(gap.from);
        const absence made{leaves, moment_of(ends(gap)) - leaves - 1, number};
        const auto length = static_cast<std::uint32_t>(
            std::uint64_t{gap.length} * alike_divisor / round);
        if (order.empty() || order.back().unit != gap.unit ||
            gap.steps + gap.steps / 16 < steps) {
            order.push_back({gap.unit, length, 0, 0, 0, leaves, true, {}});
            steps = gap.steps;
        }
        order.back().length = std::max(order.back().length, length);
        order.back().cost = std::max(order.back().cost, gap.cost);
        order.back().leaves = std::min(order.back().leaves, leaves);
        order.back().anew = order.back().anew && gap.anew;
        order.back().gaps.push_back(made);
    }
    for (choice &each : order)
        each.grade = grade_of(each.length, each.cost);
    const auto moment = [&](const choice &a) {
        return std::tuple(!a.anew, a.grade, !units[a.unit].large,
                          spread(a.leaves));
    };
    const auto by_moment = [&](const choice &a) {
        return std::tuple(moment(a), !units[a.unit].chosen, a.unit);
    };
    // Equally many of each moment; within one moment, those chosen before come
    // first.
    const auto by_rank = [&](const choice &a) {
        return std::tuple(!a.anew, a.grade, !units[a.unit].large, a.rank,
                          !units[a.unit].chosen, spread(a.leaves), a.unit);
    };
    const auto sort_by = [&](const auto &key) {
        std::sort(
            order.begin(), order.end(),
            [&](const choice &a, const choice &b) { return key(a) < key(b); });
    };
    sort_by(by_moment);
    for (std::size_t i = 1; i < order.size(); i++)
        if (moment(order[i - 1]) == moment(order[i]))
            order[i].rank = order[i - 1].rank + 1;
    sort_by(by_rank);
    for (choice &each : order)
        each.grade = each.anew ? 0 : each.grade;
    return order;
}

} // namespace

std::vector<bool> plan_absences(const std::vector<idle_gap> &gaps,
                                const std::vector<planned_unit> &units,
                                std::uint32_t round, std::uint64_t excess)
{
    const std::uint32_t bins = std::min(round, round_bins);
    const std::vector<choice> order = ordered(gaps, units, bins, round);
    attempt best;
    best.leaves.resize(gaps.size());
    if (excess == 0)
        return best.leaves;
    excess = std::min(excess, UINT64_MAX / (2 * round_moments));
    for (const std::uint64_t share : shares) {
        const std::uint64_t most =
            share > 0 ? excess / bins * share : UINT64_MAX;
        attempt made =
            attempt_with(order, gaps.size(), units, bins, excess, most);
        // Crowding the link for next to nothing is not worth it.
        if (made.met > best.met + best.met / 64)
            best = std::move(made);
        if (best.met >= excess * (bins * moments_to_a_bin) / 32 * 31)
            break;
    }
    return best.leaves;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// Which units are to be away from VRAM, and when.
#include "plan.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace emuv::cuda {

namespace {

// The round is looked at in so many parts.
constexpr std::uint32_t max_parts = 32;
// Gaps whose lengths differ by less than this part of the round are alike.
constexpr std::uint32_t length_classes = 16;
// How many times its even share a part of the round may take, as tried in turn;
// 0 for any.
constexpr std::array<std::uint64_t, 7> shares = {1, 2, 3, 4, 6, 8, 0};

// A number's bits in reverse: those of 0, 1, 2 and so on are as far from each
// other as can be.
std::uint32_t spread(std::uint32_t number)
{
    std::uint32_t reversed = 0;
    for (std::uint32_t bit = 1; bit < max_parts; bit *= 2)
        reversed = 2 * reversed + (number & bit ? 1 : 0);
    return reversed;
}

struct stretch
{
    std::uint32_t unit;
    std::uint32_t steps;
    std::uint32_t leaves;  // in this part of the round
    std::uint32_t covered; // so many parts after that, all of each
    std::uint32_t length;  // by class, longest first
    std::uint32_t rank;    // among those alike that leave in the same part
};

// What is chosen if no part of the round takes more than so much.
struct attempt
{
    std::vector<std::uint32_t> shortest;
    std::uint64_t least = 0; // away at any moment
};

attempt attempt_with(const std::vector<stretch> &order,
                     const std::vector<std::uint64_t> &bytes,
                     std::uint32_t parts, std::uint64_t excess,
                     std::uint64_t most)
{
    attempt made;
    made.shortest.assign(bytes.size(), stays);
    std::array<std::uint64_t, max_parts> away{};
    std::array<std::uint64_t, max_parts> leaving{};
    std::array<std::uint64_t, max_parts> coming{};
    // A unit leaves for all of its gaps from some length on, or for none.
    std::vector<bool> closed(bytes.size());
    for (const stretch &each : order) {
        if (closed[each.unit])
            continue;
        const std::uint64_t size = bytes[each.unit];
        const std::uint32_t comes = (each.leaves + each.covered + 1) % parts;
        bool wanted = false;
        for (std::uint32_t i = 1; i <= each.covered && !wanted; i++)
            wanted = away[(each.leaves + i) % parts] < excess;
        if (!wanted || leaving[each.leaves] + size > most ||
            coming[comes] + size > most) {
            closed[each.unit] = true;
            continue;
        }
        leaving[each.leaves] += size;
        coming[comes] += size;
        for (std::uint32_t i = 1; i <= each.covered; i++)
            away[(each.leaves + i) % parts] += size;
        made.shortest[each.unit] =
            std::min(made.shortest[each.unit], each.steps);
    }
    made.least = *std::min_element(away.begin(), away.begin() + parts);
    return made;
}

} // namespace

std::vector<std::uint32_t> choose(const std::vector<gap> &gaps,
                                  const std::vector<std::uint64_t> &bytes,
                                  std::uint32_t round, std::uint64_t excess)
{
    const std::uint32_t parts = std::min(round, max_parts);
    const auto part_of = [&](std::uint64_t step) {
        return static_cast<std::uint32_t>(step * parts / round);
    };
    std::vector<stretch> order;
    for (const gap &each : gaps) {
        stretch made{};
        made.unit = each.unit;
        made.steps = each.steps;
        made.leaves = part_of(each.from);
        const std::uint32_t comes =
            part_of(std::uint64_t{each.from} + each.steps);
        if (comes <= made.leaves + 1)
            continue; // there and back before it is worth anything
        made.covered = comes - made.leaves - 1;
        made.length =
            length_classes - std::min(length_classes,
                                      static_cast<std::uint32_t>(
                                          std::uint64_t{each.steps} *
                                          length_classes / round));
        order.push_back(made);
    }
    const auto alike = [](const stretch &a, const stretch &b) {
        return a.length == b.length && a.leaves == b.leaves;
    };
    std::sort(order.begin(), order.end(),
              [](const stretch &a, const stretch &b) {
                  return a.length != b.length   ? a.length < b.length
                         : a.leaves != b.leaves ? a.leaves < b.leaves
                         : a.steps != b.steps   ? a.steps > b.steps
                                                : a.unit < b.unit;
              });
    for (std::size_t i = 1; i < order.size(); i++)
        order[i].rank =
            alike(order[i - 1], order[i]) ? order[i - 1].rank + 1 : 0;
    std::sort(order.begin(), order.end(),
              [](const stretch &a, const stretch &b) {
                  return a.length != b.length ? a.length < b.length
                         : a.rank != b.rank   ? a.rank < b.rank
                                            : spread(a.leaves) < spread(b.leaves);
              });
    attempt made;
    for (const std::uint64_t share : shares) {
        const std::uint64_t most =
            share > 0 ? excess / parts * share : UINT64_MAX;
        made = attempt_with(order, bytes, parts, excess, most);
        if (made.least >= excess / 32 * 31)
            break;
    }
    return made.shortest;
}

} // namespace emuv::cuda

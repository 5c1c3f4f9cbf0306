// SPDX-License-Identifier: LGPL-2.1-or-later
// Decides when to plan anew which units leave VRAM after which uses.
#include "movement/planner.hpp"

#include "base/thread.hpp"
#include "policy/plan.hpp"
#include "store/placement.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace emuv::cuda {

bool planner::is_due(const schedule &uses, bool recurs, std::uint64_t excess)
{
    const std::uint64_t lag = uses.lag();
    const std::uint64_t now = uses.steps();
    if (lag == 0 || !recurs || now < made_at_ + std::min(age_, lag / 32))
        return false;
    const std::uint64_t round = round_of(uses);
    const std::uint64_t off =
        excess > excess_ ? excess - excess_ : excess_ - excess;
    const bool another =
        !same_round(round, round_) || off > excess / 8 + max_unit_bytes;
    if (now < made_at_ + (another ? round / 4 : age_))
        return false;
    age_ = another ? round : std::min(2 * age_, 16 * round);
    round_ = round;
    excess_ = excess;
    made_at_ = now;
    return true;
}

// The step that looks like now may be several rounds back. If these are alike,
// one is enough: over all of them, its gaps would look short, and all alike. A
// program may also use other memory in every other round. Then only all of them
// together come again.
std::uint64_t planner::round_of(const schedule &uses)
{
    const std::uint64_t lag = uses.lag();
    if (lag <= round_ || same_round(lag, round_) ||
        !same_kind_of_round(lag, round_))
        return lag;
    const std::uint64_t round = lag / ((lag + round_ / 2) / round_);
    const std::uint64_t now = uses.steps();
    if (lag != compared_lag_ || now >= compared_at_ + lag) {
        compared_lag_ = lag;
        compared_at_ = now;
        alike_ = uses.varies() || uses.repeats(round);
    }
    return alike_ ? round : lag;
}

namespace {

// The length of a round in the units of the plan.
constexpr std::uint32_t ticks = 1u << 24;

// The moment at which each step of a round begins, in ticks. A fifth of a
// training step's launches may be an optimizer's, which are over in no time. A
// step is named by its number modulo the round, so that a round always begins
// with the same one.
// @param steps  all there ever were
std::vector<std::uint32_t> moments_of(const step_times &times,
                                      std::uint64_t steps, std::uint64_t round)
{
    // Uses count the steps before them, times count steps from the first.
    const std::uint64_t oldest = steps - round;
    std::vector<std::uint64_t> began(round + 1);
    for (std::uint64_t i = 0; i < round; i++) {
        const std::uint64_t step =
            oldest + (i + round - oldest % round) % round;
        began[i + 1] = began[i] + times.of(step + 1) + 1;
    }
    std::vector<std::uint32_t> out(round);
    for (std::uint64_t i = 0; i < round; i++)
        out[i] = static_cast<std::uint32_t>(static_cast<double>(began[i]) /
                                            static_cast<double>(began[round]) *
                                            ticks);
    return out;
}

// Gaps by their number of steps: from the first, up to the second.
struct interval
{
    std::uint32_t from = never_leaves;
    std::uint32_t to = never_leaves;
};

// The gaps for which each unit leaves, by their steps: of later gaps, only the
// steps are known. The gaps to leave for may lie on both sides of one to stay
// for. Then the side counts whose gaps are longer together.
std::vector<interval> by_steps(const std::vector<idle_gap> &gaps,
                               const std::vector<bool> &leaves,
                               std::size_t units)
{
    std::vector<std::size_t> order(gaps.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t one, std::size_t other) {
                  const idle_gap &a = gaps[one];
                  const idle_gap &b = gaps[other];
                  if (a.unit != b.unit)
                      return a.unit < b.unit;
                  return a.steps != b.steps ? a.steps < b.steps
                                            : leaves[one] > leaves[other];
              });
    std::vector<interval> out(units);
    for (auto at = order.begin(); at != order.end();) {
        const std::uint32_t unit = gaps[*at].unit;
        const auto ends = [&] {
            return at == order.end() || gaps[*at].unit != unit;
        };
        std::uint64_t most = 0;
        while (!ends()) {
            const std::uint32_t from = gaps[*at].steps;
            std::uint64_t together = 0;
            std::uint32_t last = 0;
            for (; !ends() && (leaves[*at] || gaps[*at].steps == last); ++at) {
                together += leaves[*at] ? gaps[*at].length : 0;
                last = gaps[*at].steps;
            }
            if (together > most) {
                most = together;
                out[unit] = {from, ends() ? never_leaves : gaps[*at].steps};
            }
            while (!ends() && !leaves[*at])
                ++at;
        }
    }
    return out;
}

// All units, and the gaps between their uses in one round.
class absences
{
public:
    // @param round  in steps, up to the last one of @p uses
    absences(const schedule &uses, const step_times &times, std::uint64_t round,
             bool unmaps)
        : uses_(uses), round_(round), oldest_(uses.steps() - round),
          unmaps_(unmaps), moments_(moments_of(times, uses.steps(), round))
    {}

    void add(const block_ref &each)
    {
        const std::size_t count = each->slots.size();
        const std::size_t begin = candidates.size();
        seen_.assign(count, {});
        is_divided_ = each->is_divided();
        common_.assign(is_divided_ ? count : 1, {});
        if (!each->fixed)
            add_gaps(*each, begin);
        for (std::size_t i = 0; i < count; i++) {
            candidates.push_back({each, i, 0});
            // Room in system RAM that is there need not be made. A unit that
            // was placed there at first was not chosen: such units lie
            // together, and may stay.
            const slot &one = each->slots[i];
            units.push_back(
                {one.bytes,
                 one.leaves_for != never_leaves &&
                     (one.where == place::evicting || one.host.handle != 0),
                 one.bytes >= max_moving_bytes / 2});
            const use &of = seen_[i];
            if (of.first == none || one.said.pinned)
                continue;
            // From the last use to the first one of the next round.
            const common_uses &all = common_of(i);
            const bool alone = of.last == all.last && of.first == all.first;
            add_gap({begin + i, of.last, of.first + round_, of.begins_anew,
                     cost_of(one, alone)});
        }
    }

    std::vector<candidate> candidates;
    std::vector<planned_unit> units; // in the same order
    std::vector<idle_gap> gaps;

private:
    static constexpr std::uint64_t none = UINT64_MAX;

    // Uses of an allocation, in which several units may be touched. In a block
    // that is divided, most work that is given one touches all of it: then each
    // unit stands alone.
    struct common_uses
    {
        std::uint64_t first = none;
        std::uint64_t last = 0;
        std::uint64_t before = 0; // the last one
    };
    struct use // of a unit
    {
        std::uint64_t first = none;
        std::uint64_t last = 0;
        bool begins_anew = false;
    };
    struct gap
    {
        std::size_t unit;
        std::uint64_t from;
        std::uint64_t to;
        bool anew;
        std::uint32_t cost;
    };

    // A unit that has to be written back crosses the link twice. A unit that is
    // away has to be mapped in system RAM if others of its allocation are used
    // meanwhile. That takes the driver as long as both copies.
    std::uint32_t cost_of(const slot &one, bool alone) const
    {
        return (one.gets_dirty && !one.said.read_mostly ? 2u : 1u) *
               (unmaps_ && !alone ? 2 : 1);
    }

    void add_gap(const gap &one)
    {
        // Work that was never seen before counts as part of the step before it.
        if (one.to == one.from)
            return;
        const std::uint64_t from = one.from % round_;
        const std::uint64_t to = one.to % round_;
        const std::uint32_t start = moments_[from];
        gaps.push_back({static_cast<std::uint32_t>(one.unit), start,
                        moments_[to] - start + (to > from ? 0 : ticks),
                        static_cast<std::uint32_t>(one.to - one.from), one.anew,
                        one.cost});
    }

    // Adds the gaps between two uses of a block's units in the round.
    // @param begin  the index of its first unit
    void add_gaps(const block &of, std::size_t begin)
    {
        uses_.uses(of.base, [&](std::uint64_t step, const touch &given) {
            if (step < oldest_)
                return;
            const std::size_t end =
                std::min(given.last + std::size_t{1}, seen_.size());
            for (std::size_t i = given.first; i < end; i++) {
                common_uses &all = common_of(i);
                all.first = std::min(all.first, step);
                if (step != all.last)
                    all.before = std::exchange(all.last, step);
            }
            for (std::size_t i = given.first; i < end; i++) {
                use &one = seen_[i];
                if (one.first == none)
                    one = {step, step, given.anew};
                else if (!of.slots[i].said.pinned)
                    add_gap({begin + i, one.last, step, given.anew,
                             cost_of(of.slots[i],
                                     one.last >= common_of(i).before)});
                one.last = step;
            }
        });
    }

    const schedule &uses_;
    const std::uint64_t round_;
    const std::uint64_t oldest_;
    const bool unmaps_;
    const std::vector<std::uint32_t> moments_;
    common_uses &common_of(std::size_t unit)
    {
        return common_[is_divided_ ? unit : 0];
    }

    // Of one block:
    std::vector<use> seen_; // by unit
    bool is_divided_ = false;
    std::vector<common_uses> common_;
};

} // namespace

std::uint64_t planner::plan(std::unique_lock<std::mutex> &lock,
                            const std::vector<block_ref> &blocks,
                            const schedule &uses, const step_times &times,
                            bool unmaps)
{
    absences all(uses, times, round_, unmaps);
    for (const block_ref &each : blocks)
        all.add(each);
    const std::uint64_t excess = excess_;
    lock.unlock();
    const auto leave =
        by_steps(all.gaps, plan_absences(all.gaps, all.units, ticks, excess),
                 all.units.size());
    lock_soon(lock);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < all.candidates.size(); i++) {
        slot &one = all.candidates[i].unit();
        bytes += leave[i].from != never_leaves ? all.units[i].bytes : 0;
        one.leaves_for = leave[i].from;
        one.stays_for = leave[i].to;
    }
    has_planned_ = has_planned_ || bytes > 0;
    return bytes;
}

} // namespace emuv::cuda

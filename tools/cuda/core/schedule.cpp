// SPDX-License-Identifier: LGPL-2.1-or-later
// What a program will touch next, from what it did before.
#include "schedule.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

namespace {

std::uint64_t mix(std::uint64_t value)
{
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93u;
    value ^= value >> 32;
    return value;
}

} // namespace

bool same_kind_of_round(std::uint64_t steps, std::uint64_t other)
{
    const std::uint64_t more = std::max(steps, other);
    const std::uint64_t less = std::min(steps, other);
    const std::uint64_t times = less > 0 ? (more + less / 2) / less : 0;
    return times > 0 && times <= 8 && same_round(more, times * less);
}

// The hash of the steps that end with this one.
std::uint64_t schedule::context_at(std::uint32_t step) const
{
    std::uint64_t hash = 0;
    for (std::uint32_t i = 0; i < context_steps; i++)
        hash = mix(hash + steps_[step - i]) + i;
    return hash;
}

// Whether no step was ever this one, and remembers it.
bool schedule::is_new(std::uint64_t what)
{
    const auto put = [](std::vector<std::uint64_t> &table, std::uint64_t one) {
        std::size_t at = mix(one) & (table.size() - 1);
        while (table[at] != 0 && table[at] != one)
            at = (at + 1) & (table.size() - 1);
        return std::exchange(table[at], one) == 0;
    };
    what += what == 0; // which stands for an empty place
    if (seen_count_ >= max_steps) {
        seen_.clear();
        seen_count_ = 0;
    }
    if (seen_.size() < 2 * (seen_count_ + 1)) {
        std::vector<std::uint64_t> larger(
            std::max<std::size_t>(1024, 2 * seen_.size()));
        for (const std::uint64_t one : seen_)
            if (one != 0)
                put(larger, one);
        seen_.swap(larger);
    }
    const bool fresh = put(seen_, what);
    seen_count_ += fresh ? 1 : 0;
    return fresh;
}

// Finds the last time that the newest steps came in this order.
void schedule::look_up()
{
    const auto now = static_cast<std::uint32_t>(steps_.size()) - 1;
    if (now < 2 * context_steps || contexts_.empty())
        return;
    const std::uint32_t found =
        contexts_[context_at(now) & (contexts_.size() - 1)];
    if (found == 0)
        return;
    const std::uint32_t then = found - 1;
    for (std::uint32_t i = 0; i < context_steps; i++)
        if (steps_[then - i] != steps_[now - i])
            return; // another one with the same place in the table
    cursor_ = then;
    strays_ = 0;
    following_ = true;
    by_landmarks_ = false;
    place_++;
}

// Makes the steps before this one ones that look_up() finds.
void schedule::remember_contexts(std::uint32_t end)
{
    if (contexts_.size() < 2 * steps_.size()) {
        std::size_t size = std::max<std::size_t>(1024, contexts_.size());
        while (size < 2 * steps_.size())
            size *= 4;
        contexts_.assign(size, 0);
        remembered_ = 0;
    }
    std::uint32_t step = std::max(remembered_, context_steps - 1);
    for (; step < end; step++)
        contexts_[context_at(step) & (contexts_.size() - 1)] = step + 1;
    remembered_ = step;
}

schedule::history &schedule::history_of(std::uint64_t base)
{
    if (history *const known = recent_.find(base))
        return *known;
    history &of = blocks_[base];
    recent_.keep(base, of);
    return of;
}

schedule::use schedule::use_at(std::uint32_t step, const touch &of)
{
    return {step, of.first, of.last & 0x7fffffff, of.anew};
}

void schedule::forget_half()
{
    const std::uint32_t gone = max_steps / 2;
    steps_.erase(steps_.begin(), steps_.begin() + gone);
    forgotten_ += gone;
    for (auto entry = blocks_.begin(); entry != blocks_.end();) {
        auto &log = entry->second.uses;
        log.erase(log.begin(),
                  std::find_if(log.begin(), log.end(), [](const use &each) {
                      return each.step >= gone;
                  }));
        for (use &each : log)
            each.step -= gone;
        entry = log.empty() ? blocks_.erase(entry) : std::next(entry);
    }
    contexts_.clear();
    remembered_ = 0;
    recent_.forget_all();
    following_ = following_ && cursor_ >= gone;
    cursor_ -= following_ ? gone : cursor_;
    supposed_ = no_step;
    place_++;
}

// For how many pieces of work nothing of its block was touched; 0 where it
// never was.
std::uint64_t schedule::untouched(const touch &of)
{
    const history &known = history_of(of.base);
    return known.uses.empty() ? 0 : notes_ - known.noted;
}

// Of what is touched seldom, that which was not for longest; null where there
// is none.
const touch *schedule::landmark(const touch *touches, std::size_t count)
{
    const touch *found = nullptr;
    std::uint64_t longest = seldom - 1;
    for (std::size_t i = 0; i < count; i++)
        if (const std::uint64_t since = untouched(touches[i]);
            since > longest) {
            longest = since;
            found = &touches[i];
        }
    return found;
}

// The step nearest to one in the past at which the same was touched.
std::uint32_t schedule::counterpart(const touch &of, std::uint32_t around)
{
    const std::vector<use> &log = history_of(of.base).uses;
    const std::uint32_t from = around - std::min(around, resync_steps);
    std::uint32_t nearest = no_step;
    std::uint32_t least = resync_steps;
    for (auto each = std::lower_bound(log.begin(), log.end(), from,
                                      [](const use &one, std::uint32_t step) {
                                          return one.step < step;
                                      });
         each != log.end() && each->step < around + resync_steps; ++each) {
        const std::uint32_t off =
            each->step > around ? each->step - around : around - each->step;
        if (of.first >= each->first && of.first <= each->last && off < least &&
            each->step + context_steps < steps_.size()) {
            nearest = each->step;
            least = off;
        }
    }
    return nearest;
}

// The one nearest to where we are of all that is touched seldom.
std::uint32_t schedule::counterpart(const touch *touches, std::size_t count)
{
    const std::uint32_t around = cursor_ + 1;
    const auto off = [around](std::uint32_t step) {
        return step > around ? step - around : around - step;
    };
    std::uint32_t nearest = no_step;
    for (std::size_t i = 0; i < count; i++) {
        if (untouched(touches[i]) < seldom)
            continue;
        const std::uint32_t then = counterpart(touches[i], around);
        if (then != no_step && (nearest == no_step || off(then) < off(nearest)))
            nearest = then;
    }
    return nearest;
}

// Where nothing else tells the place, landmarks that come in the same order do.
// @return whether they do: supposed_ is the place then
bool schedule::suppose(const touch &mark)
{
    const std::uint32_t then =
        supposed_ != no_step ? counterpart(mark, supposed_ + 1) : no_step;
    if (then != no_step && then > supposed_) {
        supposed_ = then;
        agreed_++;
    } else {
        supposed_ = history_of(mark.base).uses.back().step;
        agreed_ = 1;
    }
    return agreed_ >= enough_landmarks;
}

// @return the step in the past at which a landmark says that we are; no_step:
//   it says nothing
std::uint32_t schedule::recognize(const touch &mark, const touch *touches,
                                  std::size_t count)
{
    std::uint32_t then =
        following_ ? counterpart(touches, count) : std::uint32_t{no_step};
    if (then == no_step && suppose(mark)) {
        then = supposed_;
        following_ = true;
        place_++;
    }
    if (then != no_step) {
        by_landmarks_ = true;
        lost_ = 0;
        supposed_ = no_step;
    } else if (++lost_ >= enough_landmarks) {
        by_landmarks_ = false;
    }
    return then;
}

// @return where within the next steps of the past the same runs; or no_step
std::uint32_t schedule::look_ahead(std::uint64_t what,
                                   std::uint32_t steps) const
{
    const auto end = static_cast<std::uint32_t>(
        std::min<std::size_t>(steps_.size(), cursor_ + 1 + steps));
    for (std::uint32_t next = cursor_ + 1; next < end; next++)
        if (steps_[next] == what)
            return next;
    return no_step;
}

// A step that the past does not know.
void schedule::strayed()
{
    if (++strays_ > max_strays)
        following_ = by_landmarks_ = false;
}

// @param next  where in the past this step is; no_step: nowhere
void schedule::go_on(std::uint32_t next, bool expected)
{
    surprises_ += expected ? 0 : 1;
    doubt_ -= doubt_ / late_steps;
    doubt_ += expected ? 0 : max_doubt / late_steps;
    if (next == no_step) {
        strayed();
        return;
    }
    place_ += next < cursor_ ? 1 : 0;
    cursor_ = next;
    strays_ = 0;
}

// What a step touches that may be the first of many, or at an address that
// never comes back, counts for the step before it.
void schedule::log_before(const touch *touches, std::size_t count)
{
    const std::uint32_t at =
        steps_.empty() ? 0 : static_cast<std::uint32_t>(steps_.size()) - 1;
    for (std::size_t i = 0; i < count; i++) {
        history &of = history_of(touches[i].base);
        of.noted = notes_;
        // There may be ever more of them, and no step in between.
        if (!of.uses.empty() && of.uses.back().step == at) {
            touch both = touches[i];
            use &last = of.uses.back();
            both.first = std::min(both.first, last.first);
            both.last = std::max<std::uint32_t>(both.last, last.last);
            both.anew = both.anew || last.anew;
            last = use_at(at, both);
        } else {
            of.uses.push_back(use_at(at, touches[i]));
        }
    }
}

bool schedule::note(std::uint64_t what, const touch *touches, std::size_t count)
{
    if (steps_.size() >= max_steps)
        forget_half();
    notes_++;
    std::uint32_t next = cursor_ + 1;
    bool expected = following_ && next < steps_.size() && steps_[next] == what;
    if (!expected) {
        const touch *const mark = landmark(touches, count);
        const bool fresh = is_new(what);
        const bool aside = by_landmarks_ && mark == nullptr;
        next = following_ && !fresh
                   ? look_ahead(what, aside ? max_ahead : resync_steps)
                   : std::uint32_t{no_step};
        if (next == no_step && mark != nullptr) {
            next = recognize(*mark, touches, count);
            expected = next != no_step && next > cursor_ &&
                       next - cursor_ <= max_ahead;
            // What runs is of no matter then.
            if (next != no_step || (fresh && !following_))
                what = mix(mark->base + mark->first);
        }
        if (next == no_step &&
            (fresh ? mark == nullptr || following_ : aside)) {
            if (mark != nullptr)
                strayed();
            log_before(touches, count);
            return false;
        }
    }
    if (following_)
        go_on(next, expected);
    const auto now = static_cast<std::uint32_t>(steps_.size());
    steps_.push_back(what);
    for (std::size_t i = 0; i < count; i++) {
        history &of = history_of(touches[i].base);
        of.noted = notes_;
        of.uses.push_back(use_at(now, touches[i]));
    }
    // What does not fit in here may fit in elsewhere.
    if (!following_ || (strays_ > 0 && !by_landmarks_)) {
        remember_contexts(now);
        look_up();
    } else if (now - remembered_ >= max_unremembered) {
        remember_contexts(now);
    }
    return expected;
}

std::vector<schedule::use>::const_iterator
schedule::after_cursor(const std::vector<use> &log) const
{
    return std::upper_bound(
        log.begin(), log.end(), cursor_,
        [](std::uint32_t step, const use &other) { return step < other.step; });
}

std::uint64_t schedule::next_use(std::uint64_t base, std::uint32_t unit) const
{
    if (!following_)
        return never;
    const auto found = blocks_.find(base);
    if (found == blocks_.end())
        return never;
    const auto &log = found->second.uses;
    for (auto each = after_cursor(log); each != log.end(); ++each)
        if (unit >= each->first && unit <= each->last)
            return each->step - cursor_;
    return never;
}

// How many steps ago the unit was touched last.
std::uint32_t schedule::since_last_use(std::uint64_t base,
                                       std::uint32_t unit) const
{
    const auto found = blocks_.find(base);
    if (found == blocks_.end() || steps_.empty())
        return 0;
    const auto &log = found->second.uses;
    const auto last =
        std::find_if(log.rbegin(), log.rend(), [&](const use &each) {
            return unit >= each.first && unit <= each.last;
        });
    return last == log.rend()
               ? 0
               : static_cast<std::uint32_t>(steps_.size()) - 1 - last->step;
}

void schedule::look_again(std::uint64_t base, std::uint32_t unit,
                          memo &known) const
{
    const std::uint64_t steps = next_use(base, unit);
    known.place = place_;
    known.touched = steps != never;
    known.until = cursor_ + (known.touched ? static_cast<std::uint32_t>(steps)
                                           : recheck_steps);
    known.gap = known.touched ? since_last_use(base, unit) +
                                    static_cast<std::uint32_t>(steps)
                              : 0;
}

std::uint64_t schedule::footprint() const
{
    std::uint64_t bytes = steps_.capacity() * sizeof steps_[0] +
                          contexts_.capacity() * sizeof contexts_[0];
    for (const auto &[base, of] : blocks_)
        bytes += of.uses.capacity() * sizeof of.uses[0] + 64;
    return bytes + seen_.capacity() * sizeof seen_[0];
}

} // namespace emuv::cuda

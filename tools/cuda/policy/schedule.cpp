// SPDX-License-Identifier: LGPL-2.1-or-later
// A program's next touches, predicted from its past.
#include "policy/schedule.hpp"

#include "policy/mix.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

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
        hash = mix(hash + (steps_[step - i] | 1)) + i;
    return hash;
}

// True if no step was ever this one; remembers it.
bool schedule::is_new(std::uint64_t what)
{
    const auto put = [](std::vector<std::uint64_t> &table, std::uint64_t one) {
        std::size_t at = mix(one) & (table.size() - 1);
        while (table[at] != 0 && table[at] != one)
            at = (at + 1) & (table.size() - 1);
        return std::exchange(table[at], one) == 0;
    };
    what += what == 0; // which stands for an empty bucket
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
        if (!same(steps_[then - i], steps_[now - i]))
            return; // another one with the same bucket
    if (landmarks_.deny(then))
        return;
    cursor_ = then;
    strays_ = 0;
    following_ = true;
    jumps_++;
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

history &schedule::history_of(std::uint64_t base)
{
    if (history *const known = recent_.find(base))
        return *known;
    history &of = blocks_[base];
    recent_.keep(base, of);
    return of;
}

history::use schedule::use_at(std::uint32_t step, const touch &of)
{
    return {step, of.first, of.last & 0x7fffffff, of.anew};
}

void schedule::forget_half()
{
    const std::uint32_t gone = max_steps / 2;
    steps_.erase(steps_.begin(), steps_.begin() + gone);
    forgotten_ += gone;
    for (auto block = blocks_.begin(); block != blocks_.end();) {
        auto &log = block->second.uses;
        log.erase(log.begin(), std::find_if(log.begin(), log.end(),
                                            [](const history::use &each) {
                                                return each.step >= gone;
                                            }));
        for (history::use &each : log)
            each.step -= gone;
        block = log.empty() ? blocks_.erase(block) : std::next(block);
    }
    contexts_.clear();
    remembered_ = 0;
    recent_.forget_all();
    following_ = following_ && cursor_ >= gone;
    cursor_ -= following_ ? gone : cursor_;
    landmarks_.forget(gone);
    jumps_++;
}

// Work between two landmarks is at the next step of the past, unless that step
// is the second landmark.
void schedule::step_aside()
{
    const std::uint32_t next = cursor_ + 1;
    if (next < steps_.size() && (steps_[next] & 1) == 0)
        cursor_ = next;
}

// @return the one of the next steps of the past that runs the same; or no_step
std::uint32_t schedule::look_ahead(std::uint64_t what) const
{
    const auto end = static_cast<std::uint32_t>(
        std::min<std::size_t>(steps_.size(), cursor_ + 1 + resync_steps));
    for (std::uint32_t next = cursor_ + 1; next < end; next++)
        if (same(steps_[next], what))
            return next;
    return no_step;
}

// Counts a surprise, and lets each step raise or lower the doubt.
void schedule::came(bool expected)
{
    surprises_ += expected ? 0 : 1;
    doubt_ -= doubt_ / late_steps;
    doubt_ += expected ? 0 : max_doubt / late_steps;
}

// @param next  this step's point in the past; no_step: nowhere
void schedule::go_on(std::uint32_t next, bool expected)
{
    came(expected);
    if (next == no_step) {
        if (++strays_ > max_strays)
            following_ = false;
        return;
    }
    jumps_ += next < cursor_ ? 1 : 0;
    cursor_ = next;
    strays_ = 0;
}

// Counts touches for the step before: this step may be the first of many, or
// its addresses may never come back.
void schedule::log_before(const touch *touches, std::size_t count)
{
    const std::uint32_t at =
        steps_.empty() ? 0 : static_cast<std::uint32_t>(steps_.size()) - 1;
    for (std::size_t i = 0; i < count; i++) {
        history &of = history_of(touches[i].base);
        of.noted = notes_;
        // There may be ever more of them, and no step in between. So those that
        // meet become one.
        auto same = of.uses.rbegin();
        while (same != of.uses.rend() && same->step == at &&
               (touches[i].first > std::uint32_t{same->last} + 1 ||
                same->first > touches[i].last + 1))
            ++same;
        if (same != of.uses.rend() && same->step == at) {
            touch both = touches[i];
            both.first = std::min(both.first, same->first);
            both.last = std::max<std::uint32_t>(both.last, same->last);
            both.anew = both.anew || same->anew;
            *same = use_at(at, both);
        } else {
            of.uses.push_back(use_at(at, touches[i]));
        }
    }
}

// Touches of one block are one landmark at most.
void schedule::look_for_landmarks(const touch *touches, std::size_t count)
{
    landmarks_.begin(notes_);
    for (std::size_t i = 0; i < count; i++)
        if (i == 0 || touches[i].base != touches[i - 1].base)
            landmarks_.look_at(history_of(touches[i].base), touches[i]);
}

bool schedule::note(std::uint64_t what, const touch *touches, std::size_t count)
{
    if (steps_.size() >= max_steps)
        forget_half();
    notes_++;
    std::uint32_t next = cursor_ + 1;
    bool expected =
        following_ && next < steps_.size() && same(steps_[next], what);
    bool told = false;
    bool asked = false; // a landmark, which may tell
    landmarks_.passed(expected);
    if (!expected) {
        look_for_landmarks(touches, count);
        const bool fresh = is_new(what);
        next = following_ && !fresh && !landmarks_.lead()
                   ? look_ahead(what)
                   : std::uint32_t{no_step};
        asked = next == no_step && landmarks_.any();
        if (asked) {
            const bool led = landmarks_.lead();
            const landmarks::point point =
                landmarks_.tell(static_cast<std::uint32_t>(steps_.size()));
            next = point.step;
            expected = point.as_foreseen;
            told = next != no_step;
            jumps_ += told && !following_ ? 1 : 0;
            following_ = told || (following_ && led == landmarks_.lead());
        }
        // Among lost landmarks every step counts: their distances from each
        // other tell the point.
        if (next == no_step && fresh && !landmarks_.lead() &&
            !landmarks_.are_lost() && (!landmarks_.any() || following_)) {
            log_before(touches, count);
            return false;
        }
    }
    if (landmarks_.lead() && !told && !expected) {
        if (asked)
            came(false);
        step_aside();
    } else if (following_) {
        go_on(next, expected);
    }
    const auto now = static_cast<std::uint32_t>(steps_.size());
    steps_.push_back(told ? what | 1 : what & ~std::uint64_t{1});
    for (std::size_t i = 0; i < count; i++) {
        history &of = history_of(touches[i].base);
        of.noted = notes_;
        of.uses.push_back(use_at(now, touches[i]));
    }
    // A step that does not fit in here may fit in elsewhere.
    if (!following_ || (strays_ > 0 && !landmarks_.lead())) {
        remember_contexts(now);
        look_up();
    } else if (now - remembered_ >= max_unremembered) {
        remember_contexts(now);
    }
    return expected;
}

bool schedule::repeats(std::uint64_t round) const
{
    if (round == 0 || round > steps_.size() / 2)
        return false;
    // Steps too many, or too few.
    const std::uint64_t near =
        round < 8 ? 0 : std::min<std::uint64_t>(1 + round / 64, 64);
    const std::uint64_t begin = steps_.size() - round;
    std::uint64_t all = 0; // units that are used
    std::uint64_t others = 0;
    for (const auto &each : blocks_) {
        const history &of = each.second;
        for (auto now = of.from(begin); now != of.uses.end(); ++now) {
            const std::uint64_t then = now->step - round;
            const auto is_there = [&](std::uint64_t from, std::uint64_t last) {
                auto past = of.from(from);
                while (past->step <= last && !past->is_like(*now))
                    ++past;
                return past->step <= last;
            };
            const std::uint64_t units = now->last - now->first + 1u;
            all += units;
            if (!is_there(then, then) &&
                !is_there(then - std::min(then, near), then + near))
                others += units;
        }
    }
    return others <= all / 16;
}

std::uint64_t schedule::next_use(std::uint64_t base, std::uint32_t unit) const
{
    if (!following_)
        return never;
    const auto found = blocks_.find(base);
    if (found == blocks_.end())
        return never;
    const history &of = found->second;
    for (auto each = of.after(cursor_); each != of.uses.end(); ++each)
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
        std::find_if(log.rbegin(), log.rend(), [&](const history::use &each) {
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
    known.jumps = jumps_;
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

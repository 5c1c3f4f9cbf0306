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
        hash = mix(hash + (steps_[step - i] | 1)) + i;
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
        if (!same(steps_[then - i], steps_[now - i]))
            return; // another one with the same place in the table
    // The layers of a model look alike but for what they alone have.
    if (lost_ > 0 && at_distance(marks_[(marked_ - 1) % last_marks], then) == no_step)
        return;
    cursor_ = then;
    strays_ = 0;
    following_ = true;
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
    by_landmarks_ = by_landmarks_ && following_ && told_ >= gone;
    told_ -= by_landmarks_ ? gone : told_;
    place_++;
}

// Finds what of these was not touched for long: landmarks_.
bool schedule::find_landmarks(const touch *touches, std::size_t count)
{
    landmarks_.clear();
    for (std::size_t i = 0; i < count; i++) {
        history &of = history_of(touches[i].base);
        if (!of.uses.empty() && notes_ - of.noted >= seldom)
            landmarks_.push_back({&of, touches[i]});
    }
    return !landmarks_.empty();
}

// The last step from one to another, of the past, at which the same was
// touched; or no_step.
std::uint32_t schedule::last_between(const touch &of, std::uint32_t from,
                                     std::uint32_t to) const
{
    const auto found = blocks_.find(of.base);
    if (found == blocks_.end())
        return no_step;
    const std::vector<use> &log = found->second.uses;
    auto each = std::upper_bound(
        log.begin(), log.end(), to,
        [](std::uint32_t step, const use &one) { return step < one.step; });
    while (each != log.begin() && (--each)->step >= from)
        if (of.first >= each->first && of.first <= each->last)
            return each->step;
    return no_step;
}

// How many of the last landmarks came as long before a step of the past as they
// did before now, nearly; one after the other: what was not known when it came
// counts for the step before.
std::uint32_t schedule::marks_before(std::uint32_t step) const
{
    std::array<std::uint32_t, last_marks> at{};
    auto end = at.begin();
    for (std::uint32_t i = 0; i < std::min(marked_, last_marks); i++) {
        const std::uint32_t then = at_distance(marks_[i], step);
        if (then != no_step && std::find(at.begin(), end, then) == end)
            *end++ = then;
    }
    return static_cast<std::uint32_t>(end - at.begin());
}

// Where a landmark came, before a step of the past, as long as before now.
std::uint32_t schedule::at_distance(const sighting &of, std::uint32_t step) const
{
    const std::uint64_t ago = notes_ - of.noted;
    const std::uint64_t from = ago + slack_for(ago);
    if (from > step)
        return no_step;
    const std::uint64_t to = ago - std::min(ago, slack_for(ago));
    return last_between(of.part, step - static_cast<std::uint32_t>(from),
                        step - static_cast<std::uint32_t>(to));
}

// The step of the past at which it was touched that is nearest to where the one
// to come would be if as much came since the last place that was told.
std::uint32_t schedule::counterpart(const landmark &mark) const
{
    const std::vector<use> &log = mark.of->uses;
    const std::uint64_t since = notes_ - told_at_;
    const std::uint64_t around = told_ + since;
    std::uint32_t nearest = no_step;
    std::uint64_t least = slack_for(since) + 1;
    const std::uint64_t from = around - std::min(around, slack_for(since));
    auto each = std::lower_bound(log.begin(), log.end(), from,
                                 [](const use &one, std::uint64_t step) {
                                     return one.step < step;
                                 });
    for (; each != log.end() && each->step + min_round < steps_.size(); ++each) {
        const std::uint64_t off =
            each->step > around ? each->step - around : around - each->step;
        if (each->step > around && off >= least)
            break;
        if (mark.part.first >= each->first && mark.part.first <= each->last &&
            off < least) {
            nearest = each->step;
            least = off;
        }
    }
    return nearest;
}

// Of the last steps at which one of these landmarks came, the one before which
// most others came that were just now, too.
std::uint32_t schedule::place_by_marks() const
{
    std::uint32_t found = no_step;
    std::uint32_t most = enough_marks - 1;
    for (const landmark &mark : landmarks_) {
        const std::vector<use> &log = mark.of->uses;
        std::uint32_t looked = 0;
        for (auto each = log.rbegin();
             each != log.rend() && looked < max_counterparts; ++each, ++looked)
            if (mark.part.first >= each->first &&
                mark.part.first <= each->last &&
                each->step + min_round < steps_.size())
                if (const std::uint32_t marks = marks_before(each->step);
                    marks > most) {
                    found = each->step;
                    most = marks;
                }
    }
    return found;
}

// Where in the past the landmarks say that we are that were not to come.
// @param as_foreseen  whether that is about where they were to come
// @return the step; no_step: they say nothing
std::uint32_t schedule::recognize(bool &as_foreseen)
{
    if (!by_landmarks_ && notes_ - lost_at_ > in_a_row)
        lost_ = 0;
    std::uint32_t then = no_step;
    // One that came in no order before says nothing now, unless nothing else
    // has for long.
    bool counts = !by_landmarks_ || notes_ - told_at_ > in_a_row;
    if (by_landmarks_) {
        const bool is_known = lost_ == 0;
        int most = 0;
        for (const landmark &mark : landmarks_) {
            const std::uint32_t near = counterpart(mark);
            int &trust = mark.of->trust;
            counts = counts || trust > 0;
            if (near != no_step && (then == no_step || trust > most) &&
                (trust > 0 || marks_before(near) >= enough_marks)) {
                then = near;
                most = trust;
            }
            if (is_known)
                trust = near != no_step ? std::min(trust + 1, most_trust)
                                        : std::max(trust - 1, -most_trust);
        }
    }
    as_foreseen = then != no_step;
    if (then == no_step && counts &&
        (by_landmarks_ || lost_ + 1 >= enough_lost))
        then = place_by_marks();
    for (const landmark &each : landmarks_)
        marks_[marked_++ % last_marks] = {each.part, notes_};
    if (then != no_step) {
        lost_ = 0;
        told_ = then;
        told_at_ = notes_;
        place_ += following_ ? 0 : 1;
        by_landmarks_ = following_ = true;
    } else if (counts) {
        lost_++;
        lost_at_ = notes_;
        if (by_landmarks_ && lost_ >= enough_lost)
            by_landmarks_ = following_ = false;
    }
    return then;
}

// What comes between two landmarks is at the next step of the past, unless the
// second is.
void schedule::step_aside()
{
    const std::uint32_t next = cursor_ + 1;
    if (next < steps_.size() && (steps_[next] & 1) == 0)
        cursor_ = next;
}

// @return where within the next steps of the past the same runs; or no_step
std::uint32_t schedule::look_ahead(std::uint64_t what) const
{
    const auto end = static_cast<std::uint32_t>(
        std::min<std::size_t>(steps_.size(), cursor_ + 1 + resync_steps));
    for (std::uint32_t next = cursor_ + 1; next < end; next++)
        if (same(steps_[next], what))
            return next;
    return no_step;
}

// Whether a step was the one to come.
void schedule::came(bool expected)
{
    surprises_ += expected ? 0 : 1;
    doubt_ -= doubt_ / late_steps;
    doubt_ += expected ? 0 : max_doubt / late_steps;
}

// @param next  where in the past this step is; no_step: nowhere
void schedule::go_on(std::uint32_t next, bool expected)
{
    came(expected);
    if (next == no_step) {
        if (++strays_ > max_strays)
            following_ = false;
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
    bool expected =
        following_ && next < steps_.size() && same(steps_[next], what);
    bool marked = false;
    bool told = false;
    if (expected) {
        if (by_landmarks_ && ++foreseen_ >= in_a_row)
            by_landmarks_ = false;
    } else {
        foreseen_ = 0;
        marked = find_landmarks(touches, count);
        const bool fresh = is_new(what);
        next = following_ && !fresh && !by_landmarks_ ? look_ahead(what)
                                                      : std::uint32_t{no_step};
        if (next == no_step && marked) {
            next = recognize(expected);
            told = next != no_step;
        }
        // Among landmarks that are lost all counts: it is how far they are
        // from each other that tells the place.
        if (next == no_step && !by_landmarks_ && fresh &&
            lost_ < enough_lost && (!marked || following_)) {
            log_before(touches, count);
            return false;
        }
    }
    if (by_landmarks_ && !told && !expected) {
        if (marked)
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

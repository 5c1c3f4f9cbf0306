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

std::vector<schedule::use> &schedule::log_of(std::uint64_t base)
{
    if (std::vector<use> *const known = recent_.find(base))
        return *known;
    std::vector<use> &log = uses_[base];
    recent_.keep(base, log);
    return log;
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
    for (auto entry = uses_.begin(); entry != uses_.end();) {
        auto &log = entry->second;
        log.erase(log.begin(),
                  std::find_if(log.begin(), log.end(), [](const use &each) {
                      return each.step >= gone;
                  }));
        for (use &each : log)
            each.step -= gone;
        entry = log.empty() ? uses_.erase(entry) : std::next(entry);
    }
    contexts_.clear();
    remembered_ = 0;
    recent_.forget_all();
    following_ = following_ && cursor_ >= gone;
    cursor_ -= following_ ? gone : cursor_;
    place_++;
}

bool schedule::note(std::uint64_t what, const touch *touches, std::size_t count)
{
    if (steps_.size() >= max_steps)
        forget_half();
    const bool foreseen = following_ && cursor_ + 1 < steps_.size() &&
                          steps_[cursor_ + 1] == what;
    if (!foreseen && is_new(what)) {
        // It may be the first of many, or an address that never comes back.
        const std::uint32_t at =
            steps_.empty() ? 0 : static_cast<std::uint32_t>(steps_.size()) - 1;
        for (std::size_t i = 0; i < count; i++) {
            auto &log = log_of(touches[i].base);
            // There may be ever more of them, and no step in between.
            if (!log.empty() && log.back().step == at) {
                touch both = touches[i];
                both.first = std::min(both.first, log.back().first);
                both.last = std::max<std::uint32_t>(both.last, log.back().last);
                both.anew = both.anew || log.back().anew;
                log.back() = use_at(at, both);
            } else {
                log.push_back(use_at(at, touches[i]));
            }
        }
        return false;
    }
    bool expected = false;
    if (following_) {
        const auto end = static_cast<std::uint32_t>(
            std::min<std::size_t>(steps_.size(), cursor_ + 1 + resync_steps));
        std::uint32_t next = cursor_ + 1;
        while (next < end && steps_[next] != what)
            next++;
        expected = next == cursor_ + 1 && next < end;
        if (!expected)
            surprises_++;
        doubt_ -= doubt_ / late_steps;
        doubt_ += expected ? 0 : max_doubt / late_steps;
        if (next < end) {
            cursor_ = next;
            strays_ = 0;
        } else if (++strays_ > max_strays) {
            following_ = false;
        }
    }
    const auto now = static_cast<std::uint32_t>(steps_.size());
    steps_.push_back(what);
    for (std::size_t i = 0; i < count; i++)
        log_of(touches[i].base).push_back(use_at(now, touches[i]));
    // What does not fit in here may fit in elsewhere.
    if (!following_ || strays_ > 0) {
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
    const auto found = uses_.find(base);
    if (found == uses_.end())
        return never;
    const auto &log = found->second;
    for (auto each = after_cursor(log); each != log.end(); ++each)
        if (unit >= each->first && unit <= each->last)
            return each->step - cursor_;
    return never;
}

// How many steps ago the unit was touched last.
std::uint32_t schedule::since_last_use(std::uint64_t base,
                                       std::uint32_t unit) const
{
    const auto found = uses_.find(base);
    if (found == uses_.end() || steps_.empty())
        return 0;
    const auto &log = found->second;
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
    for (const auto &[base, log] : uses_)
        bytes += log.capacity() * sizeof log[0] + 64;
    return bytes + seen_.capacity() * sizeof seen_[0];
}

} // namespace emuv::cuda

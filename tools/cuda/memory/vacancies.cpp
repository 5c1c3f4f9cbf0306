// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that was freed in stream order, and is kept for the next request.
#include "memory/vacancies.hpp"

#include "base/size.hpp"
#include "store/placement.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace emuv::cuda {

namespace {

// Cuts begin and end at these.
constexpr std::uint64_t cut_step = guard_bytes;
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 50;

// Of what is taken whole, one byte of so many may lie unused.
constexpr std::uint64_t unused_divisor = 8;

// A shared range has room for so many requests, and is at most all there is
// divided by that.
constexpr std::uint64_t least_sharers = 4;
constexpr std::uint64_t shared_divisor = 8;
constexpr std::uint64_t max_shared_bytes = std::uint64_t{512} << 20;

} // namespace

std::uint64_t vacancies::size_for(std::uint64_t bytes)
{
    constexpr std::uint64_t least_step = 512;
    constexpr std::uint64_t steps_between_powers_of_two = 16;
    if (bytes >= chunk_bytes)
        return bytes;
    return round_up(bytes,
                    std::max(least_step, std::bit_floor(bytes) /
                                             steps_between_powers_of_two));
}

void vacancies::enter(const vacancy &of, std::uint64_t asks)
{
    free_[of.base] = {of, asks};
    by_size_.insert(key_of(of));
    bytes_ += of.bytes;
    whole_bytes_ += of.is_whole() ? of.bytes : 0;
}

void vacancies::remove(const vacancy &of)
{
    bytes_ -= of.bytes;
    whole_bytes_ -= of.is_whole() ? of.bytes : 0;
    by_size_.erase(key_of(of));
    free_.erase(of.base);
}

// Joins two parts that lie side by side, if all work that may use one may use
// the other, too.
bool vacancies::join(vacancy &one, const vacancy &next)
{
    const auto is_nobodys = [](const stream_of &which) {
        return which.stream == nullptr && !which.is_any;
    };
    if (one.end() != next.base || one.range != next.range ||
        one.range.bytes == 0 || is_nobodys(one.behind) ||
        is_nobodys(next.behind) ||
        (one.behind != next.behind &&
         (one.behind.context != next.behind.context ||
          (!one.behind.is_any && !next.behind.is_any))))
        return false;
    one.bytes += next.bytes;
    if (one.behind.is_any)
        one.behind = next.behind;
    return true;
}

vacancies::vacancy vacancies::put(const vacancy &freed)
{
    vacancy joined = freed;
    if (const auto after = free_.upper_bound(freed.base);
        after != free_.end()) {
        const vacancy next = after->second.what;
        if (join(joined, next))
            remove(next);
    }
    if (const auto end = free_.lower_bound(freed.base); end != free_.begin()) {
        const vacancy before = std::prev(end)->second.what;
        vacancy both = before;
        if (join(both, joined)) {
            remove(before);
            joined = both;
        }
    }
    enter(joined, asks_);
    return joined;
}

std::uint64_t vacancies::cut_for(std::uint64_t bytes)
{
    return bytes > max_bytes ? bytes : round_up(bytes + guard_bytes, cut_step);
}

std::uint64_t vacancies::shared_for(std::uint64_t bytes, std::uint64_t all)
{
    const std::uint64_t shared =
        std::min(max_shared_bytes, all / shared_divisor) / max_moving_bytes *
        max_moving_bytes;
    return bytes <= max_bytes && cut_for(bytes) <= shared / least_sharers
               ? shared
               : 0;
}

// @return the smallest vacancy of at least that size; null if there is none
const vacancies::vacancy *vacancies::smallest(const stream_of &behind,
                                              bool is_shared,
                                              std::uint64_t bytes) const
{
    const auto found = by_size_.lower_bound({behind, is_shared, bytes, 0});
    return found != by_size_.end() && found->behind == behind &&
                   found->is_shared == is_shared
               ? &free_.find(found->base)->second.what
               : nullptr;
}

// @param cut  out: the bytes to take of it
// @return null where nothing will do
const vacancies::vacancy *vacancies::find(std::uint64_t bytes,
                                          const stream_of &behind,
                                          std::uint64_t &cut) const
{
    const bool is_large = bytes >= chunk_bytes;
    // The size of the driver's memory is known only as it was asked for.
    const std::uint64_t whole = is_large ? round_up(bytes, chunk_bytes) : bytes;
    const vacancy *const fits = smallest(behind, false, whole);
    cut = fits != nullptr ? fits->bytes : 0;
    if (fits != nullptr && cut - whole <= whole / unused_divisor)
        return fits;
    cut = cut_for(bytes);
    return is_large ? smallest(behind, true, cut) : nullptr;
}

std::optional<vacancies::taken> vacancies::take(std::uint64_t bytes,
                                                const stream_of &behind)
{
    asks_++;
    if (bytes > max_bytes) // sizes would wrap
        return {};
    std::uint64_t cut = 0;
    const vacancy *found = find(bytes, behind, cut);
    if (found == nullptr)
        found = find(bytes, {behind.context, nullptr, true}, cut);
    if (found == nullptr) {
        note_miss(bytes, behind);
        return {};
    }
    const vacancy all = *found;
    const std::uint64_t asks = free_[all.base].asks;
    remove(all);
    taken out{all, all.bytes - cut};
    out.cut.bytes = cut;
    if (out.left_bytes > 0) {
        vacancy rest = all;
        rest.base = out.cut.end();
        rest.bytes = out.left_bytes;
        enter(rest, asks);
    }
    return out;
}

std::vector<vacancies::vacancy>
vacancies::take_replaced(std::uint64_t bytes, const stream_of &behind)
{
    std::vector<vacancy> out;
    const std::vector<vacancy> all = by_bytes();
    for (auto each = all.rbegin(); each != all.rend(); ++each) {
        if (each->behind != behind || each->range.bytes > 0 ||
            each->bytes < chunk_bytes || each->bytes > bytes)
            continue;
        bytes -= each->bytes;
        remove(*each);
        out.push_back(*each);
    }
    return out;
}

std::vector<vacancies::vacancy> vacancies::by_bytes() const
{
    std::vector<vacancy> all;
    for (const auto &[base, each] : free_)
        all.push_back(each.what);
    std::sort(all.begin(), all.end(),
              [](const vacancy &one, const vacancy &other) {
                  return std::pair(one.bytes, one.base) <
                         std::pair(other.bytes, other.base);
              });
    return all;
}

// A request that one would have served which left as excess. All that left
// since the last regret left by one decision, so it is regretted once.
void vacancies::note_miss(std::uint64_t bytes, const stream_of &behind)
{
    if (bytes < chunk_bytes)
        return;
    const std::uint64_t whole = round_up(bytes, chunk_bytes);
    for (left &each : left_) {
        if (each.behind != behind || each.bytes < whole ||
            each.bytes - whole > whole / unused_divisor ||
            asks_ - each.asks > max_idle_asks)
            continue;
        each = {};
        if (asks_ < next_regret_)
            return;
        idle_asks_ = std::min(2 * idle_asks_, max_idle_asks);
        next_regret_ = asks_ + idle_asks_;
        return;
    }
}

std::vector<vacancies::vacancy> vacancies::take_idle(std::uint64_t excess)
{
    const bool looks = asks_ >= next_look_;
    if (looks)
        next_look_ = asks_ + asks_between_looks;
    if (!looks && excess == 0)
        return {};
    std::vector<aged> idle;
    for (const auto &[base, each] : free_)
        if (each.what.is_whole() && asks_ - each.asks > idle_asks_)
            idle.push_back(each);
    std::sort(idle.begin(), idle.end(), [](const aged &one, const aged &other) {
        return std::pair(one.asks, one.what.base) <
               std::pair(other.asks, other.what.base);
    });
    std::vector<vacancy> out;
    for (const aged &each : idle) {
        // Shared ranges serve many sizes, and memory behind no stream stays.
        const bool in_excess = excess > 0 && each.what.bytes >= chunk_bytes &&
                               each.what.range.bytes == 0 &&
                               each.what.behind.stream != nullptr;
        const bool is_old = looks && asks_ - each.asks > max_idle_asks;
        if (!in_excess && !is_old)
            continue;
        if (in_excess) {
            excess -= std::min(excess, each.what.bytes);
            left_[next_left_++ % left_.size()] = {each.what.behind,
                                                  each.what.bytes, asks_};
        }
        remove(each.what);
        out.push_back(each.what);
    }
    return out;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// The figures that a mover publishes of itself.
#include "movement/figures.hpp"

#include <algorithm>

namespace emuv::cuda {

namespace {

// The largest of all, in order, at the begin.
template <typename Item, typename Weight>
std::size_t largest_first(std::vector<Item> &all, Weight weight)
{
    const std::size_t count =
        std::min(all.size(), device_statistics::max_listed);
    std::partial_sort(all.begin(),
                      all.begin() + static_cast<std::ptrdiff_t>(count),
                      all.end(), [&](const Item &one, const Item &other) {
                          return weight(one) > weight(other);
                      });
    return count;
}

} // namespace

figures::cost &figures::cost_of(const char *kernel, const char *why)
{
    for (cost &each : costs_)
        if (each.name == kernel)
            return each;
    // Later ones share the last of these, without a name.
    if (costs_.size() < max_kernels)
        costs_.push_back(
            {.name = costs_.size() + 1 < max_kernels ? kernel : nullptr,
             .why = why});
    return costs_.back();
}

void figures::stood(const char *kernel, const char *why, std::uint64_t ns)
{
    idle_.stands(ns);
    if (page_ != nullptr)
        cost_of(kernel, why).waited_ns += ns;
}

void figures::landed(const flights::landing &which, std::uint64_t step,
                     std::uint64_t now)
{
    if (page_ == nullptr)
        return;
    sample_.launches++;
    if (!which.which.trusted) {
        sample_.untrusted_launches++;
        sample_.untrusted_ns += which.busy_ns;
        cost &of = cost_of(which.which.kernel, which.which.why);
        of.launches++;
        of.busy_ns += which.busy_ns;
    }
    if (which.which.step != 0 && rhythm_.ended(which.which.lag))
        step_ended(step, now);
}

void figures::empties(std::uint64_t step, std::uint64_t now)
{
    idle_.empties(now);
    if (page_ != nullptr && rhythm_.empties(now))
        step_ended(step, now);
}

void figures::moved(const moved_bytes &more, int card)
{
    moved_ += more;
    if (card >= 0)
        moved_with_cards_ += more;
    if (page_ == nullptr)
        return;
    const auto tier = static_cast<std::size_t>(card + 1);
    if (tier >= ever_.size())
        ever_.resize(tier + 1);
    ever_[tier] += more;
}

void figures::begin_sample(std::uint64_t now)
{
    sample_ = {};
    sample_ns_ = now;
    idle_before_ = idle_.so_far();
    moved_ = moved_with_cards_ = {};
    used_bytes_ = missed_bytes_ = 0;
}

void figures::step_ended(std::uint64_t step, std::uint64_t now)
{
    began_after_ = step;
    steps_++;
    // Steps of another kind are not to be compared with those before.
    if (sample_ns_ == 0 || rhythm_.round() != round_) {
        if (!same_round(rhythm_.round(), round_))
            ready_.clear();
        round_ = rhythm_.round();
        begin_sample(now);
        return;
    }
    sample_.steps++;
    if (now - sample_ns_ < shortest_sample_ns)
        return;
    put_sample(now);
    begin_sample(now);
}

void figures::put_sample(std::uint64_t now)
{
    const idle_time::sums idle = idle_.so_far().since(idle_before_);
    sample_.took_ns = now - sample_ns_;
    sample_.link_ns = idle.link;
    sample_.mapping_ns = idle.mapping;
    sample_.standing_ns = idle.standing;
    sample_.program_ns = idle.program;
    sample_.fetched_bytes = moved_.fetched_bytes;
    sample_.evicted_bytes = moved_.evicted_bytes;
    sample_.with_cards = moved_with_cards_;
    sample_.missed_bytes = missed_bytes_;
    sample_.used_bytes = used_bytes_;
    if (ready_.size() < device_statistics::max_kept)
        ready_.push_back(sample_);
    has_news_ = true;
}

void figures::list(const std::vector<block_ref> &large, std::uint64_t now)
{
    const std::uint64_t steps = steps_ - listed_steps_;
    const std::uint64_t age = now - listed_ns_;
    if (listed_ns_ == 0) {
        listed_ns_ = now;
        return;
    }
    if (age < list_ns || (steps < list_steps && age < longest_list_ns))
        return;
    std::vector<crossing_allocation> crossing;
    for (const block_ref &each : large) {
        if (each->fetched_bytes + each->evicted_bytes > 0)
            crossing.push_back(
                {.address = each->base,
                 .bytes = each->bytes,
                 .ram_bytes = each->ram_bytes(0, each->slots.size()),
                 .fetched_bytes = each->fetched_bytes,
                 .evicted_bytes = each->evicted_bytes});
        each->fetched_bytes = each->evicted_bytes = 0;
    }
    const std::size_t allocations =
        largest_first(crossing, [](const crossing_allocation &one) {
            return one.fetched_bytes + one.evicted_bytes;
        });
    const std::size_t kernels = largest_first(
        costs_, [](const cost &one) { return one.busy_ns + one.waited_ns; });
    page_->listed_steps = steps;
    page_->allocations = static_cast<std::uint32_t>(allocations);
    std::copy_n(crossing.begin(), allocations, page_->most_crossing);
    page_->kernels = static_cast<std::uint32_t>(kernels);
    for (std::size_t i = 0; i < kernels; i++) {
        const cost &from = costs_[i];
        untrusted_kernel &to = page_->most_costly[i];
        copy_text(to.name, from.name != nullptr ? from.name : "");
        copy_text(to.why, from.why != nullptr ? from.why : "");
        to.launches = from.launches;
        to.busy_ns = from.busy_ns;
        to.waited_ns = from.waited_ns;
    }
    costs_.clear();
    listed_ns_ = now;
    listed_steps_ = steps_;
}

void figures::publish(const state &now_is, std::uint64_t now)
{
    published_ns_ = now;
    has_news_ = false;
    const statistics_update guard(*page_);
    // Samples of another rhythm say nothing about this one.
    if (!same_round(page_->round, round_))
        page_->samples = 0;
    page_->round = round_;
    page_->is = now_is.is;
    page_->in_ram_bytes = now_is.in_ram_bytes;
    page_->on_cards_bytes = now_is.on_cards_bytes;
    page_->in_file_bytes = now_is.in_file_bytes;
    page_->with_file = filed_;
    page_->packed = packed_;
    if (!ever_.empty())
        page_->with_ram = ever_.front();
    for (std::size_t i = 1; i < ever_.size() && i <= max_devices; i++)
        page_->with_card[i - 1] = ever_[i];
    page_->steps = steps_;
    for (const step_figures &each : ready_)
        page_->kept[page_->samples++ % device_statistics::max_kept] = each;
    ready_.clear();
    list(now_is.large, now);
}

void figures::stop(const char *why)
{
    if (page_ == nullptr)
        return;
    const statistics_update guard(*page_);
    page_->is = treatment::ended;
    copy_text(page_->stopped, why);
}

} // namespace emuv::cuda

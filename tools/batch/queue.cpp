// SPDX-License-Identifier: GPL-2.0-or-later
// The one queue that all workers of a batch are fed from.
#include "batch/queue.hpp"

#include <algorithm>
#include <utility>

namespace emuvctl::batch {

queue::queue(const std::vector<bool> &done,
             std::vector<std::vector<std::uint64_t>> shares, unsigned tries)
    : shares_(std::move(shares)), tries_(tries), items_(done.size())
{
    for (std::size_t item = 0; item < done.size(); item++)
        if (!done[item])
            fresh_.push_back(item);
}

std::optional<std::uint64_t> queue::share_above(std::size_t worker,
                                                std::uint64_t bytes) const
{
    const auto &own = shares_[worker];
    const auto found = std::upper_bound(own.begin(), own.end(), bytes);
    return found == own.end() ? std::nullopt
                              : std::optional<std::uint64_t>(*found);
}

bool queue::anyone_above(std::uint64_t bytes) const
{
    for (std::size_t worker = 0; worker < shares_.size(); worker++)
        if (share_above(worker, bytes))
            return true;
    return false;
}

std::optional<turn> queue::next(std::size_t worker)
{
    for (auto place = again_.begin(); place != again_.end(); ++place) {
        const std::size_t item = *place;
        const auto share =
            items_[item].lacked
                ? share_above(worker, items_[item].too_small)
                : std::optional<std::uint64_t>(shares_[worker].front());
        if (!share)
            continue;
        again_.erase(place);
        items_[item].begun++;
        out_++;
        return turn{item, *share};
    }
    if (fresh_.empty())
        return std::nullopt;
    const std::size_t item = fresh_.front();
    fresh_.pop_front();
    items_[item].begun++;
    out_++;
    return turn{item, shares_[worker].front()};
}

bool queue::ended(const turn &which, ending how)
{
    state &item = items_[which.item];
    out_--;
    bool again = false;
    if (how == ending::no_memory) {
        item.too_small = std::max(item.too_small, which.share_bytes);
        item.lacked = true;
        again = anyone_above(item.too_small);
    } else if (how == ending::lost) {
        again = item.begun < tries_;
    }
    if (again)
        again_.push_back(which.item);
    return again;
}

} // namespace emuvctl::batch

// SPDX-License-Identifier: GPL-2.0-or-later
// The last samples, and the rates and graphs that come from them.
#include "history.hpp"

#include "forecast.hpp"

#include <utility>
#include <vector>

namespace emuvctl::watch {

namespace {

double growth(std::uint64_t now, std::uint64_t before)
{
    return now < before ? 0.0 : static_cast<double>(now - before);
}

} // namespace

void history::follow(holder who, const emuv::counters &counts, double at)
{
    const auto [found, fresh] = tracks_.try_emplace(who);
    track &one = found->second;
    if (!fresh) {
        one.before = one.now;
        one.seconds = at - one.at;
    }
    one.now = counts;
    one.at = at;
}

void history::forget(int instance)
{
    tracks_.erase(tracks_.lower_bound({instance, 0}),
                  tracks_.lower_bound({instance + 1, 0}));
    instances_.erase(instance);
}

void history::forget_the_gone()
{
    std::erase_if(tracks_, [this](const auto &entry) {
        return entry.second.at != last_->at;
    });
    std::erase_if(instances_, [this](const auto &entry) {
        return !tracks_.contains({entry.first, 0});
    });
}

void history::add(sample next)
{
    last_ = std::move(next);
    for (const auto &one : last_->instances) {
        const auto &info = one.info;
        const auto known = instances_.find(info.id);
        if (known != instances_.end() && known->second.uuid != info.uuid)
            forget(info.id);
        follow({info.id, 0}, info.moved, last_->at);
        if (one.clients)
            for (const auto &client : *one.clients)
                follow({info.id, client.client}, client.moved, last_->at);
        auto &kept = instances_[info.id];
        kept.uuid = info.uuid;
        kept.limit = static_cast<double>(info.total_bytes());
        const rates moved = rates_of({info.id, 0}).value_or(rates());
        kept.points.push_back({last_->at,
                               static_cast<double>(info.physical_used_bytes),
                               static_cast<double>(info.virtual_used_bytes),
                               moved.fetched, moved.evicted});
        if (kept.points.size() > most_points)
            kept.points.pop_front();
    }
    forget_the_gone();
}

std::optional<rates> history::rates_of(holder of) const
{
    const auto found = tracks_.find(of);
    if (found == tracks_.end() || !found->second.before ||
        found->second.seconds <= 0)
        return std::nullopt;
    const auto &[now, before, seconds, at] = found->second;
    return rates{growth(now.fetched_bytes, before->fetched_bytes) / seconds,
                 growth(now.evicted_bytes, before->evicted_bytes) / seconds,
                 growth(now.spills, before->spills) / seconds,
                 growth(now.faults, before->faults) / seconds,
                 growth(now.stalled_ns, before->stalled_ns) / 1e9 / seconds};
}

std::optional<double> history::hits_of(holder of) const
{
    const auto found = tracks_.find(of);
    if (found == tracks_.end())
        return std::nullopt;
    const auto share = [](double hit, double miss) -> std::optional<double> {
        if (hit + miss <= 0)
            return std::nullopt;
        return hit / (hit + miss);
    };
    const auto &[now, before, seconds, at] = found->second;
    if (before) {
        const auto lately = share(growth(now.hit_bytes, before->hit_bytes),
                                  growth(now.miss_bytes, before->miss_bytes));
        if (lately)
            return lately;
    }
    return share(static_cast<double>(now.hit_bytes),
                 static_cast<double>(now.miss_bytes));
}

const std::deque<point> &history::points_of(int instance) const
{
    static const std::deque<point> none;
    const auto found = instances_.find(instance);
    return found == instances_.end() ? none : found->second.points;
}

std::optional<double> history::seconds_until_full(int instance) const
{
    const auto found = instances_.find(instance);
    if (found == instances_.end())
        return std::nullopt;
    std::vector<growth_point> points;
    for (const auto &one : found->second.points)
        points.push_back({one.at, one.vram + one.ram});
    return seconds_until(points, found->second.limit);
}

} // namespace emuvctl::watch

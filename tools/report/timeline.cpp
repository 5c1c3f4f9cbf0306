// SPDX-License-Identifier: GPL-2.0-or-later
// Values over time, in a bounded number of equal parts of it.
#include "report/timeline.hpp"

#include <algorithm>

namespace emuv::report {

std::size_t timeline::add_track(kind as)
{
    tracks_.push_back({as, std::vector<part>(parts)});
    return tracks_.size() - 1;
}

// Makes one part of each two. The old ones begin at @p shift then.
void timeline::halve(std::size_t shift)
{
    for (track &of : tracks_) {
        std::vector<part> made(parts);
        for (std::size_t i = 0; i < parts; i++) {
            const part &from = of.all[i];
            part &to = made[shift + i / 2];
            if (!from.has)
                continue;
            if (of.as == kind::amount)
                to.value += from.value;
            else
                to.value = to.has ? std::max(to.value, from.value) : from.value;
            to.end = from.end;
            to.has = true;
        }
        of.all = std::move(made);
    }
    begin_ -= static_cast<double>(shift) * 2 * width_;
    width_ *= 2;
}

void timeline::fit(double at)
{
    constexpr double first_width = 1e-6;
    if (width_ == 0) {
        width_ = first_width;
        begin_ = first_ = last_ = at;
    }
    while (at < begin_)
        halve(parts / 2);
    while (at >= begin_ + static_cast<double>(parts) * width_)
        halve(0);
    first_ = std::min(first_, at);
    last_ = std::max(last_, at);
}

std::size_t timeline::place(double at) const
{
    const double from = (at - begin_) / width_;
    return from <= 0 ? 0 : std::min(static_cast<std::size_t>(from), parts - 1);
}

void timeline::reach(double at)
{
    fit(at);
}

void timeline::level(std::size_t which, double at, double value)
{
    fit(at);
    part &to = tracks_[which].all[place(at)];
    to.value = to.has ? std::max(to.value, value) : value;
    to.end = value;
    to.has = true;
}

void timeline::amount(std::size_t which, double from, double to, double value)
{
    fit(from);
    fit(to);
    const std::size_t last = place(to);
    for (std::size_t i = place(from); i <= last; i++) {
        const double starts = begin_ + static_cast<double>(i) * width_;
        const double shared =
            std::min(to, starts + width_) - std::max(from, starts);
        part &into = tracks_[which].all[i];
        into.value +=
            to > from ? value * std::max(shared, 0.0) / (to - from) : value;
        into.has = true;
    }
}

std::vector<double> timeline::values(std::size_t which) const
{
    std::vector<double> out;
    if (width_ == 0)
        return out;
    const auto &of = tracks_[which];
    const std::size_t count = place(last_) + 1;
    double held = 0;
    for (std::size_t i = 0; i < count; i++) {
        const part &each = of.all[i];
        if (of.as == kind::amount) {
            out.push_back(each.value);
            continue;
        }
        out.push_back(each.has ? std::max(held, each.value) : held);
        held = each.has ? each.end : held;
    }
    return out;
}

} // namespace emuv::report

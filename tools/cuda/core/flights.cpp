// SPDX-License-Identifier: LGPL-2.1-or-later
// Work that the device has in hand.
#include "flights.hpp"

#include "thread.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

void flights::open()
{
    const std::lock_guard guard(departing_);
    open_ = true;
}

void flights::close()
{
    const std::lock_guard guard(departing_);
    open_ = false;
}

bool flights::depart(CUstream stream, flight &&begun)
{
    const std::unique_lock guard = lock_soon(departing_);
    if (!open_)
        return false;
    departed_ns_.fetch_add(begun.expected_ns);
    departed_.emplace_back(stream, std::move(begun));
    any_departed_.store(true);
    return true;
}

void flights::arrive()
{
    if (!any_departed_.load())
        return;
    {
        const std::unique_lock guard = lock_soon(departing_);
        arriving_.swap(departed_);
        any_departed_.store(false);
        departed_ns_.store(0);
    }
    for (auto &[stream, which] : arriving_)
        add(stream, std::move(which));
    arriving_.clear();
}

void flights::add(CUstream stream, flight &&begun)
{
    row &of = by_stream_[stream];
    of.expected_ns += begun.expected_ns;
    if (by_stream_.size() > 1)
        crowded_ns_ = std::max(crowded_ns_, begun.handed_over_ns);
    of.queue.push_back(std::move(begun));
}

flight *flights::oldest(CUstream stream)
{
    const auto found = by_stream_.find(stream);
    return found != by_stream_.end() ? &found->second.queue.front() : nullptr;
}

std::uint64_t flights::behind_oldest_ns(CUstream stream) const
{
    const auto found = by_stream_.find(stream);
    return found != by_stream_.end()
               ? found->second.expected_ns -
                     found->second.queue.front().expected_ns
               : 0;
}

std::vector<flights::landing> flights::land(std::unique_lock<std::mutex> &lock,
                                            bool &failed)
{
    // What stands first in a queue need not end first: threads that share a
    // stream may change places here, and each has its own default stream.
    struct question
    {
        CUstream stream;
        std::vector<CUevent> events;
        std::size_t ended = 0;
    };
    std::vector<question> questions;
    for (const auto &[stream, of] : by_stream_) {
        question &made = questions.emplace_back();
        made.stream = stream;
        for (const flight &each : of.queue)
            if (made.events.size() < asked_at_once)
                made.events.push_back(each.event);
            else
                break;
    }
    std::vector<landing> out;
    if (questions.empty())
        return out;
    lock.unlock();
    const std::uint64_t asked_ns = now_ns();
    for (question &each : questions)
        for (const CUevent event : each.events) {
            const CUresult state = calls_.cuEventQuery(event);
            if (state == CUDA_ERROR_NOT_READY)
                break;
            each.ended++;
            failed = failed || state != CUDA_SUCCESS;
        }
    const std::uint64_t now = now_ns();
    lock_soon(lock);
    arrive();
    const std::uint64_t slack = now - looked_ns_;
    // Of what was not asked for, nobody knows when it ended.
    if (std::none_of(
            questions.begin(), questions.end(),
            [](const question &each) { return each.ended == asked_at_once; }))
        looked_ns_ = asked_ns;
    if (questions.size() > 1)
        crowded_ns_ = now;
    for (const question &each : questions) {
        if (each.ended == 0)
            continue;
        const auto entry = by_stream_.find(each.stream);
        auto &[queue, expected_ns, last_end_ns] = entry->second;
        for (std::size_t i = 0; i < each.ended; i++) {
            landing next{std::move(queue.front()), i == 0, 0, {}};
            queue.pop_front();
            expected_ns -= next.which.expected_ns;
            const std::uint64_t start =
                std::max(next.which.handed_over_ns, last_end_ns);
            next.busy_ns = now - std::min(now, start);
            last_end_ns = now;
            next.took = time_alone(next.which, now, slack, next.is_first);
            out.push_back(std::move(next));
        }
        if (queue.empty())
            by_stream_.erase(entry);
    }
    if (!out.empty()) {
        last_end_ns_ = now;
        last_end_slack_ns_ = slack;
    }
    return out;
}

// It had the device for itself from its begin, or from the end of what was
// before it; neither is known to the moment. Nobody had looked for so long as
// slack says: all that was seen to end at once, but the first of it, began
// since then.
std::optional<reach::span> flights::time_alone(const flight &which,
                                               std::uint64_t now,
                                               std::uint64_t slack,
                                               bool is_first) const
{
    const std::uint64_t first = std::max(which.begun_ns, last_end_ns_);
    const std::uint64_t last = std::max(which.handed_over_ns, last_end_ns_);
    if (which.failed || crowded_ns_ >= first || last > now)
        return {};
    const std::uint64_t least = now - last;
    const std::uint64_t most =
        now - first + (first == last_end_ns_ ? last_end_slack_ns_ : 0);
    return is_first ? reach::span{least - std::min(least, slack), most}
                    : reach::span{0, std::min(slack, most)};
}

std::vector<flight> flights::abandon()
{
    std::vector<flight> out;
    for (auto &[stream, of] : by_stream_)
        for (flight &each : of.queue)
            out.push_back(std::move(each));
    by_stream_.clear();
    return out;
}

} // namespace emuv::cuda

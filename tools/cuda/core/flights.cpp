// SPDX-License-Identifier: LGPL-2.1-or-later
// Work that the device has in hand.
#include "flights.hpp"

#include "thread.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

namespace {

// Each question takes a lock of the driver's that launching takes.
constexpr std::size_t asked_at_once = 64;

} // namespace

void flights::add(CUstream stream, flight &&begun)
{
    by_stream_[stream].push_back(std::move(begun));
    if (by_stream_.size() > 1)
        crowded_ns_ = now_ns();
}

flight *flights::oldest_step(CUstream stream)
{
    const auto found = by_stream_.find(stream);
    if (found == by_stream_.end())
        return nullptr;
    auto &queue = found->second;
    const auto first =
        std::find_if(queue.begin(), queue.end(),
                     [](const flight &each) { return each.step != 0; });
    return first != queue.end() ? &*first : nullptr;
}

std::vector<flights::landing> flights::land(std::unique_lock<std::mutex> &lock,
                                            bool &failed)
{
    // What stands first in a queue need not end first: threads that share a
    // stream may change places here, and each has its own default stream.
    struct row
    {
        CUstream stream;
        std::vector<CUevent> events;
        std::size_t ended = 0;
    };
    std::vector<row> rows;
    for (const auto &[stream, queue] : by_stream_) {
        row &made = rows.emplace_back();
        made.stream = stream;
        for (std::size_t i = 0; i < std::min(queue.size(), asked_at_once); i++)
            made.events.push_back(queue[i].event);
    }
    std::vector<landing> out;
    if (rows.empty())
        return out;
    lock.unlock();
    const std::uint64_t asked_ns = now_ns();
    for (row &each : rows)
        for (const CUevent event : each.events) {
            const CUresult state = calls_.cuEventQuery(event);
            if (state == CUDA_ERROR_NOT_READY)
                break;
            each.ended++;
            failed = failed || state != CUDA_SUCCESS;
        }
    const std::uint64_t now = now_ns();
    lock.lock();
    const std::uint64_t slack = now - looked_ns_;
    // Of what was not asked for, nobody knows when it ended.
    if (std::none_of(rows.begin(), rows.end(), [](const row &each) {
            return each.ended == asked_at_once;
        }))
        looked_ns_ = asked_ns;
    if (rows.size() > 1)
        crowded_ns_ = now;
    for (const row &each : rows) {
        if (each.ended == 0)
            continue;
        const auto entry = by_stream_.find(each.stream);
        auto &queue = entry->second;
        for (std::size_t i = 0; i < each.ended; i++) {
            landing next{std::move(queue.front()), i == 0, {}};
            queue.pop_front();
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
    for (auto &[stream, queue] : by_stream_)
        for (flight &each : queue)
            out.push_back(std::move(each));
    by_stream_.clear();
    return out;
}

} // namespace emuv::cuda

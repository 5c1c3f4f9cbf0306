// SPDX-License-Identifier: LGPL-2.1-or-later
// Work in flight.
#include "movement/flights.hpp"

#include "base/captures.hpp"
#include "base/thread.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

void flights::open(CUcontext context)
{
    const std::lock_guard guard(departing_);
    context_ = context;
    open_ = true;
}

void flights::close()
{
    std::unique_lock lock(departing_);
    open_ = false;
    take_unmarked();
    marked_.wait(lock, [this] { return being_marked_.empty(); });
    lost_.store(false);
}

// True if the event of the next work on its stream may stand for this work. No
// event becomes part of a capture.
bool flights::may_wait(const flight &begun) const
{
    return begun.brief && !begun.failed && begun.event != nullptr &&
           unmarked_.count + 1 < max_unmarked &&
           unmarked_.expected_ns + begun.expected_ns < max_unmarked_ns &&
           (unmarked_.count == 0 ||
            begun.handed_over_ns - unmarked_.since_ns < max_unmarked_ns) &&
           marking_ == 0 && open_captures.load() == 0;
}

// Locked.
// @return the work that was unmarked until now
flights::unmarked flights::take_unmarked()
{
    any_unmarked_.store(!being_marked_.empty());
    return std::exchange(unmarked_, {});
}

// Locked, but for the driver's call. The event of the last work stands for all.
// any_unmarked() stays true until that event is recorded: afterwards the stream
// may be captured, or go.
void flights::mark_last(std::unique_lock<std::mutex> &lock)
{
    const unmarked all = std::exchange(unmarked_, {});
    if (all.count == 0)
        return;
    marking_++;
    being_marked_.push_back({all.stream, all.event});
    lock.unlock();
    CUcontext popped = nullptr;
    const bool entered = context_ != nullptr &&
                         calls_.cuCtxPushCurrent_v2(context_) == CUDA_SUCCESS;
    const CUresult result = calls_.cuEventRecord(all.event, all.stream);
    if (entered)
        calls_.cuCtxPopCurrent_v2(&popped);
    lock_soon(lock);
    marking_--;
    std::erase_if(being_marked_, [&](const mark_made &each) {
        return each.event == all.event;
    });
    if (result == CUDA_SUCCESS)
        marks_.push_back({all.stream, all.event});
    else
        lost_.store(true);
    any_departed_.store(true);
    if (unmarked_.count == 0 && being_marked_.empty())
        any_unmarked_.store(false);
    marked_.notify_all();
}

template <typename Condition>
void flights::mark_if(Condition holds)
{
    if (!any_unmarked())
        return;
    std::unique_lock lock = lock_soon(departing_);
    if (holds())
        mark_last(lock);
}

bool flights::is_being_marked(CUstream stream) const
{
    return std::any_of(
        being_marked_.begin(), being_marked_.end(),
        [stream](const mark_made &each) { return each.stream == stream; });
}

void flights::mark()
{
    mark_if([] { return true; });
}

void flights::mark_all()
{
    if (!any_unmarked())
        return;
    std::unique_lock lock = lock_soon(departing_);
    mark_last(lock);
    marked_.wait(lock, [this] { return being_marked_.empty(); });
}

void flights::mark_before(CUstream stream, const flight &next)
{
    mark_if([&] { return !next.brief || stream != unmarked_.stream; });
}

void flights::leave(CUstream stream)
{
    if (!any_unmarked())
        return;
    std::unique_lock lock = lock_soon(departing_);
    if (stream == unmarked_.stream)
        mark_last(lock);
    marked_.wait(lock, [&] { return !is_being_marked(stream); });
}

// Locked.
void flights::push(CUstream stream, flight &&begun)
{
    departed_ns_.fetch_add(begun.expected_ns);
    departed_.emplace_back(stream, std::move(begun));
    any_departed_.store(true);
}

flights::departure flights::depart(CUstream stream, flight &&begun)
{
    bool stands_for_others = false;
    {
        std::unique_lock lock = lock_soon(departing_);
        // Another thread that launches may have been faster.
        while (open_ && unmarked_.count > 0 && stream != unmarked_.stream)
            mark_last(lock);
        if (!open_)
            return departure::closed;
        if (may_wait(begun)) {
            if (unmarked_.count++ == 0)
                unmarked_.since_ns = begun.handed_over_ns;
            unmarked_.stream = stream;
            unmarked_.expected_ns += begun.expected_ns;
            unmarked_.event = begun.event;
            any_unmarked_.store(true);
            push(stream, std::move(begun));
            return departure::followed;
        }
        stands_for_others = take_unmarked().count > 0;
        marking_++;
    }
    // The lock is let go, since others launch with it.
    begun.marked = begun.event != nullptr &&
                   calls_.cuEventRecord(begun.event, stream) == CUDA_SUCCESS;
    const std::unique_lock guard = lock_soon(departing_);
    marking_--;
    if (!begun.marked) {
        if (stands_for_others)
            lost_.store(true);
        return departure::lost;
    }
    if (!open_)
        return departure::closed;
    push(stream, std::move(begun));
    return departure::followed;
}

// @param pending  out, if not null: of the arrived work, the events that are
//   still being recorded
void flights::arrive(std::vector<mark_made> *pending)
{
    if (!any_departed_.load() && (pending == nullptr || !any_unmarked()))
        return;
    {
        const std::unique_lock guard = lock_soon(departing_);
        arriving_.swap(departed_);
        arriving_marks_.swap(marks_);
        if (pending != nullptr)
            *pending = being_marked_;
        any_departed_.store(false);
        departed_ns_.store(0);
    }
    for (auto &[stream, which] : arriving_)
        add(stream, std::move(which));
    arriving_.clear();
    // None of them has landed: see land().
    for (const auto &[stream, event] : arriving_marks_) {
        auto &queue = by_stream_[stream].queue;
        std::find_if(queue.rbegin(), queue.rend(),
                     [&, made = event](const flight &each) {
                         return each.event == made;
                     })
            ->marked = true;
    }
    arriving_marks_.clear();
}

void flights::add(CUstream stream, flight &&begun)
{
    row &of = by_stream_[stream];
    of.expected_ns += begun.expected_ns;
    of.least_ns += begun.least_ns;
    if (by_stream_.size() > 1)
        crowded_ns_ = std::max(crowded_ns_, begun.handed_over_ns);
    of.queue.push_back(std::move(begun));
}

flight *flights::oldest(CUstream stream)
{
    const auto found = by_stream_.find(stream);
    return found != by_stream_.end() ? &found->second.queue.front() : nullptr;
}

std::uint64_t flights::until_idle_ns(CUstream stream, std::uint64_t now) const
{
    const auto found = by_stream_.find(stream);
    return found != by_stream_.end()
               ? left_of(found->second, found->second.expected_ns, now)
               : 0;
}

bool flights::is_ahead(CUstream stream, std::uint64_t lead_ns,
                       std::uint64_t now) const
{
    const auto found = by_stream_.find(stream);
    if (found == by_stream_.end() || found->second.queue.size() < 2)
        return false;
    const row &of = found->second;
    const flight &oldest = of.queue.front();
    const flight &next = of.queue[1];
    const std::uint64_t seems_ns = of.expected_ns - oldest.expected_ns;
    const std::uint64_t waited_ns = now - std::min(now, next.handed_over_ns);
    return of.least_ns - oldest.least_ns > lead_ns || seems_ns > 4 * lead_ns ||
           (seems_ns > lead_ns && waited_ns > lead_ns);
}

std::vector<flights::landing> flights::land(std::unique_lock<std::mutex> &lock,
                                            bool &failed)
{
    // The first work in a queue need not end first. Threads that share a stream
    // may change places here, and each thread has its own default stream.
    struct question
    {
        CUstream stream;
        // Each event, and the number of flights it stands for.
        std::vector<std::pair<CUevent, std::size_t>> events;
        std::size_t ended = 0; // of those events
    };
    std::vector<question> questions;
    for (const auto &[stream, of] : by_stream_) {
        question &made = questions.emplace_back();
        made.stream = stream;
        std::size_t waiting = 0;
        for (const flight &each : of.queue) {
            waiting++;
            if (!each.marked)
                continue;
            if (made.events.size() == asked_at_once)
                break;
            made.events.emplace_back(each.event, std::exchange(waiting, 0));
        }
    }
    std::vector<landing> out;
    if (questions.empty())
        return out;
    lock.unlock();
    const std::uint64_t asked_ns = now_ns();
    mark_if([&] { return unmarked_.since_ns + max_unmarked_ns < asked_ns; });
    for (question &each : questions)
        for (const auto &[event, stands_for] : each.events) {
            const CUresult state = calls_.cuEventQuery(event);
            if (state == CUDA_ERROR_NOT_READY)
                break;
            each.ended++;
            failed = failed || state != CUDA_SUCCESS;
        }
    const std::uint64_t now = now_ns();
    lock_soon(lock);
    std::vector<mark_made> pending;
    arrive(&pending);
    failed = failed || lost_.load();
    const std::uint64_t slack = now - looked_ns_;
    // Nobody knows the end of work that was not asked about.
    if (std::none_of(
            questions.begin(), questions.end(),
            [](const question &each) { return each.ended == asked_at_once; }))
        looked_ns_ = asked_ns;
    if (questions.size() > 1)
        crowded_ns_ = now;
    for (const question &each : questions) {
        if (each.ended == 0)
            continue;
        const auto found = by_stream_.find(each.stream);
        // Nobody else may be given an event before its recording is over. Until
        // then, its flight does not land.
        const auto is_pending = [&](std::size_t count) {
            const auto &queue = found->second.queue;
            return std::any_of(
                pending.begin(), pending.end(), [&](const mark_made &made) {
                    return std::any_of(queue.begin(),
                                       queue.begin() +
                                           static_cast<std::ptrdiff_t>(count),
                                       [&](const flight &which) {
                                           return which.event == made.event;
                                       });
                });
        };
        for (std::size_t i = 0;
             i < each.ended && !is_pending(each.events[i].second); i++)
            land(found->second, each.events[i].second, i == 0, now, slack, out);
        if (found->second.queue.empty())
            by_stream_.erase(found);
    }
    if (!out.empty()) {
        last_end_ns_ = now;
        last_end_slack_ns_ = slack;
    }
    return out;
}

// Lands the first @p count flights of a stream together.
void flights::land(row &of, std::size_t count, bool is_first, std::uint64_t now,
                   std::uint64_t slack, std::vector<landing> &out)
{
    const std::uint64_t start =
        std::max(of.queue.front().handed_over_ns, of.last_end_ns);
    of.last_end_ns = now;
    for (std::size_t i = 0; i < count; i++) {
        landing next{std::move(of.queue.front()), is_first && i == 0, 0, 0, {}};
        of.queue.pop_front();
        of.expected_ns -= next.which.expected_ns;
        of.least_ns -= next.which.least_ns;
        next.busy_ns = (now - std::min(now, start)) / count;
        next.least_ns = (now - std::min(now, start + slack)) / count;
        next.took = time_alone(next.which, now, slack, is_first);
        // Any of them may have taken all of the time, or none.
        if (next.took && count > 1)
            next.took->least_ns = 0;
        out.push_back(std::move(next));
    }
}

// The work had the device for itself since it began, or since earlier work
// ended. Neither moment is known exactly: nobody had looked for @p slack ns. Of
// work that was seen to end at once, all but the first began within that time.
std::optional<reach::time_bounds> flights::time_alone(const flight &which,
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
    return is_first ? reach::time_bounds{least - std::min(least, slack), most}
                    : reach::time_bounds{0, std::min(slack, most)};
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

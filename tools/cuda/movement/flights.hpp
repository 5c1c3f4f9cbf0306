// SPDX-License-Identifier: LGPL-2.1-or-later
// Work in flight.
#pragma once

#include "base/driver.hpp"
#include "base/thread.hpp"
#include "movement/barriers.hpp"
#include "movement/block.hpp"
#include "policy/reach.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// One work, from its announcement until its end is seen.
struct flight
{
    CUevent event = nullptr; ///< its own, recorded or not
    /// Its event is recorded behind it. Otherwise the event of later work on
    /// its stream tells that it has ended.
    bool marked = false;
    bool trusted = false;
    bool reads_tables = false;                 ///< trusted by a name alone
    const char *kernel = nullptr;              ///< its name, if it is a kernel
    const char *why = nullptr;                 ///< it is not trusted; or null
    barriers::ticket barrier = barriers::none; ///< it waits there to begin
    bool brief = false;            ///< a kernel that is known to end soon
    std::uint64_t step = 0;        ///< of the schedule, from 1; 0 is none
    bool failed = false;           ///< its launch returned an error
    std::uint64_t lag = 0;         ///< see pace
    bool recurs = false;           ///< likewise
    std::uint64_t expected_ns = 0; ///< how long it will take the device
    std::uint64_t least_ns = 0;    ///< how long it surely will
    std::uint64_t begun_ns = 0;    ///< it began between these two
    std::uint64_t handed_over_ns = 0;
    bool waited_for = false;     ///< in vain: perhaps it waits for the program
    std::vector<touched> blocks; ///< that it was given

    /// True if the past tells how long it takes.
    bool is_foreseen() const { return step > lag && lag != 0; }
};

/// All flights, by stream. The caller locks, unless a function says otherwise.
class flights
{
public:
    /// The most events of a stream that are asked about at once. Each question
    /// takes a lock of the driver that launches take, too.
    static constexpr std::size_t asked_at_once = 64;

    /// An event costs a program's thread a fifth of a launch. So one event
    /// stands for several brief works, at most max_unmarked. Together
    /// they are expected to take at most max_unmarked_ns, and are handed over
    /// within that time.
    static constexpr unsigned max_unmarked = 16;
    static constexpr std::uint64_t max_unmarked_ns = 250000;

    /// Work that is later than expected by so much comes at any time.
    static constexpr std::uint64_t max_overdue_ns = 2000000;

    /// Work that has ended.
    struct landing
    {
        flight which;
        bool is_first = false; ///< of those that ended together on its stream
        /// The time since the work before it on its stream ended, or since it
        /// was handed over. Work seen to end at once shares that time. Work
        /// that one event stands for has equal parts of it.
        std::uint64_t busy_ns = 0;
        /// The part of it that was surely the device's. Ends are seen late, by
        /// the time between two looks.
        std::uint64_t least_ns = 0;
        /// How long it had the device for itself, if it had.
        std::optional<reach::time_bounds> took;
    };

    /// @param calls  outlives this object
    explicit flights(const driver &calls) : calls_(calls) {}
    flights(const flights &) = delete;
    flights &operator=(const flights &) = delete;

    /// From here on work may depart, until close(), which waits for events that
    /// are being recorded.
    /// @param context  of the work
    void open(CUcontext context);
    void close();

    /// Hands over work that a stream has just been given, so that its end is
    /// seen. Needs no lock of the caller's, for which a launch might have to
    /// wait.
    enum class departure
    {
        followed,
        lost,   ///< the driver could not record its event
        closed, ///< see open(); in both cases the caller keeps the work
    };
    departure depart(CUstream stream, flight &&begun);

    /// True if some work has no recorded event, nor any behind it. mark()
    /// records one, unless another thread is recording it. Neither needs a lock
    /// or a certain context. The driver may delay an event until the device
    /// goes on, and for that another thread may have to launch.
    bool any_unmarked() const { return any_unmarked_.load(); }
    void mark();

    /// As mark(), unless the event of @p next may stand for that work. The
    /// stream is about to be given @p next.
    void mark_before(CUstream stream, const flight &next);

    /// As mark(), and waits for what other threads are recording. Afterwards a
    /// stream may be captured.
    void mark_all();

    /// As mark_all(), for the work of a stream that is about to go.
    void leave(CUstream stream);

    /// True if work has departed and not arrived; and how long that work is
    /// expected to take the device. Neither needs a lock.
    bool any_departed() const { return any_departed_.load(); }
    std::uint64_t departed_ns() const { return departed_ns_.load(); }

    /// Takes over the work that has departed. All other functions see only work
    /// that has arrived.
    void arrive() { arrive(nullptr); }

    bool empty() const { return by_stream_.empty(); }

    /// Calls @p use with each of them, in the order of its stream.
    template <typename Use>
    void each(Use use) const
    {
        for (const auto &[stream, of] : by_stream_)
            for (const flight &which : of.queue)
                use(which);
    }

    /// The number of streams that have any.
    std::size_t streams() const { return by_stream_.size(); }

    /// The work of a stream that ends first, as far as is known; null where
    /// there is none. Valid until the lock is let go.
    flight *oldest(CUstream stream);

    /// How long a stream is expected to be busy with the work that it has.
    /// UINT64_MAX where that cannot be told.
    std::uint64_t until_idle_ns(CUstream stream, std::uint64_t now) const;

    /// The time expected until a stream comes to work that @p is names.
    /// UINT64_MAX where there is none, or where that cannot be told.
    template <typename Is>
    std::uint64_t until_ns(std::uint64_t now, Is is) const
    {
        std::uint64_t least = UINT64_MAX;
        for (const auto &[stream, of] : by_stream_) {
            std::uint64_t sum = 0;
            for (const flight &each : of.queue) {
                if (is(each)) {
                    least = std::min(least, left_of(of, sum, now));
                    break;
                }
                sum += each.expected_ns;
            }
        }
        return least;
    }

    /// True if the work behind a stream's oldest takes the device longer than
    /// @p lead_ns. Ends are seen late, so short work seems long. Work that only
    /// seems to take so long counts once the first of it has waited that long.
    /// Work that seems to take four times as long counts at once.
    bool is_ahead(CUstream stream, std::uint64_t lead_ns,
                  std::uint64_t now) const;

    /// The work that has ended since the last call, in each stream's order. The
    /// lock is let go while the driver is asked, and work that departs
    /// meanwhile arrives.
    /// @param failed  out: set where the device reports an error
    std::vector<landing> land(std::unique_lock<std::mutex> &lock, bool &failed);

    /// All work, since nobody will ask for its end any more.
    std::vector<flight> abandon();

private:
    struct row
    {
        std::deque<flight> queue;
        std::uint64_t expected_ns = 0;
        std::uint64_t least_ns = 0;
        std::uint64_t last_end_ns = 0;
    };

    // Work that lacks a recorded event, all of it on one stream.
    struct unmarked
    {
        CUstream stream = nullptr;
        CUevent event = nullptr; // of the last work
        unsigned count = 0;
        std::uint64_t expected_ns = 0;
        std::uint64_t since_ns = 0;
    };

    // An event that a thread is recording for unmarked work.
    struct mark_made
    {
        CUstream stream;
        CUevent event;
    };

    // The rest of that time; UINT64_MAX where it has been wrong for a while.
    static std::uint64_t left_of(const row &of, std::uint64_t expected_ns,
                                 std::uint64_t now)
    {
        const std::uint64_t ends =
            std::max(of.queue.front().handed_over_ns, of.last_end_ns) +
            expected_ns;
        if (now < ends)
            return ends - now;
        return now - ends < max_overdue_ns ? 0 : UINT64_MAX;
    }

    bool may_wait(const flight &begun) const;
    unmarked take_unmarked();
    void mark_last(std::unique_lock<std::mutex> &lock);
    template <typename Condition>
    void mark_if(Condition holds);
    bool is_being_marked(CUstream stream) const;
    void arrive(std::vector<mark_made> *pending);
    void push(CUstream stream, flight &&begun);
    void add(CUstream stream, flight &&begun);
    void land(row &of, std::size_t count, bool is_first, std::uint64_t now,
              std::uint64_t slack, std::vector<landing> &out);
    std::optional<reach::time_bounds> time_alone(const flight &which,
                                                 std::uint64_t now,
                                                 std::uint64_t slack,
                                                 bool is_first) const;

    const driver &calls_;
    std::mutex departing_; // guards the next eight
    bool open_ = false;
    CUcontext context_ = nullptr;
    std::vector<mark_made> being_marked_;
    condition marked_; // one of those is recorded
    unmarked unmarked_;
    // The number of events that are being recorded. Work that departs meanwhile
    // arrives before the work of such an event. So the event does not stand for
    // it.
    unsigned marking_ = 0;
    std::vector<mark_made> marks_; // recorded since the last arrival
    std::vector<std::pair<CUstream, flight>> departed_;
    std::vector<std::pair<CUstream, flight>> arriving_;
    std::vector<mark_made> arriving_marks_;
    std::atomic<bool> any_departed_{false};
    std::atomic<bool> any_unmarked_{false};
    std::atomic<bool> lost_{false}; // the end of some work will never be seen
    std::atomic<std::uint64_t> departed_ns_{0};
    std::map<CUstream, row> by_stream_;
    // When work ended last, and how long nobody had looked before that. Then
    // when somebody looked last, and when two streams last had work in flight.
    std::uint64_t last_end_ns_ = 0;
    std::uint64_t last_end_slack_ns_ = 0;
    std::uint64_t looked_ns_ = 0;
    std::uint64_t crowded_ns_ = 0;
};

} // namespace emuv::cuda

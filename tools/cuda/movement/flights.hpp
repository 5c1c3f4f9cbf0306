// SPDX-License-Identifier: LGPL-2.1-or-later
// Work that the device has in hand.
#pragma once

#include "base/driver.hpp"
#include "base/thread.hpp"
#include "movement/block.hpp"
#include "policy/reach.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// A piece of work.
struct flight
{
    CUevent event = nullptr; ///< its own, recorded or not
    /// The event is recorded behind it. Otherwise that of later work of its
    /// stream says that it has ended.
    bool marked = false;
    bool vouched = false;
    bool brief = false;            ///< a kernel that is known to end soon
    std::uint64_t step = 0;        ///< of the schedule, from 1; 0 is none
    bool failed = false;           ///< to begin, it seems
    std::uint64_t lag = 0;         ///< see pace
    bool recurs = false;           ///< likewise
    std::uint64_t expected_ns = 0; ///< that it will take the device
    std::uint64_t begun_ns = 0;    ///< between these two
    std::uint64_t handed_over_ns = 0;
    bool waited_for = false;     ///< in vain: perhaps it waits for the program
    std::vector<touched> blocks; ///< that it was given

    /// Whether the past says how long it takes.
    bool is_foreseen() const { return step > lag && lag != 0; }
};

/// All of it, by stream. Whoever uses it locks, but for what says otherwise.
class flights
{
public:
    /// Pieces of work of a stream: each question takes a lock of the driver's
    /// that launching takes.
    static constexpr std::size_t asked_at_once = 64;

    /// An event costs a program's thread a fifth of what a launch does. So one
    /// stands for several pieces of brief work: so many at most, expected to
    /// take the device so long together, and handed over within as long.
    static constexpr unsigned max_unmarked = 16;
    static constexpr std::uint64_t max_unmarked_ns = 250000;

    /// Work that has ended.
    struct landing
    {
        flight which;
        bool is_first = false; ///< of those of its stream that ended together
        /// Since what was before it in its stream, or since it was handed
        /// over. What is seen to end together has it together; what one event
        /// stands for, each the same part of it.
        std::uint64_t busy_ns = 0;
        /// How long it had the device for itself, where it had.
        std::optional<reach::span> took;
    };

    /// @param calls  outlives this object
    explicit flights(const driver &calls) : calls_(calls) {}
    flights(const flights &) = delete;
    flights &operator=(const flights &) = delete;

    /// From here on work may depart, until close(), which waits for what is
    /// being recorded.
    /// @param context  that the work is in
    void open(CUcontext context);
    void close();

    /// Hands over work that a stream has just been given, and sees to it that
    /// its end is seen. Needs no lock of the caller's, for which a launch might
    /// have to wait.
    enum class departure
    {
        followed,
        lost,   ///< to the driver, which could not record its event
        closed, ///< see open(); of either, nothing has been taken
    };
    departure depart(CUstream stream, flight &&begun);

    /// Whether some of it waits for the event of what comes next; and from here
    /// on none does, but for what another thread is recording. Without a lock,
    /// since the driver may let an event wait until the device gets on, and
    /// what lets it get on may be launched by another thread. In any context.
    bool any_unmarked() const { return any_unmarked_.load(); }
    void mark();

    /// The same, unless the event of this, which the stream is about to be
    /// given, may stand for it.
    void mark_before(CUstream stream, const flight &next);

    /// The same, and what other threads are recording is recorded: a stream may
    /// be captured from here on.
    void mark_all();

    /// The same, where it is on a stream that is about to go.
    void leave(CUstream stream);

    /// Whether anything has departed and not arrived, and how long that is
    /// expected to take the device. Likewise.
    bool any_departed() const { return any_departed_.load(); }
    std::uint64_t departed_ns() const { return departed_ns_.load(); }

    /// Takes over what has departed: all else here is about what has arrived.
    void arrive() { arrive(nullptr); }

    bool empty() const { return by_stream_.empty(); }

    /// On how many there is any.
    std::size_t streams() const { return by_stream_.size(); }

    /// The first to end of a stream's, as far as is known; null where there is
    /// none. Until the lock is let go.
    flight *oldest(CUstream stream);

    /// How long all others of a stream's are expected to take.
    std::uint64_t behind_oldest_ns(CUstream stream) const;

    /// What has ended since the last time, in each stream's order. The driver
    /// is asked with the lock let go; what departs meanwhile arrives.
    /// @param failed  out: set where the device reports an error
    std::vector<landing> land(std::unique_lock<std::mutex> &lock, bool &failed);

    /// All that nobody will ask for any more.
    std::vector<flight> abandon();

private:
    struct row
    {
        std::deque<flight> queue;
        std::uint64_t expected_ns = 0;
        std::uint64_t last_end_ns = 0;
    };

    // Work whose end nobody would see, all of it on one stream.
    struct unmarked
    {
        CUstream stream = nullptr;
        CUevent event = nullptr; // of the last of it
        unsigned count = 0;
        std::uint64_t expected_ns = 0;
        std::uint64_t since_ns = 0;
    };

    // Whose event a thread is recording, for others that are unmarked.
    struct mark_made
    {
        CUstream stream;
        CUevent event;
    };

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
    std::optional<reach::span> time_alone(const flight &which,
                                          std::uint64_t now,
                                          std::uint64_t slack,
                                          bool is_first) const;

    const driver &calls_;
    std::mutex departing_; // guards the next eight
    bool open_ = false;
    CUcontext context_ = nullptr;
    std::vector<mark_made> being_marked_;
    condition marked_; // one of those is
    unmarked unmarked_;
    // Events that are being recorded: what departs meanwhile gets there before
    // the work that they are behind, and they do not stand for it.
    unsigned marking_ = 0;
    std::vector<mark_made> marks_; // recorded since
    std::vector<std::pair<CUstream, flight>> departed_;
    std::vector<std::pair<CUstream, flight>> arriving_;
    std::vector<mark_made> arriving_marks_;
    std::atomic<bool> any_departed_{false};
    std::atomic<bool> any_unmarked_{false};
    std::atomic<bool> lost_{false}; // some of it, whose end nobody will see
    std::atomic<std::uint64_t> departed_ns_{0};
    std::map<CUstream, row> by_stream_;
    // When work ended last, and how long before that nobody had looked; when
    // somebody looked; and when work was last in flight on two streams.
    std::uint64_t last_end_ns_ = 0;
    std::uint64_t last_end_slack_ns_ = 0;
    std::uint64_t looked_ns_ = 0;
    std::uint64_t crowded_ns_ = 0;
};

} // namespace emuv::cuda

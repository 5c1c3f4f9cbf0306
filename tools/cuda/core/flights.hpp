// SPDX-License-Identifier: LGPL-2.1-or-later
// Work that the device has in hand.
#pragma once

#include "block.hpp"
#include "driver.hpp"
#include "reach.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// A piece of work, followed by an event.
struct flight
{
    CUevent event = nullptr;
    bool vouched = false;
    std::uint64_t step = 0;        ///< of the schedule, from 1; 0 is none
    bool failed = false;           ///< to begin, it seems
    std::uint64_t lag = 0;         ///< see pace
    bool recurs = false;           ///< likewise
    std::uint64_t expected_ns = 0; ///< that it will take the device
    std::uint64_t begun_ns = 0;    ///< between these two
    std::uint64_t handed_over_ns = 0;
    bool waited_for = false;     ///< in vain: perhaps it waits for the program
    std::vector<touched> blocks; ///< that it was given
};

/// All of it, by stream. Whoever uses it locks, but for what says otherwise.
class flights
{
public:
    /// Pieces of work of a stream: each question takes a lock of the driver's
    /// that launching takes.
    static constexpr std::size_t asked_at_once = 64;

    /// Work that has ended.
    struct landing
    {
        flight which;
        bool is_first = false; ///< of those of its stream that ended together
        /// Since what was before it in its stream, or since it was handed
        /// over. What is seen to end together has it together.
        std::uint64_t busy_ns = 0;
        /// How long it had the device for itself, where it had.
        std::optional<reach::span> took;
    };

    /// @param calls  outlives this object
    explicit flights(const driver &calls) : calls_(calls) {}
    flights(const flights &) = delete;
    flights &operator=(const flights &) = delete;

    /// From here on work may depart, until close().
    void open();
    void close();

    /// Hands over work whose event has been recorded on a stream. Needs no lock
    /// of the caller's, for which a launch might have to wait.
    /// @return false, and nothing has been taken, while it is closed
    bool depart(CUstream stream, flight &&begun);

    /// Whether anything has departed and not arrived, and how long that is
    /// expected to take the device. Likewise.
    bool any_departed() const { return any_departed_.load(); }
    std::uint64_t departed_ns() const { return departed_ns_.load(); }

    /// Takes over what has departed: all else here is about what has arrived.
    void arrive();

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
    void add(CUstream stream, flight &&begun);
    std::optional<reach::span> time_alone(const flight &which,
                                          std::uint64_t now,
                                          std::uint64_t slack,
                                          bool is_first) const;

    const driver &calls_;
    struct row
    {
        std::deque<flight> queue;
        std::uint64_t expected_ns = 0;
        std::uint64_t last_end_ns = 0;
    };
    std::mutex departing_; // guards the first two
    bool open_ = false;
    std::vector<std::pair<CUstream, flight>> departed_;
    std::vector<std::pair<CUstream, flight>> arriving_;
    std::atomic<bool> any_departed_{false};
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

// SPDX-License-Identifier: LGPL-2.1-or-later
// Work that the device has in hand.
#pragma once

#include "block.hpp"
#include "driver.hpp"
#include "reach.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace emuv::cuda {

/// A piece of work, followed by an event.
struct flight
{
    /// A block that it was given.
    struct held
    {
        block_ref of;
        std::uint64_t work = 0;   ///< which, and of which block: see reach
        std::uint64_t beyond = 0; ///< bytes in system RAM it was not given
        bool complete = false;    ///< what it is taken to reach is in VRAM
    };

    CUevent event = nullptr;
    bool vouched = false;
    std::uint64_t step = 0;     ///< of the schedule, from 1; 0 is none
    bool failed = false;        ///< to begin, it seems
    std::uint64_t lag = 0;      ///< see pace
    std::uint64_t begun_ns = 0; ///< between these two
    std::uint64_t handed_over_ns = 0;
    bool outlasts = false; ///< whoever waited for it, in vain
    std::vector<held> blocks;
};

/// All of it, by stream. Whoever uses it locks.
class flights
{
public:
    /// Work that has ended.
    struct landing
    {
        flight which;
        bool is_first = false; ///< of those of its stream that ended together
        /// How long it had the device for itself, where it had.
        std::optional<reach::span> took;
    };

    /// @param calls  outlives this object
    explicit flights(const driver &calls) : calls_(calls) {}
    flights(const flights &) = delete;
    flights &operator=(const flights &) = delete;

    bool empty() const { return by_stream_.empty(); }

    /// Work whose event has been recorded on a stream.
    void add(CUstream stream, flight &&begun);

    /// The first step to end of a stream's, as far as is known; null where
    /// there is none. Until the lock is let go.
    flight *oldest_step(CUstream stream);

    /// What has ended since the last time, in each stream's order. The driver
    /// is asked with the lock let go.
    /// @param failed  out: set where the device reports an error
    std::vector<landing> land(std::unique_lock<std::mutex> &lock, bool &failed);

    /// All that nobody will ask for any more.
    std::vector<flight> abandon();

private:
    std::optional<reach::span> time_alone(const flight &which,
                                          std::uint64_t now,
                                          std::uint64_t slack,
                                          bool is_first) const;

    const driver &calls_;
    std::map<CUstream, std::deque<flight>> by_stream_;
    // When work ended last, and how long before that nobody had looked; when
    // somebody looked; and when work was last in flight on two streams.
    std::uint64_t last_end_ns_ = 0;
    std::uint64_t last_end_slack_ns_ = 0;
    std::uint64_t looked_ns_ = 0;
    std::uint64_t crowded_ns_ = 0;
};

} // namespace emuv::cuda

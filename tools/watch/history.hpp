// SPDX-License-Identifier: GPL-2.0-or-later
// The last samples, and the rates and graphs that come from them.
#pragma once

#include "sample.hpp"

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace emuvctl::watch {

/// An instance, or one of its clients.
struct holder
{
    int instance = -1;
    std::uint64_t client = 0; ///< 0: the whole instance

    auto operator<=>(const holder &) const = default;
};

/// Per second, between the last two samples.
struct rates
{
    double fetched = 0; ///< bytes
    double evicted = 0; ///< bytes
    double spills = 0;
    double faults = 0;
    double stalled = 0; ///< seconds; several waits at a time add up
};

/// An instance at a time, for graphs.
struct point
{
    double at = 0; ///< seconds
    double vram = 0;
    double ram = 0;
    double fetched = 0; ///< bytes a second
    double evicted = 0; ///< bytes a second
};

/// Keeps samples as they come, as much of them as is shown.
class history
{
public:
    static constexpr std::size_t most_points = 512;

    /// Takes the next sample. An instance that was made anew under an old
    /// number starts again.
    void add(sample next);

    /// The last sample; null before the first.
    [[nodiscard]] const sample *last() const
    {
        return last_ ? &*last_ : nullptr;
    }
    /// nullopt until there are two samples of it.
    [[nodiscard]] std::optional<rates> rates_of(holder of) const;
    /// The part of the bytes given to work that was in VRAM, 0 to 1. It is of
    /// the time between the last two samples, or of all time where work was
    /// given none since. nullopt if it never was.
    [[nodiscard]] std::optional<double> hits_of(holder of) const;
    /// An instance's points, the oldest first.
    [[nodiscard]] const std::deque<point> &points_of(int instance) const;
    /// The seconds until all that an instance may hold is held, where its
    /// growth fits a line.
    [[nodiscard]] std::optional<double> seconds_until_full(int instance) const;

private:
    struct track
    {
        emuv::counters now;
        std::optional<emuv::counters> before = {};
        double seconds = 0; // between them
        double at = 0;
    };
    struct instance_track
    {
        std::string uuid;
        double limit = 0; // bytes, VRAM and RAM
        std::deque<point> points = {};
    };

    void follow(holder who, const emuv::counters &counts, double at);
    void forget_the_gone();
    void forget(int instance);

    std::optional<sample> last_;
    std::map<holder, track> tracks_;
    std::map<int, instance_track> instances_;
};

} // namespace emuvctl::watch

// SPDX-License-Identifier: GPL-2.0-or-later
// Values over time, in a bounded number of equal parts of it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace emuv::report {

/// Tracks of values on one axis of time, which grows in either direction as
/// values come. Once it has too many parts, each two of them become one. So the
/// memory that it takes does not depend on how much is added.
class timeline
{
public:
    static constexpr std::size_t parts = 512;

    /// How the values of a track are to be taken.
    enum class kind
    {
        level,  ///< holds until the next one; a part shows the highest
        amount, ///< adds up
    };

    /// @return the new track's number
    std::size_t add_track(kind as);
    [[nodiscard]] std::size_t tracks() const { return tracks_.size(); }

    /// A level holds from a moment on. @param at  seconds, finite
    void level(std::size_t which, double at, double value);
    /// An amount is spread evenly over a while. @param from, to  seconds,
    /// finite; from <= to
    void amount(std::size_t which, double from, double to, double value);
    /// Time goes on at least to here.
    void reach(double at);

    [[nodiscard]] bool empty() const { return width_ == 0; }
    /// Seconds of the first and the last moment.
    [[nodiscard]] double first() const { return first_; }
    [[nodiscard]] double last() const { return last_; }
    /// Seconds of a part; of all parts from the axis' begin to last().
    [[nodiscard]] double width() const { return width_; }
    [[nodiscard]] double begin() const { return begin_; }

    /// The values of a track, part by part, up to the one that last() is in.
    [[nodiscard]] std::vector<double> values(std::size_t which) const;

private:
    struct part
    {
        double value = 0; // the highest level, or the amount
        double end = 0;   // of a level: the last one
        bool has = false;
    };
    struct track
    {
        kind as;
        std::vector<part> all;
    };

    void fit(double at);
    void halve(std::size_t shift);
    [[nodiscard]] std::size_t place(double at) const;

    std::vector<track> tracks_;
    double begin_ = 0;
    double width_ = 0; // 0: nothing has come
    double first_ = 0;
    double last_ = 0;
};

} // namespace emuv::report

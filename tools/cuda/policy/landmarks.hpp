// SPDX-License-Identifier: LGPL-2.1-or-later
// A program's point in its own past, told by blocks it touches seldom.
#pragma once

#include "policy/history.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// Blocks that a program touches seldom, and the point in the past they tell.
///
/// A text of another length runs other kernels, on activations at other
/// addresses: no step of it was ever seen. But a model's weights come in the
/// same order, with about as much work in between. So the last landmarks are
/// looked for in the past, as far from each other as they are now. Activations
/// that happen to lie idle look like landmarks, too. A landmark earns trust
/// each time it comes when it is due; no other is trusted.
///
/// Steps are counted as in a history, work from the program's beginning.
class landmarks
{
public:
    /// @param past  of all allocations; outlives this object
    explicit landmarks(const histories &past) : past_(past) {}

    /// Work begins that was not expected.
    /// @param work  its number
    void begin(std::uint64_t work)
    {
        work_ = work;
        found_.clear();
    }
    /// The work touches these units: a landmark if nothing has touched it for
    /// long.
    void look_at(history &of, const touch &given)
    {
        if (!of.uses.empty() && work_ - of.noted >= seldom)
            found_.push_back({&of, given, work_ - of.noted});
    }
    /// True if the work touches any landmark.
    bool any() const { return !found_.empty(); }

    /// A point in the past; as_foreseen if it is about where it was due.
    struct point
    {
        std::uint32_t step = no_step;
        bool as_foreseen = false;
    };
    /// The point that the landmarks tell, or no_step.
    /// @param steps  the number of steps in the past
    point tell(std::uint32_t steps);

    /// True if landmarks tell the point. They begin to when several in a row
    /// came unexpected. They stop when as many trusted ones are lost ...
    bool lead() const { return leading_; }
    /// ... or when all work has come as foreseen for a while, without them.
    /// @param foreseen  true if this one did
    void passed(bool foreseen)
    {
        passed_ = foreseen ? passed_ + 1 : 0;
        leading_ = leading_ && passed_ < in_a_row;
    }

    /// True if several in a row came unexpected, and tell no point yet.
    bool are_lost() const { return !is_row_over() && lost_ >= enough_lost; }

    /// True if the last unexpected landmark speaks against a point: the layers
    /// of a model look alike but for their own weights.
    bool deny(std::uint32_t step) const
    {
        return !is_row_over() && lost_ > 0 &&
               seen_before(last_[(noted_ - 1) % max_last], step) == no_step;
    }

    /// The first steps of the past are forgotten.
    void forget(std::uint32_t steps)
    {
        leading_ = leading_ && told_ >= steps;
        told_ -= leading_ ? steps : told_;
    }

private:
    // A landmark that comes now.
    struct landmark
    {
        history *of;
        touch given;
        std::uint64_t idle; // for so much work
    };
    // A landmark that came.
    struct sighting
    {
        touch given;
        std::uint64_t idle;
        std::uint64_t work; // its number
    };

    // Nothing has touched a landmark for so many works. A round of
    // less than four times as many has none.
    static constexpr std::uint64_t seldom = 64;
    static constexpr std::uint64_t min_round = 4 * seldom;
    // Of the last max_last landmarks, so many must have come before a point.
    static constexpr std::uint32_t max_last = 16;
    static constexpr std::uint32_t enough = 5;
    // The distance of two landmarks may grow or shrink by so much work.
    static std::uint64_t slack(std::uint64_t work) { return 8 + work / 4; }
    // A landmark that comes that often may come within the slack by chance.
    static bool is_chance(std::uint64_t idle, std::uint64_t work)
    {
        return 2 * slack(work) > idle / 4;
    }
    // So many lost landmarks are several; so much work ends their row.
    static constexpr std::uint32_t enough_lost = 3;
    static constexpr std::uint64_t in_a_row = 256;
    static constexpr int most_trust = 4;
    // The number of a landmark's uses that are compared with now.
    static constexpr std::uint32_t max_counterparts = 16;

    // True if the last lost one is too long ago for any to count.
    bool is_row_over() const { return work_ - lost_at_ > in_a_row; }
    std::uint32_t seen_before(const sighting &one, std::uint32_t step) const;
    std::uint32_t count_before(std::uint32_t step) const;
    std::uint32_t due(const landmark &one, std::uint32_t steps) const;
    std::uint32_t anywhere(std::uint32_t steps) const;

    const histories &past_;
    std::uint64_t work_ = 0;
    std::vector<landmark> found_;
    std::array<sighting, max_last> last_{};
    std::uint32_t noted_ = 0;   // sightings there ever were
    std::uint32_t lost_ = 0;    // so many works told no point, in a row ...
    std::uint64_t lost_at_ = 0; // ... the last being this one
    std::uint32_t told_ = 0;    // the last point that was told ...
    std::uint64_t told_at_ = 0; // ... by this work
    std::uint64_t passed_ = 0;
    bool leading_ = false;
};

} // namespace emuv::cuda

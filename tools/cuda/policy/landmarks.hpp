// SPDX-License-Identifier: LGPL-2.1-or-later
// Where in its past a program is, by what it touches seldom.
#pragma once

#include "policy/history.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// What a program touches seldom, and the place in the past that it tells.
///
/// A text of another length has other kernels run, on activations that are
/// elsewhere: no step of it was ever seen. But a model's weights come in the
/// same order, with about as much work in between. So the last landmarks are
/// looked for in the past, as far from each other as they are now. Activations
/// that happen to lie idle look like landmarks, too; those that come where they
/// were to come are trusted by and by, and no others.
///
/// Steps of the past are counted as in a history, work from its beginning.
class landmarks
{
public:
    /// @param past  of all allocations; outlives this object
    explicit landmarks(const histories &past) : past_(past) {}

    /// A piece of work begins that is not the one to come.
    /// @param work  the how manieth
    void begin(std::uint64_t work)
    {
        work_ = work;
        found_.clear();
    }
    /// It touches this, which is a landmark if nothing has for long.
    void look_at(history &of, const touch &part)
    {
        if (!of.uses.empty() && work_ - of.noted >= seldom)
            found_.push_back({&of, part, work_ - of.noted});
    }
    /// Whether it touches any landmark.
    bool any() const { return !found_.empty(); }

    /// A place in the past, and whether it is about where it was to be.
    struct place
    {
        std::uint32_t step = no_step;
        bool as_foreseen = false;
    };
    /// The place that they tell, if so.
    /// @param steps  how many there are in the past
    place tell(std::uint32_t steps);

    /// Whether it is they that tell the place. That begins when several in a
    /// row were not to come, and ends when as many trusted ones are lost ...
    bool lead() const { return leading_; }
    /// ... or all has come as foreseen for a while, without them: @p foreseen,
    /// or not.
    void passed(bool foreseen)
    {
        passed_ = foreseen ? passed_ + 1 : 0;
        leading_ = leading_ && passed_ < in_a_row;
    }

    /// Whether several in a row were not to come, and tell no place yet.
    bool are_lost() const { return !is_row_over() && lost_ >= enough_lost; }

    /// Whether the last that was not to come says that a place is another one:
    /// the layers of a model look alike but for what they alone have.
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
    // One that comes now.
    struct landmark
    {
        history *of;
        touch part;
        std::uint64_t idle; // for so much work
    };
    // One that came.
    struct sighting
    {
        touch part;
        std::uint64_t idle;
        std::uint64_t work; // the how manieth
    };

    // In so many pieces of work nothing has touched a landmark; and no round of
    // less than four times as many has any.
    static constexpr std::uint64_t seldom = 64;
    static constexpr std::uint64_t min_round = 4 * seldom;
    // So many of the last must have come before a place, to be it.
    static constexpr std::uint32_t max_last = 16;
    static constexpr std::uint32_t enough = 5;
    // Between two of them there may be so much more, or less, than before.
    static std::uint64_t slack(std::uint64_t work) { return 8 + work / 4; }
    // What comes that often may come within it by chance.
    static bool is_chance(std::uint64_t idle, std::uint64_t work)
    {
        return 2 * slack(work) > idle / 4;
    }
    // How many lost ones are several, and how much work makes them no row.
    static constexpr std::uint32_t enough_lost = 3;
    static constexpr std::uint64_t in_a_row = 256;
    static constexpr int most_trust = 4;
    // How many uses of one may be the one that looks like now.
    static constexpr std::uint32_t max_counterparts = 16;

    // Whether the last lost one is too long ago for any to count.
    bool is_row_over() const { return work_ - lost_at_ > in_a_row; }
    std::uint32_t seen_before(const sighting &one, std::uint32_t step) const;
    std::uint32_t count_before(std::uint32_t step) const;
    std::uint32_t due(const landmark &one, std::uint32_t steps) const;
    std::uint32_t anywhere(std::uint32_t steps) const;

    const histories &past_;
    std::uint64_t work_ = 0;
    std::vector<landmark> found_;
    std::array<sighting, max_last> last_{};
    std::uint32_t noted_ = 0;   // so many of those there ever were
    std::uint32_t lost_ = 0;    // so many works told no place, in a row ...
    std::uint64_t lost_at_ = 0; // ... the last being this one
    std::uint32_t told_ = 0;    // the last place that was told ...
    std::uint64_t told_at_ = 0; // ... by this work
    std::uint64_t passed_ = 0;
    bool leading_ = false;
};

} // namespace emuv::cuda

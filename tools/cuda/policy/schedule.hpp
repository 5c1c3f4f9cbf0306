// SPDX-License-Identifier: LGPL-2.1-or-later
// What a program will touch next, from what it did before.
#pragma once

#include "policy/history.hpp"
#include "policy/landmarks.hpp"
#include "policy/recent.hpp"

#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// Whether rounds of so many steps are of one kind: a step too many or too few
/// makes no other.
inline bool same_round(std::uint64_t steps, std::uint64_t other)
{
    return (steps > other ? steps - other : other - steps) <= other / 16;
}

/// Whether one is so many of the other, up to eight: what looks like now may
/// lie several rounds back as well.
bool same_kind_of_round(std::uint64_t steps, std::uint64_t other);

/// The history of a program's work, and the place in it that looks like now.
///
/// Programs of this kind repeat themselves: training steps, tokens, layers. So
/// the next step is taken to be the one that followed the last time the same
/// few steps came in the same order. Several shapes that take turns are found
/// again at their first steps; a step too many or too few is stepped over, and
/// one that was never seen before says nothing about the place.
///
/// Where no step comes again landmarks tell the place. What comes between two
/// of them is then taken to be what came there before. Nothing rests on a
/// prediction but time.
class schedule
{
public:
    static constexpr std::uint64_t never = UINT64_MAX;

    schedule() = default;
    schedule(const schedule &) = delete;
    schedule &operator=(const schedule &) = delete;

    /// One piece of work that touches something.
    /// @param what  tells it from others: what runs, and on which addresses
    /// @return whether it was the one to come
    bool note(std::uint64_t what, const touch *touches, std::size_t count);

    /// What was touched there is gone, and comes no more under that name.
    void forget(std::uint64_t base)
    {
        blocks_.erase(base);
        recent_.forget(base);
    }

    /// Whether there is a place in the past that looks like now, and of late
    /// at most half of the steps were others than those to come: where there
    /// are few kinds of steps, some place always looks like now. Of landmarks,
    /// which much looks like that is none, three quarters.
    bool predicts() const
    {
        return following_ &&
               doubt_ <= max_doubt / 4 * (landmarks_.lead() ? 3 : 2);
    }

    /// How many steps ago what looks like now was; 0 when nothing does.
    std::uint64_t lag() const
    {
        return predicts() ? steps_.size() - 1 - cursor_ : 0;
    }

    /// How many steps from now until the unit is touched, 1 being the next
    /// step; never, when nothing says that it will be.
    std::uint64_t next_use(std::uint64_t base, std::uint32_t unit) const;

    /// What next_use() found for a unit, so that it need not look again at
    /// every step.
    struct memo
    {
        std::uint64_t place = UINT64_MAX; // in which history
        std::uint32_t until = 0;          // holds up to this step ...
        bool touched = false;             // ... at which the unit is touched
        std::uint32_t gap = 0;            // steps from its last use to that one
    };
    std::uint64_t next_use(std::uint64_t base, std::uint32_t unit,
                           memo &known) const
    {
        if (!following_)
            return never;
        // Between jumps the cursor only goes forward.
        if (known.place != place_ || cursor_ >= known.until)
            look_again(base, unit, known);
        return known.touched ? known.until - cursor_ : never;
    }

    /// The uses of a block from now to the end of the round, which is lag()
    /// steps long.
    /// @param tell  called with the step, counted as steps() does, and what is
    ///   touched; in order
    template <typename Tell>
    void uses(std::uint64_t base, Tell tell) const
    {
        const auto found = blocks_.find(base);
        if (!following_ || found == blocks_.end())
            return;
        const history &of = found->second;
        for (auto each = of.after(cursor_); each != of.uses.end(); ++each)
            tell(forgotten_ + each->step,
                 touch{base, each->first, each->last, each->anew});
    }

    /// Whether rounds vary: it is landmarks that tell the place.
    bool varies() const { return landmarks_.lead() && predicts(); }

    /// Steps there ever were, and how often the one that came was not the one
    /// to come.
    std::uint64_t steps() const { return forgotten_ + steps_.size(); }
    std::uint64_t surprises() const { return surprises_; }

    /// Bytes of memory this takes, roughly.
    std::uint64_t footprint() const;

private:
    // How many steps must agree before the past is taken for the present.
    static constexpr std::uint32_t context_steps = 6;
    // How far a step is looked for that did not come where it was to come.
    static constexpr std::uint32_t resync_steps = 48;
    static constexpr std::uint32_t max_strays = 16;
    // How many steps late ones are, roughly, and what doubt is where all of
    // them were surprises.
    static constexpr std::uint32_t late_steps = 64;
    static constexpr std::uint32_t max_doubt = 1u << 16;
    // How long nothing known of a unit stays nothing: uses are added meanwhile.
    static constexpr std::uint32_t recheck_steps = 32;
    static constexpr std::uint32_t max_steps = 1u << 22;
    // How many steps may wait to be found again: as long as all come as
    // foreseen, nobody asks.
    static constexpr std::uint32_t max_unremembered = 4096;

    std::uint32_t since_last_use(std::uint64_t base, std::uint32_t unit) const;
    void look_again(std::uint64_t base, std::uint32_t unit, memo &known) const;
    std::uint64_t context_at(std::uint32_t step) const;
    bool is_new(std::uint64_t what);
    void look_up();
    void step_aside();
    std::uint32_t look_ahead(std::uint64_t what) const;
    void came(bool expected);
    void go_on(std::uint32_t next, bool expected);
    void log_before(const touch *touches, std::size_t count);
    void remember_contexts(std::uint32_t end);
    // A step's last bit says whether it told the place, as a landmark.
    static bool same(std::uint64_t step, std::uint64_t other)
    {
        return (step | 1) == (other | 1);
    }
    static history::use use_at(std::uint32_t step, const touch &of);
    history &history_of(std::uint64_t base);
    void forget_half();

    std::vector<std::uint64_t> steps_;
    std::uint64_t forgotten_ = 0; // before those
    histories blocks_;
    recent<history, 512, std::uint64_t{2} << 20> recent_; // of those
    std::vector<std::uint64_t> seen_; // by hash; 0 where there is none
    std::size_t seen_count_ = 0;
    std::vector<std::uint32_t> contexts_; // by hash: the step, + 1, or 0
    std::uint32_t remembered_ = 0;        // those of the steps before it
    std::uint32_t cursor_ = 0;            // the past's counterpart of now
    std::uint32_t strays_ = 0;
    std::uint32_t doubt_ = 0;
    std::uint64_t surprises_ = 0;
    std::uint64_t notes_ = 0; // calls of note()
    landmarks landmarks_{blocks_};
    std::uint64_t place_ = 0; // counts the cursor's jumps
    bool following_ = false;
};

} // namespace emuv::cuda

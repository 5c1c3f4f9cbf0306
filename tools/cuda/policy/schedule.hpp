// SPDX-License-Identifier: LGPL-2.1-or-later
// A program's next touches, predicted from its past.
#pragma once

#include "policy/history.hpp"
#include "policy/landmarks.hpp"
#include "policy/recent.hpp"

#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// True if rounds of so many steps are alike: a step too many or too few makes
/// no other round.
inline bool same_round(std::uint64_t steps, std::uint64_t other)
{
    return (steps > other ? steps - other : other - steps) <= other / 16;
}

/// True if one is a multiple of the other, up to eight times: the point that
/// looks like now may lie several rounds back.
bool same_kind_of_round(std::uint64_t steps, std::uint64_t other);

/// The history of a program's work, and the point in it that looks like now.
///
/// Programs of this kind repeat themselves: training steps, tokens, layers. So
/// the next step is taken to be the one that followed the last time the same
/// few steps came in the same order. Several shapes that take turns are found
/// again at their first steps. A step too many or too few is stepped over. One
/// that was never seen before says nothing about the point.
///
/// If no step comes again, landmarks tell the point. The work between two of
/// them is then predicted from the work between them before. A wrong prediction
/// costs time, and nothing else.
class schedule
{
public:
    static constexpr std::uint64_t never = UINT64_MAX;

    schedule() = default;
    schedule(const schedule &) = delete;
    schedule &operator=(const schedule &) = delete;

    /// One work that touches something.
    /// @param what  identifies the work: its kernel and its addresses
    /// @return true if it was expected
    bool note(std::uint64_t what, const touch *touches, std::size_t count);

    /// The memory there was freed, and comes no more under that address.
    void forget(std::uint64_t base)
    {
        blocks_.erase(base);
        recent_.forget(base);
    }

    /// True if a point in the past looks like now, and at most half of the late
    /// steps were surprises. With few kinds of steps some point always looks
    /// like now. Landmarks are noisier: up to three quarters may be surprises.
    bool predicts() const
    {
        return following_ &&
               doubt_ <= max_doubt / 4 * (landmarks_.lead() ? 3 : 2);
    }

    /// How many steps back the point lies that looks like now; 0 if none does.
    std::uint64_t lag() const
    {
        return predicts() ? steps_.size() - 1 - cursor_ : 0;
    }

    /// True if the last so many steps use the memory that those before them
    /// used, in the same order, but for one unit in sixteen.
    bool repeats(std::uint64_t round) const;

    /// Steps from now until the unit is touched, 1 for the next step; never, if
    /// no touch is predicted.
    std::uint64_t next_use(std::uint64_t base, std::uint32_t unit) const;

    /// The result of next_use() for a unit, kept so that it need not look again
    /// at every step.
    struct memo
    {
        std::uint64_t jumps = UINT64_MAX; // as of this jump of the cursor
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
        if (known.jumps != jumps_ || cursor_ >= known.until)
            look_again(base, unit, known);
        return known.touched ? known.until - cursor_ : never;
    }

    /// The uses of a block from now to the end of the round, which is lag()
    /// steps long.
    /// @param tell  called with the step, counted as steps() does, and the
    ///   touch; in order
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

    /// True if rounds vary: landmarks tell the point.
    bool varies() const { return landmarks_.lead() && predicts(); }

    /// All steps there ever were, and the number of them that were not
    /// expected.
    std::uint64_t steps() const { return forgotten_ + steps_.size(); }
    std::uint64_t surprises() const { return surprises_; }

    /// Bytes of memory this takes, roughly.
    std::uint64_t footprint() const;

private:
    // So many steps must agree before the past is taken for the present.
    static constexpr std::uint32_t context_steps = 6;
    // So far ahead in the past an unexpected step is looked for.
    static constexpr std::uint32_t resync_steps = 48;
    static constexpr std::uint32_t max_strays = 16;
    // The number of late steps, roughly, and the doubt if all of them were
    // surprises.
    static constexpr std::uint32_t late_steps = 64;
    static constexpr std::uint32_t max_doubt = 1u << 16;
    // So many steps until an unpredicted unit is looked up again: uses are
    // added meanwhile.
    static constexpr std::uint32_t recheck_steps = 32;
    static constexpr std::uint32_t max_steps = 1u << 22;
    // So many steps may wait until look_up() can find them: as long as all come
    // as foreseen, nobody asks.
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
    void look_for_landmarks(const touch *touches, std::size_t count);
    void log_before(const touch *touches, std::size_t count);
    void remember_contexts(std::uint32_t end);
    // A step's last bit is set if it told the point, as a landmark.
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
    std::vector<std::uint64_t> seen_; // by hash; 0: an empty bucket
    std::size_t seen_count_ = 0;
    std::vector<std::uint32_t> contexts_; // by hash: the step, + 1, or 0
    std::uint32_t remembered_ = 0;        // those of the steps before it
    std::uint32_t cursor_ = 0;            // the past's counterpart of now
    std::uint32_t strays_ = 0;
    std::uint32_t doubt_ = 0;
    std::uint64_t surprises_ = 0;
    std::uint64_t notes_ = 0; // calls of note()
    landmarks landmarks_{blocks_};
    std::uint64_t jumps_ = 0; // the cursor's
    bool following_ = false;
};

} // namespace emuv::cuda

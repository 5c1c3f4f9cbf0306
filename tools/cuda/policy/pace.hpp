// SPDX-License-Identifier: LGPL-2.1-or-later
// The test that tells if a program is faster while its memory moves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace emuv::cuda {

/// Compares how long a program's rounds take in three modes, and chooses one.
/// Memory stands still at the places it came to; or it moves; or it is arranged
/// once, and then stands still.
///
/// A round is as many steps as lie between now and the point in the past that
/// looks like now. Rounds of one kind follow each other; when the past is lost
/// or lies elsewhere, another kind begins. Each kind is measured moving first.
/// Then it stands still for a few rounds, of which the first does not count.
/// They are cut short once one has taken much longer than moving did. If a
/// round takes as long later, its kind is measured again. Each time that
/// standing still has lost, twice as many rounds pass until it is tried again:
/// where rounds vary, other kinds begin often. Arranging is tried last, and
/// only if standing still was not much slower than moving: the same bytes cross
/// the link, at better times.
class pace
{
public:
    /// @param always  memory moves, whatever it costs
    explicit pace(bool always) : always_(always) {}

    /// A step has ended.
    /// @param lag  how many steps ago the same was done; 0 when unknown
    /// @param longest_ns  what a round that moves memory is presumed to take,
    ///   at most. A round that takes longer standing still shows that memory
    ///   should move, until it is known what moving does take
    /// @param recurs  true if the round's memory comes again as well
    ///   (recurrence). Any layer of a model will do to compare times by, but
    ///   memory arranged for one layer is of no use to the next
    void ended(std::uint64_t lag, std::uint64_t now_ns,
               std::uint64_t longest_ns, bool recurs);

    /// The program did nothing for so long, of its own accord.
    void paused(std::uint64_t ns) { start_ns_ += ns; }

    /// This round is not typical: rooms are being made, or
    /// memory arranged, and both happen once.
    void disturb() { disturbed_ = true; }

    /// True if memory should move.
    bool moves() const { return is_ == mode::moving; }

    /// True if memory should be arranged, and then stand still.
    bool arranges() const { return is_ == mode::arranged; }

    /// True in the first round in which memory stands still to be measured, and
    /// in the first in which it moves again. Work may be very slow over the
    /// link in both.
    bool has_just_changed() const
    {
        return moves() ? moves_again_ : state_ == state::still && skip_ > 0;
    }

private:
    // Rounds that are measured moving, without and with disturbances.
    static constexpr std::size_t trial_rounds = 8;
    static constexpr unsigned disturbed_rounds = 24;
    // Rounds that are measured standing still, and again as arranged. That is
    // not tried if standing still takes so many times as long as moving.
    static constexpr std::size_t still_rounds = 3;
    static constexpr unsigned most_doublings = 4;
    static constexpr double worth_arranging = 2;
    // Steps without a whole round, after which memory moves unmeasured.
    static constexpr std::uint64_t blind_steps = 1024;
    static constexpr std::uint64_t blind_rounds = 4;
    // Ends are seen in bunches: shorter rounds are measured several at once.
    static constexpr double shortest_ns = 5e6;

    enum class mode
    {
        still,
        moving,
        arranged, ///< to be, and to stand still then
    };

    enum class state
    {
        trial,    ///< to be measured moving
        still,    ///< to be measured standing still
        arranged, ///< to be measured standing still as arranged
        settled,  ///< known
    };

    void begin(std::uint64_t lag, std::uint64_t now_ns);
    void settle_moving(std::uint64_t now_ns);
    struct past_round
    {
        double step_ns;
        bool disturbed;
        bool recurs; // its memory comes again as well
    };

    // How long a step took, in each of a few rounds.
    class trial_times
    {
    public:
        void add(double step_ns);
        void clear() { count_ = 0; }
        std::size_t count() const { return count_; }

        // The second fastest: rounds that are being learned, or disturbed by
        // other programs, are slow. An end that is seen late makes the next
        // round seem fast.
        double typical() const { return sorted_[count_ > 1 ? 1 : 0]; }

    private:
        std::array<double, trial_rounds> sorted_{};
        std::size_t count_ = 0;
    };

    void measured(const past_round &one);
    bool is_too_slow(double ns, std::uint64_t longest_ns) const;
    bool is_another_kind(std::uint64_t lag) const;
    void begin_kind(std::uint64_t lag);
    void try_next(state next);
    bool is_known(const past_round &one, std::size_t rounds);

    const bool always_;
    mode is_ = mode::moving;
    bool moves_again_ = false; // since this round
    bool disturbed_ = false;
    bool unarranged_ = false; // settled, and that has not been tried
    bool another_ = true;     // rounds of another kind come next
    state state_ = state::trial;
    unsigned skip_ = 0; // rounds that are partly one and partly the other
    trial_times tried_;
    unsigned tried_disturbed_ = 0; // rounds that do not count
    unsigned trials_ = 0;          // of trial_rounds each, moving
    unsigned lost_ = 0;       // so often in a row standing still was slower
    std::uint64_t kind_ = 0;  // the lag of the rounds that state_ is about
    std::uint64_t blind_ = 0; // steps
    double still_ns_ = 0;     // a step
    double moving_ns_ = 0;    // typically
    // The round under way.
    std::uint64_t lag_ = 0;
    std::uint64_t count_ = 0;
    std::uint64_t start_ns_ = 0;
};

} // namespace emuv::cuda

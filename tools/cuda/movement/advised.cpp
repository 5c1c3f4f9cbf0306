// SPDX-License-Identifier: LGPL-2.1-or-later
// The program's advice about its memory, and the moves that come of it.
#include "movement/mover.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

namespace {

// A promoted unit counts as used so often: more than units that are used now
// and then.
constexpr std::uint64_t promoted_uses = 64;

// The units of a subrange: see each_unit(). Frameworks round allocations up, so
// most of a unit is enough for it to leave.
constexpr unsigned any = 1;
constexpr unsigned most = 8;
constexpr unsigned all = 0;

// A look that found no wish to grant is not repeated sooner, unless there is
// another wish.
constexpr std::uint64_t ask_again_ns = 200000;

} // namespace

// The bytes of a unit that lie in a subrange.
std::uint64_t mover::common_bytes(const slot &one, const subrange &in)
{
    return std::min(one.at + one.bytes, in.at + in.bytes) -
           std::max(one.at, in.at);
}

// Calls @p use for units that have bytes in a subrange.
// @param rest  only those with less than one byte in so many outside; 0: none
//   outside at all; 1: however many
template <typename Use>
void mover::each_unit(block &of, const subrange &in, unsigned rest, Use use)
{
    for (std::size_t i = of.unit_at(in.at - of.base);
         i < of.slots.size() && of.slots[i].at < in.at + in.bytes; i++) {
        slot &one = of.slots[i];
        const std::uint64_t outside = one.bytes - common_bytes(one, in);
        if (outside == 0 || (rest > 0 && outside * rest < one.bytes))
            use(one, of.marks[i]);
    }
}

// Replaces the advice about a unit.
void mover::say(block &of, slot &one, const advice &next)
{
    const auto asks = [](const advice &which) {
        return which.asks != advice::wish::none;
    };
    of.told -= one.said.is_pending() ? 1 : 0;
    wishes_ -= asks(one.said) ? 1 : 0;
    one.said = next;
    of.told += one.said.is_pending() ? 1 : 0;
    wishes_ += asks(one.said) ? 1 : 0;
    version_++;
}

// The program wishes that a unit comes, or leaves.
void mover::wish(block &of, slot &one, advice::wish what)
{
    advice next = one.said;
    next.asked = uses_;
    const bool comes = what == advice::wish::come;
    // A motion the other way is called off. One to another room is none.
    const bool stays_away = !comes && one.rehoused;
    if (one.where == (comes ? place::evicting : place::fetching) && !stays_away)
        one.cancel = true;
    const bool there =
        one.where == (comes ? place::vram : place::host) || stays_away;
    next.asks = there ? advice::wish::none : what;
    next.came = comes && there;
    say(of, one, next);
}

bool mover::pin(block &of, const subrange &in)
{
    std::uint64_t more = 0;
    each_unit(of, in, any, [&](const slot &one, const use_mark &) {
        more += one.pins == 0 ? one.bytes : 0;
    });
    if (pinned_bytes_ + more > most_pinned_bytes(limits_.read().physical_bytes))
        return false;
    pinned_bytes_ += more;
    each_unit(of, in, any, [&](slot &one, const use_mark &) {
        one.pins++;
        wish(of, one, advice::wish::come);
        one.said.pinned = true;
    });
    return true;
}

void mover::unpin(block &of, slot &one)
{
    if (one.pins == 0 || --one.pins > 0)
        return;
    pinned_bytes_ -= one.bytes;
    advice next = one.said;
    next.pinned = false;
    next.used();
    say(of, one, next);
}

mover::identified_lot mover::identified(const subrange &of)
{
    block *const found = blocks_.around(of.at);
    if (found == nullptr || found->lot_at(of.at).identity != of.identity)
        return {};
    return {found, &found->lot_at(of.at)};
}

std::uint64_t mover::identify(CUdeviceptr at)
{
    const std::unique_lock lock = enter();
    block *const of = blocks_.around(at);
    return of != nullptr ? of->lot_at(at).identity : 0;
}

mover::answer mover::advise(const subrange &in, hint what)
{
    const std::unique_lock lock = enter();
    const auto [found, which] = identified(in);
    if (found == nullptr)
        return answer::gone;
    block &of = *found;
    if (what == hint::unpin) {
        each_unit(of, in, any,
                  [&](slot &one, const use_mark &) { unpin(of, one); });
        return answer::done;
    }
    // Small blocks come at their first use, and stay. Before movement starts,
    // there is nothing to move.
    const bool lasts = what == hint::pin || what == hint::read_mostly;
    if (of.fixed || of.small || which->vacant || (!lasts && !active()))
        return answer::done;
    // Work that waits at a barrier has not said what it reads.
    if (what == hint::discard && !gated_.empty())
        return answer::done;
    bool done = true;
    const unsigned rest = what == hint::discard ? all
                          : what == hint::demote || what == hint::read_mostly
                              ? most
                              : any;
    if (what == hint::pin)
        done = pin(of, in);
    else
        each_unit(of, in, rest, [&](slot &one, use_mark &mark) {
            switch (what) {
            case hint::promote:
                mark.uses.set(uses_, promoted_uses);
                [[fallthrough]];
            case hint::prefetch:
                wish(of, one, advice::wish::come);
                break;
            case hint::demote:
                mark.uses.set(uses_, 0);
                wish(of, one, advice::wish::leave);
                break;
            case hint::discard:
                any_dead_ = true;
                of.discard(one);
                break;
            case hint::read_mostly:
                one.seldom++;
                one.said.read_mostly = true;
                break;
            default:
                break;
            }
        });
    version_++;
    if (wishes_ > 0) {
        advise_after_ns_ = 0;
        to_look_.notify_all();
    }
    return done ? answer::done : answer::too_much;
}

mover::answer mover::rank(const subrange &in, int priority)
{
    const std::unique_lock lock = enter();
    block *const of = identified(in).of;
    if (of == nullptr)
        return answer::gone;
    each_unit(*of, in, any, [&](slot &one, const use_mark &) {
        one.ranked.add(priority);
        one.said.priority = one.ranked.highest();
    });
    version_++;
    return answer::done;
}

void mover::forget_advice(const subrange &in, const lasting &said)
{
    const std::unique_lock lock = enter();
    block *const of = identified(in).of;
    if (of == nullptr)
        return;
    each_unit(*of, in, any, [&](slot &one, const use_mark &) {
        if (said.pinned)
            unpin(*of, one);
        one.ranked.remove(said.priority);
        one.said.priority = one.ranked.highest();
    });
    if (said.read_mostly)
        each_unit(*of, in, most, [&](slot &one, const use_mark &) {
            one.seldom -= one.seldom > 0 ? 1 : 0;
            one.said.read_mostly = one.seldom > 0;
        });
    version_++;
}

// An allocation in these units is freed. All advice about them is forgotten,
// also that of others that share one: nobody could tell what to take back.
void mover::forget_advice(block &of, const segment &those)
{
    for (std::size_t i = those.first; i < those.end; i++) {
        slot &each = of.slots[i];
        pinned_bytes_ -= each.pins > 0 ? each.bytes : 0;
        each.pins = each.seldom = 0;
        each.ranked.clear();
        if (each.said != advice{})
            say(of, each, {});
    }
}

mover::whereabouts mover::look_at(block &of, const subrange &in)
{
    whereabouts out;
    each_unit(of, in, any, [&](const slot &one, const use_mark &) {
        (!one.in_ram()        ? out.vram_bytes
         : one.host.peer >= 0 ? out.card_bytes
                              : out.ram_bytes) += common_bytes(one, in);
        out.moved += one.moved;
    });
    return out;
}

std::optional<mover::whereabouts> mover::find(const subrange &in)
{
    const std::unique_lock lock = enter();
    block *const of = identified(in).of;
    if (of == nullptr)
        return {};
    return look_at(*of, in);
}

std::optional<mover::whereabouts> mover::access(const subrange &in)
{
    const std::unique_lock lock = enter();
    block *const of = identified(in).of;
    if (of == nullptr)
        return {};
    uses_++;
    // The wish lasts until work uses the unit: that may wait for it.
    each_unit(*of, in, any,
              [&](const slot &, use_mark &mark) { mark.uses.use(uses_); });
    return look_at(*of, in);
}

moves mover::moved()
{
    const std::unique_lock lock = enter();
    return moved_;
}

// Work uses the unit.
void mover::is_used(block &of, slot &one)
{
    if (!one.said.is_pending())
        return;
    advice next = one.said;
    next.used();
    // A pinned unit goes on its way to VRAM.
    if (next.pinned && one.in_ram())
        next.asks = advice::wish::come;
    say(of, one, next);
}

// True if a launch should wait for units that the program has asked for. A
// prediction counts for more: its units are awaited, or not, by the pace.
bool mover::is_asked_for(const touched &which) const
{
    if (which.of->told == 0 || which.of->fixed || schedule_.predicts())
        return false;
    const auto [first, end] = which.units();
    for (std::size_t i = first; i < end; i++) {
        const slot &one = which.of->slots[i];
        if (one.in_ram() && one.said.at(uses_).asks == advice::wish::come)
            return true;
    }
    return false;
}

// A motion has come to its end.
void mover::has_moved(const motion &which)
{
    slot &one = which.unit();
    const moves made{which.evicts ? 0u : 1u, which.evicts ? 1u : 0u,
                     which.copies ? one.bytes : 0, which.wrote ? one.bytes : 0,
                     now_ns() - which.started_ns};
    one.moved += made;
    moved_ += made;
    if (!one.said.is_pending() && !one.said.pinned)
        return;
    advice next = one.said;
    if (which.evicts) {
        if (next.leaves() && frames_.bytes() > 2 * max_free_bytes)
            frames_.drop();
        next.came = false;
        if (next.asks == advice::wish::leave)
            next.asks = advice::wish::none;
        // It had to make way, and comes back as soon as it can.
        if (next.pinned)
            next.asks = advice::wish::come;
    } else if (next.asks == advice::wish::come) {
        next.asks = advice::wish::none;
        next.came = true;
        next.asked = uses_;
    }
    say(*which.of, one, next);
}

// Work may be about to write anywhere: all contents count.
void mover::revive_all()
{
    if (!std::exchange(any_dead_, false))
        return;
    for (const auto &[base, each] : blocks_.all())
        each->revive(each->all());
}

// Forgets wishes that have not come true for long.
void mover::drop_stale_advice()
{
    for (const block_ref &each : large_) {
        if (each->told == 0)
            continue;
        for (slot &one : each->slots) {
            const advice left = one.said.at(uses_);
            if (!one.said.pinned && left != one.said)
                say(*each, one, left);
        }
    }
}

// Begins a motion that the program has asked for, unless launches wait for
// others, or an exchange is under way.
// @return true if there may be more to do at once
bool mover::follow_advice(std::unique_lock<std::mutex> &lock)
{
    if (wishes_ == 0 || waiters_ > 0 || exchange_.at != exchange::none ||
        now_ns() < advise_after_ns_)
        return false;
    look_around();
    if (!look_at_units(lock, true))
        return true;
    if (!may_begin())
        return false;
    const auto wishes = choose(lock, choose_advised);
    if (!wishes)
        return true;
    const std::uint64_t chosen_at = version_;
    for (const intent &each : *wishes) {
        if (carry_out(lock, each)) {
            pace_.disturb(); // that is no step of a round
            return true;
        }
        // A copy failed, and the other choices may be gone meanwhile.
        if (version_ != chosen_at)
            return false;
    }
    drop_stale_advice();
    advise_after_ns_ = now_ns() + ask_again_ns;
    return false;
}

} // namespace emuv::cuda

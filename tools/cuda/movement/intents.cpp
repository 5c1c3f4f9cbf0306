// SPDX-License-Identifier: LGPL-2.1-or-later
// The policy's wishes, carried out as far as the gate lets them.
#include "movement/mover.hpp"

#include <algorithm>

namespace emuv::cuda {

namespace {

// A look that found nothing is not repeated sooner, unless a launch waits.
constexpr std::uint64_t look_again_ns = 100000;

// Exchanges rest so many times as long as one took. Then how long looking for
// them takes, and how long one may be under way.
constexpr std::uint64_t exchange_rests = 20;
constexpr std::uint64_t exchange_look_ns = 10000000;
constexpr std::uint64_t exchange_patience_ns = 200000000;

// After so long without a prediction, units left unmapped are mapped again: a
// third of a millisecond each, for which launches wait.
constexpr std::uint64_t astray_ns = 100000000;

} // namespace

// True if the past shows the way, and following it is worth it.
bool mover::moves_ahead() const
{
    return schedule_.predicts() && pace_.moves();
}

// True if that has been otherwise for a while. A program that does something
// else for a moment comes back to what it did.
bool mover::is_astray()
{
    const std::uint64_t now = now_ns();
    if (moves_ahead())
        led_ns_ = now;
    return now - led_ns_ > astray_ns;
}

// True if motions are at stage @p which.
bool mover::any_at(stage which) const
{
    return std::any_of(
        motions_.begin(), motions_.end(),
        [which](const motion &each) { return each.at == which; });
}

// True if a motion may begin, whichever it is.
bool mover::may_begin() const
{
    return settled_ && gate_.all_trusted() && !gate_.is_closed() &&
           !stopping_ && !gave_up_ && host_bytes_ > 0 && wanted_bytes_ == 0;
}

// Has the policy choose without the lock: launches go on meanwhile.
// @return nothing if blocks have gone, or nothing may begin any more
template <typename Choose>
auto mover::choose(std::unique_lock<std::mutex> &lock, Choose policy)
    -> std::optional<decltype(policy(std::declval<const view &>()))>
{
    const std::uint64_t removals = blocks_.removals();
    lock.unlock();
    auto wishes = policy(seen_);
    lock_soon(lock);
    if (removals != blocks_.removals() || !may_begin())
        return {};
    return wishes;
}

// Begins the motion, unless the view is no longer true of its unit.
bool mover::carry_out(std::unique_lock<std::mutex> &lock, const intent &wish)
{
    const candidate which = seen_unit(wish.unit);
    const bool fetches = wish.what == intent::action::fetch;
    if (must_stay(which) ||
        which.unit().where != (fetches ? place::host : place::vram))
        return false;
    slot *spare = nullptr;
    if (wish.room_of != intent::none) {
        spare = &seen_unit(wish.room_of).unit();
        if (!spare->has_idle_room() || !spare->host.charged)
            return false;
    }
    if (!(fetches ? start_fetch(lock, which) : start_evict(which, spare)))
        return false;
    if (wish.arranges)
        pace_.disturb();
    return true;
}

// Begins the one motion that is most worth it.
// @return true if there may be more to do at once
bool mover::decide(std::unique_lock<std::mutex> &lock)
{
    if (!may_begin() || check_ != nullptr || is_untrusted_near())
        return false;
    if (unmaps_ && gate_.away() > on_file_ &&
        ((is_astray() && !fetches_on_demand()) || is_untrusted_about()) &&
        bring_one_home())
        return true;
    if (follow_advice(lock))
        return true;
    if (!schedule_.predicts() && waiters_ == 0 &&
        !(has_fetched_ && fetches_on_demand()))
        return change_places(lock);
    if (exchange_.at == exchange::leaving ||
        (exchange_.at == exchange::coming &&
         exchange_.in.unit().where != place::fetching))
        end_exchange();
    const std::uint64_t state = version_;
    if (state == decided_ || (waiters_ == 0 && now_ns() < look_again_ns_))
        return false;
    look_around();
    if (allowed_motions(seen_).any()) {
        if (!look_at_units(lock, false))
            return true;
        if (!may_begin())
            return false;
        if (plan_anew(lock))
            return true;
        const auto wishes = choose(lock, choose_motion);
        if (!wishes)
            return true;
        const std::uint64_t chosen_at = version_;
        for (const intent &each : *wishes) {
            if (carry_out(lock, each))
                return true;
            // A copy failed, and the other choices may be gone meanwhile.
            if (version_ != chosen_at)
                return false;
        }
        // A wait is in vain if nothing is on its way or can end, and no work
        // has come in since.
        if (waiters_ > 0 && version_ == state && motions_.empty() &&
            recalls_.empty() && in_flight().empty()) {
            hopeless_ = progress_;
            tell_all();
        }
    }
    note_decided(state);
    return false;
}

// There is nothing to do until the version is another, or some time has passed.
void mover::note_decided(std::uint64_t decided)
{
    // VRAM that is kept for a while comes free without a new version.
    decided_ = seen_.vram.kept_bytes > 0 ? UINT64_MAX : decided;
    look_again_ns_ = now_ns() + look_again_ns;
}

// Plans or arranges anew, if that is due.
bool mover::plan_anew(std::unique_lock<std::mutex> &lock)
{
    if (moves_ahead() && planner_.is_due(schedule_, recurrence_.has_been_seen(),
                                         excess_of_round(seen_))) {
        const std::uint64_t bytes =
            planner_.plan(lock, large_, schedule_, times_, unmaps_);
        if (headroom_.choose(now_ns()))
            planner_.hurry();
        const std::uint64_t now = now_ns();
        trace_.span(trace::row::waits, "planned", now, now, 0, bytes,
                    schedule_.lag());
        version_++;
        return true;
    }
    if (!pace_.arranges() ||
        !arrangement_.is_due(schedule_, excess_at_rest(seen_)))
        return false;
    arrangement_.arrange(lock, large_, schedule_);
    version_++;
    return true;
}

// Without a prediction, a unit in VRAM and a hotter one in system RAM change
// places now and then.
bool mover::change_places(std::unique_lock<std::mutex> &lock)
{
    if (exchange_.at == exchange::none)
        return begin_exchange(lock);
    const candidate &in = exchange_.in;
    if (exchange_.at == exchange::leaving) {
        const place out = exchange_.out.unit().where;
        if (out == place::evicting)
            return false;
        const bool possible = out == place::host && !in.of->fixed &&
                              in.unit().where == place::host;
        // A hot unit is in use often: perhaps at this moment.
        if (possible && in.in_flight() &&
            now_ns() - exchange_.begun_ns < exchange_patience_ns)
            return false;
        if (possible && !in.in_flight()) {
            exchange_.at = exchange::coming;
            if (start_fetch(lock, in))
                return true;
        }
        // VRAM that holds nothing is of no use to anybody.
        frames_.drop();
    } else if (in.unit().where == place::fetching) {
        return false;
    }
    end_exchange();
    return false;
}

// The exchange has taken its time, even if nothing came of it.
void mover::end_exchange()
{
    const std::uint64_t now = now_ns();
    const std::uint64_t took =
        std::min(now - exchange_.begun_ns, exchange_patience_ns);
    exchange_after_ns_ =
        std::max(exchange_after_ns_, now + exchange_rests * took);
    exchange_ = {};
    tell_all();
}

bool mover::begin_exchange(std::unique_lock<std::mutex> &lock)
{
    const std::uint64_t now = now_ns();
    if (now < exchange_after_ns_ || !motions_.empty() || !digests_.any_free())
        return false;
    exchange_after_ns_ = now + exchange_look_ns;
    look_around();
    if (!look_at_units(lock, true) || !may_begin())
        return false;
    const auto wishes = choose(lock, choose_exchanges);
    if (!wishes || schedule_.predicts() || waiters_ > 0)
        return false;
    for (const exchange_intent &each : *wishes) {
        const candidate in = seen_unit(each.in.unit);
        exchange_ = {exchange::coming, {}, in, now};
        const std::uint64_t state = version_;
        if (each.fits && carry_out(lock, each.in))
            return true;
        exchange_ = {};
        if (version_ != state)
            return false;
        // The card may be full before the share is.
        if (each.out.unit == intent::none || !carry_out(lock, each.out))
            continue;
        exchange_ = {exchange::leaving, seen_unit(each.out.unit), in, now};
        return true;
    }
    return false;
}

// A unit that changes places is there in a moment. Work that needs it waits:
// otherwise that work would keep it away for good.
void mover::await_exchange(std::unique_lock<std::mutex> &lock,
                           const std::vector<touched> &all)
{
    const auto comes = [&] {
        return exchange_.at == exchange::coming && !gave_up_ && !stopping_ &&
               exchange_.in.unit().where == place::fetching &&
               !exchange_.in.unit().cancel &&
               std::any_of(all.begin(), all.end(), [&](const touched &each) {
                   return each.of == exchange_.in.of &&
                          each.whole.has(exchange_.in.index);
               });
    };
    if (!comes())
        return;
    const std::uint64_t start = now_ns();
    while (comes() && now_ns() - start < patience_ns)
        changed_.wait_for(lock, 20000000);
    unreported_.stalled_ns += now_ns() - start;
}

// True if the unit need not be mapped in system RAM: no unit of its allocation
// is predicted to be used before it is back. Without predictions, the launch
// that names it fetches it.
bool mover::may_be_away(const motion &which) const
{
    if (!unmaps_ || stopping_ || gave_up_ || is_untrusted_about())
        return false;
    if (fetches_on_demand())
        return true;
    return moves_ahead() &&
           next_use_of(*which.of, which.index) != schedule::never &&
           is_first_of_lot(*which.of, which.index);
}

// True if waiting for VRAM is in vain: too long nothing has come nearer, or
// movement ends.
bool mover::is_in_vain(hope &which)
{
    const std::uint64_t now = now_ns();
    const bool at_rest = in_flight().empty() && motions_.empty();
    if (given_up_ != which.left) {
        which.left = given_up_;
        which.nearer = which.since = now;
    }
    // Until movement has settled, it waits for all earlier work as a whole.
    if (progress_ != which.seen || !settled_) {
        which.seen = progress_;
        which.since = now;
    }
    // Work that ends all the time may never let go of anything.
    return gave_up_ || stopping_ ||
           now - which.since > (at_rest ? patience_ns : 10 * patience_ns) ||
           now - which.nearer > 50 * patience_ns;
}

// Those who sleep in the ledger keep their place there until it is in vain.
void mover::call_off_waits()
{
    if (std::any_of(asleep_.begin(), asleep_.end(),
                    [this](hope *each) { return is_in_vain(*each); }))
        budget_.call_off_waits(device_);
}

bool mover::make_way(std::uint64_t bytes)
{
    std::unique_lock lock = enter();
    if (!active() || bytes > limits_.read().physical_bytes)
        return budget_.charge_free_vram(device_, bytes);
    wanted_bytes_ += bytes;
    hope mine{given_up_, progress_, now_ns(), now_ns()};
    bool charged = false;
    while (!(charged = budget_.charge_free_vram(device_, bytes)) &&
           !is_in_vain(mine)) {
        to_look_.notify_all();
        if (!limits_.can_wait()) {
            changed_.wait_for(lock, 1000000);
            continue;
        }
        // Uncharging wakes us, here or in another process.
        asleep_.push_back(&mine);
        lock.unlock();
        charged = budget_.charge_vram_within(device_, bytes, 50 * patience_ns);
        lock_soon(lock);
        asleep_.erase(std::find(asleep_.begin(), asleep_.end(), &mine));
        if (charged)
            break;
    }
    tell_all();
    wanted_bytes_ -= bytes;
    version_++;
    return charged;
}

// Gives up frames, and evicts as much as is wanted: units needed last go first.
bool mover::give_way(std::unique_lock<std::mutex> &lock)
{
    give_up_buffers();
    const bool dropped = !frames_.empty();
    frames_.drop();
    if (dropped) {
        given_up_++;
        tell_all();
    }
    if (!settled_ || !gate_.all_trusted())
        return dropped;
    look_around();
    if (!must_give_way(seen_) || !look_at_units(lock, false) ||
        wanted_bytes_ == 0)
        return dropped;
    for (const intent &each : choose_to_give_way(seen_))
        return carry_out(lock, each) || dropped;
    return dropped;
}

} // namespace emuv::cuda

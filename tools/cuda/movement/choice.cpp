// SPDX-License-Identifier: LGPL-2.1-or-later
// Which unit moves next, and for which.
#include "movement/mover.hpp"
#include "store/placement.hpp"

#include <algorithm>

namespace emuv::cuda {

namespace {

// What is under way at once. To VRAM: enough that the link has no pause. There,
// but not mapped yet: mapping may lag behind a little. On its way out: what the
// digest is taken of, since that waits for a gap between the program's own
// kernels, and what need not leave yet.
constexpr std::size_t max_motions = 12;
static_assert(max_motions <= digests::max_under_way);
constexpr std::uint64_t max_coming_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_arrived_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_leaving_bytes = std::uint64_t{256} << 20;
// What leaves as planned makes room for whatever is due next, as soon as it has
// left. Other room is taken, and what was to stay leaves, only for what is due
// within so many bytes.
constexpr std::uint64_t max_ahead_bytes = std::uint64_t{256} << 20;
// What nothing is copied for comes in a moment, so no sooner than it is needed,
// nearly: what leaves in its stead may have to come back.
constexpr std::uint64_t max_made_bytes = std::uint64_t{256} << 20;
// Looking for something to do takes time, in much of which launches have to
// wait: they are let in after so many units, which are a microsecond's.
constexpr std::uint64_t look_again_ns = 100000;
constexpr std::size_t let_in_after = 64;
constexpr std::uint64_t min_spare_bytes = std::uint64_t{512} << 20;

// Without a schedule, units change places for what they were used for. One that
// comes has been used so often, lately, and so many times as often as the one
// that leaves. All of that may take a part of the time, and looking for it,
// too.
constexpr std::uint64_t hot_uses = 8;
constexpr std::uint64_t times_as_hot = 2;
constexpr std::uint64_t exchange_part = 20;
constexpr std::uint64_t exchange_look_ns = 10000000;
constexpr std::uint64_t exchange_patience_ns = 200000000;
constexpr std::size_t hottest_units = 16;

// How long the past may show no way until what was left unmapped, since it did,
// is mapped again: a third of a millisecond each, for which launches wait.
constexpr std::uint64_t astray_ns = 100000000;

} // namespace

// Whether the past shows the way, and following it is worth it.
bool mover::moves_ahead() const
{
    return schedule_.predicts() && pace_.moves();
}

// Whether that has been otherwise for a while. A program that does something
// else for a moment comes back to what it did.
bool mover::is_astray()
{
    const std::uint64_t now = now_ns();
    if (moves_ahead())
        led_ns_ = now;
    return now - led_ns_ > astray_ns;
}

std::uint64_t mover::next_use_of(block &of, std::size_t index) const
{
    if (of.slots[index].waiting > 0)
        return 0;
    return schedule_.next_use(of.base, static_cast<std::uint32_t>(index),
                              of.slots[index].next);
}

// Whether no unit of the block is used sooner.
bool mover::is_first_of_block(block &of, std::size_t index) const
{
    const std::uint64_t use = next_use_of(of, index);
    for (std::size_t i = 0; i < of.slots.size(); i++)
        if (next_use_of(of, i) < use)
            return false;
    return true;
}

// What has been fetched for uses up to this one that have not ended.
std::uint64_t mover::ahead_bytes(std::uint64_t next_use) const
{
    std::uint64_t bytes = 0;
    for (const block_ref &each : large_)
        for (std::size_t i = 0; each->fresh > 0 && i < each->slots.size(); i++)
            if (each->slots[i].fresh && each->slots[i].where == place::vram &&
                (each->in_flight > 0 || next_use_of(*each, i) <= next_use))
                bytes += each->slots[i].bytes;
    return bytes;
}

mover::traffic mover::look_at_traffic() const
{
    traffic out;
    for (const motion &each : motions_) {
        const std::uint64_t bytes = each.unit().bytes;
        if (each.evicts) {
            out.evicting++;
            out.leaving_bytes += bytes;
        } else {
            out.fetching++;
            (each.at == stage::fetch ? out.coming_bytes : out.arrived_bytes) +=
                bytes;
        }
    }
    return out;
}

// Whether anything is that far.
bool mover::any_at(stage which) const
{
    return std::any_of(
        motions_.begin(), motions_.end(),
        [which](const motion &each) { return each.at == which; });
}

// Whether a unit is on its way out, as planned or as arranged. Once half its
// gap is over it is on its way back, and no sooner: it would leave again.
bool mover::is_passing(const slot &one, std::uint64_t next_use) const
{
    return next_use > 0 &&
           (pace_.arranges() ? one.stays_away
                             : one.passes() && next_use >= one.next.gap / 2);
}

// Of the units that nothing in flight can touch, that which is needed last.
// @param fits  whether one may be it, by when it is needed
template <typename Fits>
candidate mover::needed_last(Fits fits) const
{
    candidate out;
    for (const block_ref &each : large_) {
        if (!each->is_idle())
            continue;
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const std::uint64_t use = next_use_of(*each, i);
            if ((!out.of || use > out.next_use) && fits(each->slots[i], use))
                out = {each, i, use};
        }
    }
    return out;
}

// Whether there is a frame of that size, or one may be made without any other's
// being given up.
bool mover::may_fit(std::uint64_t bytes, std::uint64_t free_bytes) const
{
    return frames_.has(bytes) ||
           (bytes <= free_bytes && frames_.may_make(bytes));
}

// Launches do not wait for the end of it.
// @param free_bytes  what is left of the share
// @return nothing where there are other blocks meanwhile
std::optional<mover::survey>
mover::look_around(std::unique_lock<std::mutex> &lock, std::uint64_t free_bytes)
{
    survey out;
    const std::uint64_t version = blocks_.version();
    out.ram = look_for_rooms(rooms_.below());
    const bool arranges = pace_.arranges();
    const bool has_way = arranges || pace_.moves();
    // Those found so far. Others hold a block, which would be counted at each.
    struct found
    {
        block *of = nullptr;
        std::size_t index = 0;
        std::uint64_t next_use = 0;
        void name(candidate &as) const
        {
            if (of != nullptr && of->is_idle())
                as = {block_ref(of), index, next_use};
        }
    };
    found wanted{nullptr, 0, schedule::never};
    found fitting{nullptr, 0, schedule::never};
    found hollow{nullptr, 0, schedule::never};
    found passer;
    found victim;
    found newcomer;
    // Where nobody waits for it, what has just been used has the most time to
    // come; of the rest, a program that runs ahead may call off all.
    const auto is_sooner = [&](std::uint64_t use, std::uint64_t than) {
        if (!arranges || use == 0 || than == 0 || than == schedule::never)
            return use < than;
        return use != schedule::never && use > than;
    };
    for (const block_ref &each : awaited_)
        for (std::size_t i = 0; i < each->slots.size(); i++)
            if (each->is_idle() && each->slots[i].where == place::host)
                wanted = {&*each, i, 0};
    std::vector<std::pair<std::uint64_t, std::uint64_t>> made; // use, bytes
    std::size_t looked = 0;                                    // at units
    for (const block_ref &each : large_) {
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            if (looked++ % let_in_after == 0) {
                let_in(lock);
                if (version != blocks_.version())
                    return {};
            }
            const slot &one = each->slots[i];
            out.idle_room_bytes += one.has_idle_room() ? one.bytes : 0;
            if (each->fixed)
                continue;
            const std::uint64_t use = next_use_of(*each, i);
            out.used_bytes += use != schedule::never ? one.bytes : 0;
            out.vram_bytes += one.vram != 0 ? one.bytes : 0;
            out.ram_bytes += one.in_ram() ? one.bytes : 0;
            if (one.is_made())
                made.emplace_back(use, one.bytes);
            if (each->in_flight > 0)
                continue;
            const bool passing = is_passing(one, use);
            const bool may_come =
                one.where == place::host && (!passing || !has_way);
            if (may_come && one.blank && each->vacant && pace_.moves()) {
                if (use < hollow.next_use)
                    hollow = {&*each, i, use};
            } else if (may_come) {
                if (is_sooner(use, wanted.next_use))
                    wanted = {&*each, i, use};
                if (is_sooner(use, fitting.next_use) &&
                    may_fit(one.bytes, free_bytes))
                    fitting = {&*each, i, use};
            }
            if (!out.ram.may_leave(one))
                continue;
            found &leaves = passing                ? passer
                            : one.host.handle != 0 ? victim
                                                   : newcomer;
            if (use > leaves.next_use)
                leaves = {&*each, i, use};
        }
    }
    wanted.name(out.wanted);
    fitting.name(out.fitting);
    hollow.name(out.hollow);
    for (const auto &[use, bytes] : made)
        out.made_bytes += use < hollow.next_use ? bytes : 0;
    passer.name(out.passer);
    victim.name(out.victim);
    newcomer.name(out.newcomer);
    return out;
}

// Starts the one thing that is most worth it.
bool mover::decide(std::unique_lock<std::mutex> &lock)
{
    if (!settled_ || !gate_.all_vouched() || host_bytes_ == 0 ||
        check_ != nullptr)
        return false;
    if (gate_.away() > 0 && is_astray() && bring_one_home())
        return true;
    if (!schedule_.predicts() && waiters_ == 0)
        return change_places(lock);
    if (exchange_.at == exchange::leaving ||
        (exchange_.at == exchange::coming &&
         exchange_.in.unit().where != place::fetching))
        end_exchange();
    // Nothing has changed since there was nothing to do.
    const std::uint64_t state = version_;
    if (state == decided_ || (waiters_ == 0 && now_ns() < look_again_ns_))
        return false;
    const traffic under_way = look_at_traffic();
    const usage share = limits_.read();
    const std::uint64_t part = share.physical_bytes / 8;
    const bool may_map =
        under_way.fetching == 0 ||
        (under_way.fetching < max_motions &&
         under_way.arrived_bytes < std::min(max_arrived_bytes, part));
    const bool may_copy =
        may_map && (under_way.fetching == 0 ||
                    under_way.coming_bytes < std::min(max_coming_bytes, part));
    // While copies come as fast as they can there is nothing to look for else.
    const bool may_make = may_map && vacant_ > 0;
    const bool may_evict =
        under_way.evicting < max_motions && digests_.any_free() &&
        (under_way.leaving_bytes == 0 ||
         under_way.leaving_bytes < std::min(max_leaving_bytes, part));
    if (!may_copy && !may_make && !may_evict) {
        decided_ = state;
        look_again_ns_ = now_ns() + look_again_ns;
        return false;
    }
    const auto seen = look_around(lock, share.physical_free_bytes());
    if (!seen)
        return true;
    // Launches may have come in meanwhile, and all that was asked above be
    // otherwise.
    if (!gate_.all_vouched() || stopping_ || gave_up_ || host_bytes_ == 0 ||
        wanted_bytes_ > 0)
        return false;
    const std::uint64_t chosen_at = version_;
    const survey &units = *seen;
    const bool makes_place = may_make && units.hollow.of &&
                             units.wanted.next_use > 0 &&
                             units.made_bytes < max_made_bytes;
    const candidate &wanted = makes_place ? units.hollow : units.wanted;
    const std::uint64_t arriving =
        under_way.coming_bytes + under_way.arrived_bytes;
    const std::uint64_t vram_bytes =
        units.vram_bytes + frames_.bytes() + arriving;
    const std::uint64_t space =
        vram_bytes -
        std::min(vram_bytes, std::min(headroom_.bytes(), 2 * part));
    const std::uint64_t excess =
        units.used_bytes - std::min(units.used_bytes, space);
    if (moves_ahead() &&
        planner_.is_due(schedule_, recurrence_.has_been_seen(), excess)) {
        const std::uint64_t bytes =
            planner_.plan(lock, large_, schedule_, times_, unmaps_);
        if (headroom_.choose(now_ns()))
            planner_.hurry();
        if (trace_ != nullptr) {
            const std::uint64_t now = now_ns();
            trace_->span(trace::row::waits, "planned", now, now, 0, bytes,
                         schedule_.lag());
        }
        version_++;
        return true;
    }
    if (pace_.arranges()) {
        const std::uint64_t fits =
            frames_.bytes() + arriving + share.physical_free_bytes();
        if (arrangement_.is_due(
                schedule_, units.ram_bytes - std::min(units.ram_bytes, fits))) {
            arrangement_.arrange(lock, large_, schedule_);
            version_++;
            return true;
        }
    }
    if (wanted.of) {
        const std::uint64_t size = wanted.unit().bytes;
        const std::uint64_t room =
            share.physical_free_bytes() + frames_.bytes();
        const auto is_due = [&](const candidate &which) {
            return which.next_use == 0 || !pace_.moves() ||
                   ahead_bytes(which.next_use) + arriving <
                       std::min(max_ahead_bytes, part);
        };
        const bool has_way = waiters_ > 0 || pace_.moves();
        // Frames are made anew, of others, where none of that size comes free
        // as planned, and only for what is due: it takes the driver as long as
        // to fetch the unit.
        const bool fits = may_fit(size, share.physical_free_bytes());
        const auto is_alike = [&](const slot &one, std::uint64_t use) {
            return one.bytes == size && is_passing(one, use) &&
                   units.ram.may_leave(one) &&
                   (pace_.arranges() || (has_way && use > wanted.next_use + 1));
        };
        const candidate alike =
            fits || !may_evict ? candidate() : needed_last(is_alike);
        const bool comes_free = std::any_of(
            motions_.begin(), motions_.end(), [size](const motion &each) {
                return each.evicts && each.unit().bytes == size;
            });
        const bool due = is_due(wanted);
        const bool remakes =
            due && (wanted.next_use == 0 || !(comes_free || alike.of));
        const candidate &next = fits || remakes ? wanted : units.fitting;
        // Standing still, what has come free may be of use all the same.
        const auto is_left_there = [&] {
            return waiters_ == 0 && !pace_.moves() && room < next.unit().bytes;
        };
        // What a launch names of the same block calls off what comes.
        const auto is_in_time = [&] {
            return (&next == &wanted ? due : is_due(next)) ||
                   (frames_.has(next.unit().bytes) &&
                    is_first_of_block(*next.of, next.index));
        };
        const bool may_fetch = may_copy || (makes_place && &next == &wanted);
        if (may_fetch && next.of && !is_left_there() && is_in_time()) {
            if (start_fetch(lock, next)) {
                if (pace_.arranges() && !next.of->small)
                    pace_.disturb();
                return true;
            }
            // Its copy failed, and what was chosen may be gone meanwhile.
            if (version_ != chosen_at)
                return false;
        }
        // Room for one more unit is slow to make and takes memory. As much
        // again as lies there is enough to take turns with, and what stays away
        // for clearly longer is worth it: sooner or later everything that
        // leaves has just been used. Where another's room is at hand that is
        // taken, and worth it if nothing is lost with it: else two would take
        // turns to rob each other, and be written back each time.
        const auto worth_a_room = [&](std::uint64_t bytes) {
            const slot *const other = spare_room(bytes);
            return other != nullptr
                       ? !other->digested
                       : units.idle_room_bytes < host_bytes_ + min_spare_bytes;
        };
        const bool grows =
            units.newcomer.of &&
            units.newcomer.next_use / 8 * 7 >= units.victim.next_use &&
            worth_a_room(units.newcomer.unit().bytes);
        const candidate &last =
            grows || !units.victim.of ? units.newcomer : units.victim;
        // What stays in VRAM leaves only where nothing else can, and where the
        // link would rest meanwhile: it has to come back.
        const bool as_planned = static_cast<bool>(units.passer.of);
        const candidate &leaves = alike.of && !comes_free ? alike
                                  : as_planned            ? units.passer
                                                          : last;
        const bool short_of_frames =
            room < size && due &&
            under_way.coming_bytes + under_way.leaving_bytes <=
                usual_unit_bytes;
        // Where it is arranged, nobody waits for what comes.
        const bool arranges = pace_.arranges() && as_planned;
        const bool worth_it =
            arranges || (has_way && leaves.next_use > wanted.next_use + 1 &&
                         (as_planned || leaves.next_use == schedule::never ||
                          short_of_frames));
        if (may_evict && leaves.of && worth_it && start_evict(leaves)) {
            if (arranges)
                pace_.disturb();
            return true;
        }
    }
    decided_ = state;
    look_again_ns_ = now_ns() + look_again_ns;
    // Who waits, waits in vain if nothing is on its way or can end, and nobody
    // has come in since.
    if (waiters_ > 0 && version_ == state && motions_.empty() &&
        in_flight().empty()) {
        hopeless_ = progress_;
        changed_.notify_all();
    }
    return false;
}

// Where nobody can tell what comes next, what is used more often belongs into
// VRAM: now and then a unit there and one in system RAM change places.
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
        // What is used often is in use now and then: just now, perhaps.
        if (possible && in.of->in_flight > 0 &&
            now_ns() - exchange_.begun_ns < exchange_patience_ns)
            return false;
        if (possible && in.of->in_flight == 0) {
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

// Whether it came to anything or not, it has taken its time.
void mover::end_exchange()
{
    const std::uint64_t now = now_ns();
    const std::uint64_t took =
        std::min(now - exchange_.begun_ns, exchange_patience_ns);
    exchange_after_ns_ =
        std::max(exchange_after_ns_, now + exchange_part * took);
    exchange_ = {};
    changed_.notify_all();
}

bool mover::begin_exchange(std::unique_lock<std::mutex> &lock)
{
    const std::uint64_t now = now_ns();
    if (now < exchange_after_ns_ || !motions_.empty() || !digests_.any_free())
        return false;
    exchange_after_ns_ = now + exchange_look_ns;
    struct unit_heat
    {
        candidate which;
        std::uint64_t uses;
    };
    std::vector<unit_heat> hot;
    for (const block_ref &each : large_)
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const slot &one = each->slots[i];
            const std::uint64_t uses = each->marks[i].uses.at(uses_);
            if (each->is_idle() && one.where == place::host &&
                uses >= hot_uses * heat::one_use)
                hot.push_back({{each, i, 0}, uses});
        }
    std::sort(
        hot.begin(), hot.end(),
        [](const unit_heat &a, const unit_heat &b) { return a.uses > b.uses; });
    hot.resize(std::min(hot.size(), hottest_units));
    const std::uint64_t space =
        limits_.read().physical_free_bytes() + frames_.bytes();
    leeway ram = look_for_rooms(rooms_.below());
    if (idle_room_bytes() >= host_bytes_ + min_spare_bytes)
        ram = look_for_rooms(0); // that is enough: no more is made
    for (const unit_heat &each : hot) {
        exchange_ = {exchange::coming, {}, each.which, now};
        const std::uint64_t wanted = each.which.unit().bytes;
        const std::uint64_t state = version_;
        if (space >= wanted && start_fetch(lock, each.which))
            return true;
        exchange_ = {};
        if (version_ != state)
            return false;
        // The card may be full before the share is.
        candidate out;
        std::uint64_t coldest = each.uses / times_as_hot;
        for (const block_ref &of : large_)
            for (std::size_t i = 0; i < of->slots.size(); i++) {
                const slot &one = of->slots[i];
                const std::uint64_t uses = of->marks[i].uses.at(uses_);
                if (of->is_idle() && ram.may_leave(one) &&
                    one.bytes + space >= wanted && uses < coldest) {
                    coldest = uses;
                    out = {of, i, schedule::never};
                }
            }
        if (out.of && start_evict(out)) {
            exchange_ = {exchange::leaving, out, each.which, now};
            return true;
        }
    }
    return false;
}

// What changes places is there in a moment: work that needs it waits, where it
// would keep it away for good otherwise.
void mover::await_exchange(std::unique_lock<std::mutex> &lock,
                           const std::vector<touched> &all)
{
    const auto comes = [&] {
        return exchange_.at == exchange::coming && !gave_up_ && !stopping_ &&
               exchange_.in.unit().where == place::fetching &&
               !exchange_.in.unit().cancel &&
               std::any_of(all.begin(), all.end(), [&](const touched &each) {
                   return each.of == exchange_.in.of;
               });
    };
    if (!comes())
        return;
    const std::uint64_t start = now_ns();
    while (comes() && now_ns() - start < patience_ns)
        changed_.wait_for(lock, 20000000);
    unreported_.stalled_ns += now_ns() - start;
}

// Whether a unit has room in system RAM that it does not need, and another can
// use: it is in VRAM, to stay there as far as is planned.
bool mover::is_room_spare(const block &of, const slot &one) const
{
    const bool leaves =
        pace_.arranges() ? one.stays_away : one.leaves_for != never_leaves;
    return one.where == place::vram && one.host.charged &&
           (!leaves || of.fixed) && (one.host.alias != 0 || rooms_.maps());
}

// Such a one. With its room a unit loses what is left of it there, and has to
// be written back as a whole: best one of which that is so anyway, and next one
// that is mapped already.
slot *mover::spare_room(std::uint64_t bytes) const
{
    slot *found = nullptr;
    for (const block_ref &each : large_)
        for (slot &one : each->slots) {
            if (one.bytes != bytes || !is_room_spare(*each, one))
                continue;
            const auto worth = [](const slot &which) {
                return (which.digested ? 0 : 2) + (which.host.alias != 0);
            };
            if (found == nullptr || worth(one) > worth(*found))
                found = &one;
        }
    return found;
}

mover::leeway mover::look_for_rooms(std::uint64_t more_below) const
{
    leeway out;
    out.more_below = more_below;
    out.maps = rooms_.maps();
    if (more_below == UINT64_MAX && out.maps)
        return out;
    for (const block_ref &each : large_)
        for (const slot &one : each->slots)
            if (is_room_spare(*each, one) && !out.spares(one.bytes))
                out.spare.push_back(one.bytes);
    return out;
}

// What there is of system RAM for units that are in VRAM.
std::uint64_t mover::idle_room_bytes() const
{
    std::uint64_t bytes = 0;
    for (const block_ref &each : large_)
        for (const slot &one : each->slots)
            bytes += one.has_idle_room() ? one.bytes : 0;
    return bytes;
}

bool mover::leeway::spares(std::uint64_t size) const
{
    return std::find(spare.begin(), spare.end(), size) != spare.end();
}

bool mover::leeway::may_leave(const slot &one) const
{
    if (one.where != place::vram)
        return false;
    if (one.host.handle != 0)
        return one.host.alias != 0 || maps;
    return (maps && one.bytes < more_below) || spares(one.bytes);
}

// Whether the unit need not be mapped in system RAM: nothing of its block will
// be used before it is back, for all that is known.
bool mover::may_be_away(const motion &which) const
{
    return unmaps_ && moves_ahead() && !stopping_ && !gave_up_ &&
           next_use_of(*which.of, which.index) != schedule::never &&
           is_first_of_block(*which.of, which.index);
}

bool mover::make_way(std::uint64_t bytes)
{
    std::unique_lock lock = enter();
    if (!active() || bytes > limits_.read().physical_bytes)
        return limits_.charge_physical(bytes);
    wanted_bytes_ += bytes;
    std::uint64_t left = given_up_;
    std::uint64_t seen = progress_;
    std::uint64_t nearer = now_ns();
    std::uint64_t since = nearer;
    bool charged = false;
    while (!(charged = limits_.charge_physical(bytes)) && !gave_up_ &&
           !stopping_) {
        changed_.notify_all();
        changed_.wait_for(lock, 1000000);
        const std::uint64_t now = now_ns();
        const bool at_rest = in_flight().empty() && motions_.empty();
        if (given_up_ != left) {
            left = given_up_;
            nearer = since = now;
        }
        // Until it has settled, what ran before is waited for as a whole.
        if (progress_ != seen || !settled_) {
            seen = progress_;
            since = now;
        }
        // What ends all the time may never let go of anything.
        if (now - since > (at_rest ? patience_ns : 10 * patience_ns) ||
            now - nearer > 50 * patience_ns)
            break;
    }
    wanted_bytes_ -= bytes;
    version_++;
    return charged;
}

// Gives up frames, and sends away as much as is wanted: what is needed last
// first.
bool mover::give_way()
{
    const bool dropped = !frames_.empty();
    frames_.drop();
    if (dropped) {
        given_up_++;
        changed_.notify_all();
    }
    std::uint64_t coming = limits_.read().physical_free_bytes();
    for (const motion &each : motions_)
        coming += each.evicts ? each.unit().bytes : 0;
    if (coming >= wanted_bytes_ || !settled_ || !gate_.all_vouched() ||
        !digests_.any_free())
        return dropped;
    const leeway ram = look_for_rooms(rooms_.below());
    const candidate leaves = needed_last(
        [&](const slot &one, std::uint64_t) { return ram.may_leave(one); });
    return (leaves.of && start_evict(leaves)) || dropped;
}

} // namespace emuv::cuda

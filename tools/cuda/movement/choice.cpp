// SPDX-License-Identifier: LGPL-2.1-or-later
// Chooses the unit that moves next, and the unit that makes way for it.
#include "movement/mover.hpp"
#include "store/placement.hpp"

#include <algorithm>

namespace emuv::cuda {

namespace {

// Limits on motions under way at once. Coming: enough that the link has no
// pause. Arrived, but not mapped yet: mapping may lag behind a little. Leaving:
// digests wait for gaps between the program's kernels, and ready units wait
// until their frames are wanted.
constexpr std::size_t max_motions = 12;
static_assert(max_motions <= digests::max_under_way);
constexpr std::uint64_t max_coming_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_arrived_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_leaving_bytes = std::uint64_t{256} << 20;
// A unit that leaves as planned makes room for whatever is due next, as soon as
// it has left. Other room is taken, and a unit that was to stay leaves, only
// for a unit due within so many bytes.
constexpr std::uint64_t max_ahead_bytes = std::uint64_t{256} << 20;
// A blank unit comes in a moment, since nothing is copied for it. So it comes
// hardly sooner than it is needed: the unit that makes way may have to come
// back.
constexpr std::uint64_t max_made_bytes = std::uint64_t{256} << 20;
// Looking for something to do takes time, and launches wait during much of it.
// They are let in after so many units, about a microsecond's work.
constexpr std::uint64_t look_again_ns = 100000;
constexpr std::size_t let_in_after = 64;
constexpr std::uint64_t min_spare_bytes = std::uint64_t{512} << 20;

// Without a schedule, units change places by how often they are used. The one
// that comes was used at least hot_uses times lately, and times_as_hot times as
// often as the one that leaves. Exchanges take about one part in exchange_part
// of the time. A search for one begins exchange_look_ns after the last, at the
// soonest.
constexpr std::uint64_t hot_uses = 8;
constexpr std::uint64_t times_as_hot = 2;
constexpr std::uint64_t exchange_part = 20;
constexpr std::uint64_t exchange_look_ns = 10000000;
constexpr std::uint64_t exchange_patience_ns = 200000000;
constexpr std::size_t hottest_units = 16;

// After so long without a prediction, units that were left unmapped are mapped
// again. Each takes a third of a millisecond, for which launches wait.
constexpr std::uint64_t astray_ns = 100000000;

} // namespace

// True if the schedule predicts, and following it is worth it.
bool mover::moves_ahead() const
{
    return schedule_.predicts() && pace_.moves();
}

// True if moves_ahead() has not held for a while. A program that does something
// else for a moment comes back to its old steps.
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

// True if no unit of the block is used sooner.
bool mover::is_first_of_block(block &of, std::size_t index) const
{
    const std::uint64_t use = next_use_of(of, index);
    for (std::size_t i = 0; i < of.slots.size(); i++)
        if (next_use_of(of, i) < use)
            return false;
    return true;
}

// Bytes fetched for uses, up to this one, that have not ended.
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

// True if any motion is at that stage.
bool mover::any_at(stage which) const
{
    return std::any_of(
        motions_.begin(), motions_.end(),
        [which](const motion &each) { return each.at == which; });
}

// True if a unit is on its way out, as planned or as arranged. After half its
// gap, a unit counts as on its way back. Any sooner, it would leave again.
bool mover::is_passing(const slot &one, std::uint64_t next_use) const
{
    return next_use > 0 &&
           (pace_.arranges() ? one.stays_away
                             : one.passes() && next_use >= one.next.gap / 2);
}

// Of the units that nothing in flight can touch, the one that is needed last.
// @param fits  tells whether a unit may be it, given its next use
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

// True if there is a frame of that size, or one may be made without giving up
// another.
bool mover::may_fit(std::uint64_t bytes, std::uint64_t free_bytes) const
{
    return frames_.has(bytes) ||
           (bytes <= free_bytes && frames_.may_make(bytes));
}

// Launches do not wait for its end.
// @param free_bytes  what is left of the share
// @return nothing where blocks came or went meanwhile
std::optional<mover::survey>
mover::look_around(std::unique_lock<std::mutex> &lock, std::uint64_t free_bytes)
{
    survey out;
    const std::uint64_t version = blocks_.version();
    out.ram = look_for_rooms(rooms_.below());
    const bool arranges = pace_.arranges();
    const bool has_way = arranges || pace_.moves();
    // The candidates so far, as plain pointers. A candidate itself holds a
    // reference to its block, which would be counted for each unit.
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
    // While arranged, nobody waits, and the unit used last has the most time to
    // come. A program that runs ahead may call off any other.
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

// Starts the one move that is most worth it.
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
    // Without a change since the last search, there is still nothing to do.
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
    // While copies come as fast as they can, there is nothing else to look for.
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
    // Launches may have come in meanwhile, so the conditions above may no
    // longer hold.
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
        // To make a frame of others takes the driver as long as to fetch the
        // unit. So frames are remade only for a due unit, where none of that
        // size comes free as planned.
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
        // While memory stands still, only a frame that has come free is of use.
        const auto is_left_there = [&] {
            return waiters_ == 0 && !pace_.moves() && room < next.unit().bytes;
        };
        // A launch that names another unit of the block calls this fetch off.
        // So only the block's first unit may come before it is due.
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
            // Its copy failed, and the chosen units may be gone meanwhile.
            if (version_ != chosen_at)
                return false;
        }
        // Room for one more unit is slow to make, and takes memory. Idle room
        // of about the size of all units in system RAM is enough to take turns
        // with. A unit that stays away clearly longer is worth a room: sooner
        // or later every unit that leaves has just been used. A spare room is
        // taken from another unit if nothing is lost with it. Otherwise the two
        // units would rob each other in turn, and be written back each time.
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
        // A unit that is to stay in VRAM leaves only where nothing else can,
        // and where the link would rest. It has to come back.
        const bool as_planned = static_cast<bool>(units.passer.of);
        const candidate &leaves = alike.of && !comes_free ? alike
                                  : as_planned            ? units.passer
                                                          : last;
        const bool short_of_frames =
            room < size && due &&
            under_way.coming_bytes + under_way.leaving_bytes <=
                usual_unit_bytes;
        // While arranged, no launch waits for a unit that comes.
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
    // Launches wait in vain if nothing moves, nothing is in flight, and no work
    // has begun since.
    if (waiters_ > 0 && version_ == state && motions_.empty() &&
        in_flight().empty()) {
        hopeless_ = progress_;
        changed_.notify_all();
    }
    return false;
}

// Without a prediction, the units used more often belong in VRAM. Now and then
// a unit in VRAM and one in system RAM change places.
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
        // A unit that is used often may be in use just now.
        if (possible && in.of->in_flight > 0 &&
            now_ns() - exchange_.begun_ns < exchange_patience_ns)
            return false;
        if (possible && in.of->in_flight == 0) {
            exchange_.at = exchange::coming;
            if (start_fetch(lock, in))
                return true;
        }
        // A frame that nobody fills is wasted VRAM.
        frames_.drop();
    } else if (in.unit().where == place::fetching) {
        return false;
    }
    end_exchange();
    return false;
}

// An exchange has taken its time, even if it came to nothing.
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
        ram = look_for_rooms(0); // enough: no more is made
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

// A unit of an exchange is there in a moment. Work that needs the unit waits:
// otherwise such work would keep the unit away for good.
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

// True if another unit may take this unit's room in system RAM. This unit is in
// VRAM, and is to stay there as far as is planned.
bool mover::is_room_spare(const block &of, const slot &one) const
{
    const bool leaves =
        pace_.arranges() ? one.stays_away : one.leaves_for != never_leaves;
    return one.where == place::vram && one.host.charged &&
           (!leaves || of.fixed) && (one.host.alias != 0 || rooms_.maps());
}

// A unit with a spare room of that size, or null. A unit that loses its room
// has to be written back as a whole. So the best room is one that holds nothing
// of use, and then one that is mapped already.
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

// Bytes of room in system RAM whose units are in VRAM.
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

// True if the unit need not be mapped in system RAM. As far as is known,
// nothing of its block is used before it is back.
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
        // Until movement has settled, it waits for all earlier work as a whole.
        if (progress_ != seen || !settled_) {
            seen = progress_;
            since = now;
        }
        // Work that ends all the time may never let go of anything.
        if (now - since > (at_rest ? patience_ns : 10 * patience_ns) ||
            now - nearer > 50 * patience_ns)
            break;
    }
    wanted_bytes_ -= bytes;
    version_++;
    return charged;
}

// Gives up frames, and evicts as much as is wanted: units needed last go first.
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

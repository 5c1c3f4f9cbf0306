// SPDX-License-Identifier: LGPL-2.1-or-later
// The choice of the unit that moves next, and of the one that leaves for it.
#include "policy/choice.hpp"

#include "policy/heat.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace emuv::cuda {

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// Motions under way at once. Fetches: enough that the link has no pause.
// Arrived and not mapped yet: mapping may lag behind a little. Evictions: the
// digest waits for a gap between the program's own kernels, and a clean unit
// waits until its frame is wanted.
constexpr std::size_t max_motions = 12;
constexpr std::uint64_t max_coming_bytes = 128 * mib;
constexpr std::uint64_t max_arrived_bytes = 128 * mib;
constexpr std::uint64_t max_leaving_bytes = 256 * mib;
// Blank units come without a copy, so they come late: a unit that leaves for
// them may have to come back.
constexpr std::uint64_t max_made_bytes = 256 * mib;
// Rooms of units in VRAM, beyond the bytes in system RAM: enough to take turns.
constexpr std::uint64_t min_spare_bytes = 512 * mib;
// While fewer bytes than a usual unit cross the link, it is about to rest.
constexpr std::uint64_t resting_bytes = 32 * mib;

// A unit comes to VRAM by its heat once it was used so often, and so many times
// as often as the unit that leaves.
constexpr std::uint64_t hot_uses = 8;
constexpr std::uint64_t times_as_hot = 2;
constexpr std::size_t hottest_units = 16;

// An eighth of the share: the most of much, and all of a small share's limits.
// A unit that leaves as planned makes room for any next use at once. Other
// units leave only for a use within so many bytes.
std::uint64_t eighth_of(const view &now)
{
    return now.vram.share_bytes / 8;
}

std::uint64_t arriving_bytes(const view &now)
{
    return now.under_way.coming_bytes + now.under_way.arrived_bytes;
}

std::uint64_t less(std::uint64_t bytes, std::uint64_t by)
{
    return bytes - std::min(bytes, by);
}

// The program says that the unit is not used for long, and the past does not
// know better.
bool is_to_go(const unit_view &one)
{
    return one.said.leaves() && one.next_use == schedule::never;
}

// The unit came as the program asked, and is about to be used.
bool has_come_as_asked(const unit_view &one)
{
    return one.said.came && one.next_use == schedule::never;
}

// A unit is on its way out, as planned, as arranged, or as the program says.
// Past the middle of its gap it is on its way back: it would leave again at
// once.
bool is_passing(const view &now, const unit_view &one)
{
    return one.next_use > 0 &&
           (is_to_go(one) ||
            (now.arranges ? one.stays_away
                          : one.passes && one.next_use >= one.gap / 2));
}

// The room of a unit in VRAM that needs none: it is to stay there.
bool is_room_spare(const view &now, const unit_view &one)
{
    const bool leaves = now.arranges ? one.stays_away : one.leaves;
    return one.where == place::vram && one.room_is_charged &&
           (!leaves || one.fixed || one.said.pinned) &&
           (one.room_has_alias || now.rooms.maps);
}

// The best such room. Its owner loses the clean copy there, and will be written
// back as a whole. An owner without a known copy loses nothing, so its room is
// best. Next is a room that has an address. The room of a unit that is seldom
// written is worth most to its owner.
std::size_t spare_room(const view &now, std::uint64_t bytes)
{
    const auto worth = [](const unit_view &one) {
        return (one.said.read_mostly ? 0 : 4) + (one.room_is_proven ? 0 : 2) +
               (one.room_has_alias ? 1 : 0);
    };
    const auto is_better = [&](const unit_view &one, const unit_view &other) {
        if (worth(one) != worth(other))
            return worth(one) > worth(other);
        return now.on_demand && one.idle < other.idle; // leaves later
    };
    std::size_t found = intent::none;
    for (std::size_t i = 0; i < now.units.size(); i++) {
        const unit_view &one = now.units[i];
        if (!one.small && one.bytes == bytes && is_room_spare(now, one) &&
            (found == intent::none || is_better(one, now.units[found])))
            found = i;
    }
    return found;
}

// The room that units leaving VRAM can have.
class leeway
{
public:
    // @param below  larger rooms are not made
    leeway(const view &now, std::uint64_t below)
        : below_(below), maps_(now.rooms.maps)
    {
        if (below_ == UINT64_MAX && maps_)
            return;
        for (const unit_view &one : now.units)
            if (!one.small && is_room_spare(now, one) && !spares(one.bytes))
                spare_.push_back(one.bytes);
    }

    bool may_leave(const unit_view &one) const
    {
        return !one.said.pinned && could_leave(one);
    }
    // The same of a unit that is pinned, too.
    bool could_leave(const unit_view &one) const
    {
        if (one.where != place::vram)
            return false;
        if (one.has_room)
            return one.room_has_alias || maps_;
        return (maps_ && one.bytes < below_) || spares(one.bytes);
    }

private:
    bool spares(std::uint64_t size) const
    {
        return std::find(spare_.begin(), spare_.end(), size) != spare_.end();
    }

    std::uint64_t below_;
    bool maps_;
    std::vector<std::uint64_t> spare_; // sizes of spare rooms, each once
};

// A unit of the view, or none.
struct choice
{
    std::size_t unit = intent::none;
    std::uint64_t next_use = 0;
    std::uint64_t idle = 0;

    explicit operator bool() const { return unit != intent::none; }
};

// True if the program would rather have the one leave than the other.
bool leaves_before(const advice &one, const advice &than)
{
    if (one.leaves() != than.leaves())
        return one.leaves();
    if (one.came != than.came)
        return than.came;
    return one.priority < than.priority;
}

// True if a unit is to leave before the one that was found so far. It is needed
// later. If both are needed at once, the program would rather keep that one. Or
// launches fetch what they need, and it was used longer ago.
bool leaves_before(const view &now, const unit_view &one, const choice &found)
{
    if (one.next_use != found.next_use)
        return one.next_use > found.next_use;
    if (!found)
        return false;
    const advice &than = now.units[found.unit].said;
    if (leaves_before(one.said, than) != leaves_before(than, one.said))
        return leaves_before(one.said, than);
    return now.on_demand && one.idle > found.idle;
}

// Of the units that no work in flight reaches, the one needed last.
template <typename Fits>
choice needed_last(const view &now, Fits fits)
{
    choice out;
    for (std::size_t i = 0; i < now.units.size(); i++) {
        const unit_view &one = now.units[i];
        if (!one.small && one.is_idle() &&
            (!out || leaves_before(now, one, out)) && fits(one))
            out = {i, one.next_use, one.idle};
    }
    return out;
}

std::uint64_t idle_room_bytes(const view &now)
{
    std::uint64_t bytes = 0;
    for (const unit_view &one : now.units)
        bytes += !one.small && one.has_idle_room() ? one.bytes : 0;
    return bytes;
}

// True if less is lost with the one than with the other: by their priority,
// then their heat.
bool is_less(const unit_view &one, const unit_view &than)
{
    return one.said.priority != than.said.priority
               ? one.said.priority < than.said.priority
               : one.heat < than.heat;
}

intent evict(const view &now, std::size_t unit)
{
    const unit_view &one = now.units[unit];
    return {intent::action::evict, unit,
            one.has_room ? intent::none : spare_room(now, one.bytes), false};
}

// The units that might move next.
struct candidates
{
    static constexpr choice none{intent::none, schedule::never};

    choice wanted = none;  // in system RAM, needed first
    choice fitting = none; // the same, of those for which VRAM is at hand
    choice hollow = none;  // blank, needed first
    choice passer;         // in VRAM, planned to leave, needed last
    choice victim;         // in VRAM, with room in system RAM, needed last
    choice newcomer;       // in VRAM, without, needed last
    std::uint64_t made_bytes = 0; // kept for owners to come before `hollow`'s
};

// True if the one use is to be served before the other. A launch that waits
// goes first. Memory that is arranged has the most time until its next use just
// after the last one. A program that runs ahead would call off all else.
bool is_sooner(const view &now, std::uint64_t use, std::uint64_t than)
{
    if (!now.arranges || use == 0 || than == 0 || than == schedule::never)
        return use < than;
    return use != schedule::never && use > than;
}

candidates look(const view &now, const leeway &ram)
{
    candidates out;
    const bool has_way = now.arranges || now.moves;
    for (std::size_t i = 0; i < now.units.size(); i++) {
        const unit_view &one = now.units[i];
        if (!one.is_idle())
            continue;
        const std::uint64_t use = one.next_use;
        const bool passing = !one.small && is_passing(now, one);
        const bool may_come =
            one.where == place::host && (!passing || !has_way);
        if (may_come && !one.small && one.blank && one.vacant && now.moves) {
            if (use < out.hollow.next_use)
                out.hollow = {i, use};
        } else if (may_come) {
            if (is_sooner(now, use, out.wanted.next_use))
                out.wanted = {i, use};
            if (!one.small && is_sooner(now, use, out.fitting.next_use) &&
                now.vram.may_fit(one.bytes))
                out.fitting = {i, use};
        }
        if (one.small || has_come_as_asked(one) || !ram.may_leave(one))
            continue;
        choice &leaves = passing        ? out.passer
                         : one.has_room ? out.victim
                                        : out.newcomer;
        if (leaves_before(now, one, leaves))
            leaves = {i, use, one.idle};
    }
    for (const unit_view &one : now.units)
        out.made_bytes += !one.small && !one.fixed && one.made &&
                                  one.next_use < out.hollow.next_use
                              ? one.bytes
                              : 0;
    return out;
}

// Fetched bytes whose use has not begun, for uses up to the given one.
std::uint64_t ahead_bytes(const view &now, std::uint64_t next_use)
{
    std::uint64_t bytes = 0;
    for (const unit_view &one : now.units)
        if (!one.small && one.fresh && one.where == place::vram && !one.busy &&
            one.next_use <= next_use)
            bytes += one.bytes;
    return bytes;
}

// True if no unit of the same allocation is used sooner.
bool is_first_of_allocation(const view &now, std::size_t unit)
{
    const auto same = [&](std::size_t other) {
        return now.units[other].allocation == now.units[unit].allocation;
    };
    std::size_t first = unit;
    while (first > 0 && same(first - 1))
        first--;
    for (std::size_t i = first; i < now.units.size() && same(i); i++)
        if (now.units[i].next_use < now.units[unit].next_use)
            return false;
    return true;
}

// The choice of one fetch, and of the eviction that makes room for it.
class motion_choice
{
public:
    explicit motion_choice(const view &now)
        : now_(now), may_(allowed_motions(now)), ram_(now, now.rooms.below),
          units_(look(now, ram_)),
          gives_vram_(may_.gives_vram && units_.hollow &&
                      units_.wanted.next_use > 0 &&
                      units_.made_bytes < max_made_bytes),
          wanted_(gives_vram_ ? units_.hollow : units_.wanted)
    {
        if (!wanted_)
            return;
        due_ = is_due(wanted_);
        const std::uint64_t size = now_.units[wanted_.unit].bytes;
        fits_ = now_.vram.may_fit(size);
        comes_free_ = std::find(now_.under_way.leaving_sizes.begin(),
                                now_.under_way.leaving_sizes.end(),
                                size) != now_.under_way.leaving_sizes.end();
        if (!fits_ && may_.evicts)
            alike_ = needed_last(now_, [&](const unit_view &one) {
                return one.bytes == size && is_passing(now_, one) &&
                       ram_.may_leave(one) &&
                       (now_.arranges ||
                        (has_way() && one.next_use > wanted_.next_use + 1));
            });
    }

    std::vector<intent> intents() const
    {
        std::vector<intent> out;
        if (!wanted_) {
            if (const auto leaves = to_evict_ahead())
                out.push_back(*leaves);
            return out;
        }
        if (const choice in = to_fetch())
            out.push_back({intent::action::fetch, in.unit, intent::none,
                           now_.arranges && !now_.units[in.unit].small});
        if (auto leaves = to_evict())
            out.push_back(*leaves);
        return out;
    }

private:
    bool has_way() const { return now_.launch_waits || now_.moves; }
    std::uint64_t free_vram_bytes() const
    {
        return now_.vram.free_bytes + now_.vram.frame_bytes();
    }
    const unit_view &of(const choice &which) const
    {
        return now_.units[which.unit];
    }

    bool is_due(const choice &which) const
    {
        return which.next_use == 0 || !now_.moves ||
               ahead_bytes(now_, which.next_use) + arriving_bytes(now_) <
                   eighth_of(now_);
    }

    choice to_fetch() const
    {
        // To make a frame of others takes the driver as long as to fetch the
        // unit. So that is for a unit that is due, and only if no frame of its
        // size comes free as planned.
        const bool remakes =
            due_ && (wanted_.next_use == 0 || !(comes_free_ || alike_));
        const bool first = fits_ || remakes;
        const choice &next = first ? wanted_ : units_.fitting;
        if (!next || !(may_.copies || (gives_vram_ && first)))
            return {};
        const std::uint64_t size = of(next).bytes;
        if (!now_.vram.has_frame(size) &&
            (free_vram_bytes() < size || size >= now_.vram.frames_below))
            return {};
        // A launch that names the same allocation calls off what comes: its
        // first unit may come before it is due.
        const bool in_time = (first ? due_ : is_due(next)) ||
                             (now_.vram.has_frame(size) &&
                              is_first_of_allocation(now_, next.unit));
        return in_time ? next : choice{};
    }

    // A new room is slow to make and takes memory. It is worth that for a unit
    // that stays away for clearly longer, up to enough rooms to take turns.
    // Another unit's room is worth it if nothing is lost with it. Else two
    // units would rob each other in turns, and be written back each time.
    bool is_worth_a_room(const choice &newcomer) const
    {
        const bool is_age_all =
            now_.on_demand && newcomer.next_use == units_.victim.next_use;
        if (is_age_all ? newcomer.idle <= units_.victim.idle
                       : newcomer.next_use / 8 * 7 < units_.victim.next_use)
            return false;
        const std::size_t other = spare_room(now_, of(newcomer).bytes);
        if (other == intent::none)
            return idle_room_bytes(now_) < now_.host_bytes + min_spare_bytes;
        // A room takes far longer to make than a unit to write back.
        return is_age_all || !now_.units[other].room_is_proven;
    }

    // Of the units in VRAM that nothing is known to need, the one that is to
    // leave first.
    choice last() const
    {
        const bool grows = units_.newcomer && is_worth_a_room(units_.newcomer);
        return grows || !units_.victim ? units_.newcomer : units_.victim;
    }

    // True if there are frames for all that launches wait for, and some more,
    // or there are in a moment.
    bool has_frames_on_demand() const
    {
        std::uint64_t awaited = 0;
        for (const unit_view &one : now_.units)
            awaited +=
                one.where == place::host && one.next_use == 0 ? one.bytes : 0;
        return free_vram_bytes() + now_.under_way.leaving_bytes >=
               awaited + std::min(max_free_bytes, eighth_of(now_));
    }

    // Launches that fetch what they name find frames.
    std::optional<intent> to_evict_ahead() const
    {
        if (!now_.on_demand || !may_.evicts || has_frames_on_demand())
            return {};
        const choice leaves = last();
        if (!leaves)
            return {};
        return evict(now_, leaves.unit);
    }

    std::optional<intent> to_evict() const
    {
        if (!may_.evicts)
            return {};
        const bool as_planned = static_cast<bool>(units_.passer);
        const choice leaves = alike_ && !comes_free_ ? alike_
                              : as_planned           ? units_.passer
                                                     : last();
        if (!leaves || (now_.on_demand && has_frames_on_demand()))
            return {};
        const bool short_of_frames =
            free_vram_bytes() < of(wanted_).bytes && due_ &&
            now_.under_way.coming_bytes + now_.under_way.leaving_bytes <=
                resting_bytes;
        const bool arranges = now_.arranges && as_planned;
        const bool worth_it =
            arranges ||
            (has_way() && leaves.next_use > wanted_.next_use + 1 &&
             (as_planned || leaves.next_use == schedule::never ||
              short_of_frames || (now_.on_demand && wanted_.next_use == 0)));
        if (!worth_it)
            return {};
        intent out = evict(now_, leaves.unit);
        out.arranges = arranges;
        return out;
    }

    const view &now_;
    const allowance may_;
    const leeway ram_;
    const candidates units_;
    const bool gives_vram_;
    const choice wanted_;
    choice alike_; // leaves a frame of the wanted unit's size, as planned
    bool due_ = false;
    bool fits_ = false;
    bool comes_free_ = false; // a frame of that size, in a moment
};

// The choice of a motion that the program asks for.
class advised_choice
{
public:
    explicit advised_choice(const view &now)
        : now_(now), may_(allowed_motions(now)), ram_(now, now.rooms.below)
    {
        for (std::size_t i = 0; i < now.units.size(); i++) {
            const unit_view &one = now.units[i];
            if (one.small || !one.is_idle())
                continue;
            if (one.where == place::host && is_asked_for(one) &&
                (wanted_ == intent::none || is_sooner(i, wanted_)))
                wanted_ = i;
            if (is_to_go(one) && ram_.may_leave(one) &&
                (leaver_ == intent::none || is_less(one, now.units[leaver_])))
                leaver_ = i;
        }
    }

    std::vector<intent> intents() const
    {
        std::vector<intent> out;
        const std::uint64_t size =
            wanted_ != intent::none ? now_.units[wanted_].bytes : 0;
        const bool fits =
            size > 0 &&
            (now_.vram.has_frame(size) ||
             (free_vram_bytes() >= size && size < now_.vram.frames_below));
        if (fits && may_.copies)
            out.push_back(
                {intent::action::fetch, wanted_, intent::none, false});
        // A frame that comes free already is waited for.
        const bool comes_free =
            std::find(now_.under_way.leaving_sizes.begin(),
                      now_.under_way.leaving_sizes.end(),
                      size) != now_.under_way.leaving_sizes.end();
        if (size > 0 && !fits && !comes_free && may_.evicts)
            if (const std::size_t leaves = to_leave_for(wanted_);
                leaves != intent::none)
                out.push_back(evict(now_, leaves));
        if (leaver_ != intent::none && may_.evicts)
            out.push_back(evict(now_, leaver_));
        return out;
    }

private:
    static bool is_unforeseen(const unit_view &one)
    {
        return one.next_use == schedule::never;
    }
    static bool is_asked_for(const unit_view &one)
    {
        return one.said.comes() && (one.said.pinned || is_unforeseen(one));
    }
    std::uint64_t free_vram_bytes() const
    {
        return now_.vram.free_bytes + now_.vram.frame_bytes();
    }

    // Of two units that are asked for, the one that comes first.
    bool is_sooner(std::size_t one, std::size_t than) const
    {
        const advice &a = now_.units[one].said;
        const advice &b = now_.units[than].said;
        if (a.pinned != b.pinned)
            return a.pinned;
        return a.priority != b.priority ? a.priority > b.priority
                                        : a.asked < b.asked;
    }

    std::size_t to_leave_for(std::size_t in) const
    {
        const unit_view &wanted = now_.units[in];
        std::size_t found = intent::none;
        for (std::size_t i = 0; i < now_.units.size(); i++) {
            const unit_view &one = now_.units[i];
            if (one.small || !one.is_idle() || !ram_.may_leave(one) ||
                one.bytes + free_vram_bytes() < wanted.bytes ||
                !gives_way(one, wanted))
                continue;
            if (found == intent::none || is_better(one, now_.units[found]))
                found = i;
        }
        return found;
    }
    static bool gives_way(const unit_view &one, const unit_view &wanted)
    {
        if (is_to_go(one) || wanted.said.pinned)
            return true;
        return is_unforeseen(one) && !one.said.came && !one.said.comes() &&
               one.said.priority <= wanted.said.priority;
    }
    static bool is_better(const unit_view &one, const unit_view &than)
    {
        if (is_to_go(one) != is_to_go(than))
            return is_to_go(one);
        if (one.said.came != than.said.came)
            return than.said.came;
        return one.next_use != than.next_use ? one.next_use > than.next_use
                                             : is_less(one, than);
    }

    const view &now_;
    const allowance may_;
    const leeway ram_;
    std::size_t wanted_ = intent::none; // to come first
    std::size_t leaver_ = intent::none; // to leave first
};

// The unit that leaves for a hot one, by its priority and its heat; or none.
// @param space  bytes of VRAM at hand besides
std::size_t colder_than(const view &now, const leeway &ram, std::size_t in,
                        std::uint64_t space)
{
    const unit_view &hot = now.units[in];
    std::size_t found = intent::none;
    for (std::size_t i = 0; i < now.units.size(); i++) {
        const unit_view &one = now.units[i];
        if (one.small || !one.is_idle() || !ram.may_leave(one) ||
            one.bytes + space < hot.bytes ||
            one.said.priority > hot.said.priority ||
            one.heat >= (one.said.priority < hot.said.priority
                             ? hot.heat
                             : hot.heat / times_as_hot))
            continue;
        if (found == intent::none || is_less(one, now.units[found]))
            found = i;
    }
    return found;
}

} // namespace

allowance allowed_motions(const view &now)
{
    const traffic &moving = now.under_way;
    const std::uint64_t eighth = eighth_of(now);
    const bool may_map =
        moving.fetching == 0 ||
        (moving.fetching < max_motions &&
         moving.arrived_bytes < std::min(max_arrived_bytes, eighth));
    allowance out;
    out.copies =
        may_map && (moving.fetching == 0 ||
                    moving.coming_bytes < std::min(max_coming_bytes, eighth));
    out.gives_vram = may_map && now.any_vacant;
    out.evicts = moving.evicting < max_motions && now.may_digest &&
                 (moving.leaving_bytes == 0 ||
                  moving.leaving_bytes < std::min(max_leaving_bytes, eighth));
    return out;
}

std::uint64_t excess_of_round(const view &now)
{
    std::uint64_t used = 0;
    std::uint64_t vram =
        now.vram.frame_bytes() + now.vram.kept_bytes + arriving_bytes(now);
    for (const unit_view &one : now.units) {
        if (one.small || one.fixed)
            continue;
        used += one.next_use != schedule::never ? one.bytes : 0;
        vram += one.has_frame ? one.bytes : 0;
    }
    return less(used,
                less(vram, std::min(now.headroom_bytes, 2 * eighth_of(now))));
}

std::uint64_t excess_at_rest(const view &now)
{
    std::uint64_t in_ram = 0;
    for (const unit_view &one : now.units)
        in_ram += !one.small && !one.fixed && one.in_ram() ? one.bytes : 0;
    return less(in_ram, now.vram.frame_bytes() + arriving_bytes(now) +
                            now.vram.free_bytes + now.vram.kept_bytes);
}

std::vector<intent> choose_motion(const view &now)
{
    return motion_choice(now).intents();
}

std::vector<intent> choose_advised(const view &now)
{
    return advised_choice(now).intents();
}

bool must_give_way(const view &now)
{
    return now.may_digest &&
           now.vram.free_bytes + now.under_way.leaving_bytes < now.wanted_bytes;
}

std::vector<intent> choose_to_give_way(const view &now)
{
    if (!must_give_way(now))
        return {};
    const leeway ram(now, now.rooms.below);
    choice leaves = needed_last(
        now, [&](const unit_view &one) { return ram.may_leave(one); });
    if (!leaves)
        leaves = needed_last(
            now, [&](const unit_view &one) { return ram.could_leave(one); });
    if (!leaves)
        return {};
    return {evict(now, leaves.unit)};
}

std::vector<exchange_intent> choose_exchanges(const view &now)
{
    std::vector<std::size_t> hot;
    for (std::size_t i = 0; i < now.units.size(); i++) {
        const unit_view &one = now.units[i];
        if (!one.small && one.is_idle() && one.where == place::host &&
            one.heat >= hot_uses * heat::one_use)
            hot.push_back(i);
    }
    // Not std::stable_sort(): its operator new brings in the unwinder of a
    // newer glibc.
    std::sort(hot.begin(), hot.end(), [&](std::size_t a, std::size_t b) {
        const std::uint64_t one = now.units[a].heat;
        const std::uint64_t other = now.units[b].heat;
        return one != other ? one > other : a < b;
    });
    hot.resize(std::min(hot.size(), hottest_units));
    const std::uint64_t space = now.vram.free_bytes + now.vram.frame_bytes();
    const bool enough_rooms =
        idle_room_bytes(now) >= now.host_bytes + min_spare_bytes;
    const leeway ram(now, enough_rooms ? 0 : now.rooms.below);
    std::vector<exchange_intent> out;
    for (const std::size_t in : hot) {
        const std::uint64_t wanted = now.units[in].bytes;
        exchange_intent next;
        next.in.unit = in;
        next.fits = space >= wanted;
        const std::size_t leaves = colder_than(now, ram, in, space);
        if (leaves != intent::none)
            next.out = evict(now, leaves);
        out.push_back(next);
    }
    return out;
}

} // namespace emuv::cuda

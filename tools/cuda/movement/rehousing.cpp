// SPDX-License-Identifier: LGPL-2.1-or-later
// Gives VRAM of a card that lends it back: units that lie there go elsewhere.
#include "movement/mover.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

namespace {

// One is copied while room is made for another.
constexpr std::ptrdiff_t most_at_once = 4;
// Units in use are looked at again so much later: all units are gone through.
constexpr std::uint64_t find_again_ns = 10000000;

} // namespace

// True if others wait for the card where the unit lies, and it can be charged
// elsewhere. A charge of a whole block cannot go in parts.
bool mover::may_rehouse(const candidate &which) const
{
    const slot &one = which.unit();
    return one.where == place::host && one.host.charged && one.host.peer >= 0 &&
           (called_back_ & bit_of(one.host.peer)) != 0 && !which.of->fixed;
}

// One whose motion was called off is found again only after all others. A unit
// that work waits for stays: the work would wait for the room as well.
// @param any  out: there are such units, though all may have to stay
std::optional<candidate> mover::find_to_rehouse(bool &any)
{
    any = false;
    std::optional<candidate> first;
    for (const auto &[base, each] : blocks_.all())
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const candidate one{each, i, schedule::never};
            if (!may_rehouse(one))
                continue;
            any = true;
            const slot &unit = one.unit();
            if (must_stay(one) || unit.waiting > 0 ||
                unit.bytes >= rooms_.below())
                continue;
            if (unit.at > last_rehoused_)
                return one;
            if (!first)
                first = one;
        }
    return first;
}

// Begins to move a unit from a card that others wait for.
// @return true if there may be more to do at once
bool mover::rehouse()
{
    if (called_back_ == 0 || !may_begin() || check_ != nullptr ||
        !rooms_.maps() || is_untrusted_near() ||
        exchange_.at != exchange::none || now_ns() < rehouse_after_ns_ ||
        std::count_if(motions_.begin(), motions_.end(), [](const motion &each) {
            return each.rehouses;
        }) >= most_at_once)
        return false;
    for (int card = 0; card < static_cast<int>(max_devices); card++)
        if ((called_back_ & bit_of(card)) != 0 &&
            !budget_.ledger_of(card).read().spoken_for)
            called_back_ &= ~bit_of(card);
    bool any = false;
    const auto found = find_to_rehouse(any);
    if (!found) {
        called_back_ = any ? called_back_ : 0;
        rehouse_after_ns_ = now_ns() + find_again_ns;
        return false;
    }
    const motion_ref next = new_motion(*found, stage::fetch);
    next->rehouses = found->unit().rehoused = true;
    last_rehoused_ = found->unit().at;
    if (next->event == nullptr) {
        give_back(next);
        return false;
    }
    pace_.disturb();
    hand_over(*next, stage::room);
    return true;
}

// The unit is mapped in its new room. Work may use it there already.
void mover::rehoused(motion_ref which)
{
    slot &of = which->unit();
    lent_bytes_ -= of.host.peer >= 0 ? of.bytes : 0;
    lent_bytes_ += which->to.peer >= 0 ? of.bytes : 0;
    rooms_.drop(of.bytes, of.host);
    of.host = std::exchange(which->to, {});
    of.exposed = of.exposed || !of.away;
    // Without a copy no digest is of the new room.
    of.room_is_known = of.room_is_known && which->copies;
    trace_.span(trace::row::to_ram, "rehouse", which->started_ns, now_ns(),
                of.at, of.bytes, which->next_use);
    end_motion(which, place::host, false);
}

// Its room is given up, if it has one by now. The next one waits: others may be
// made in vain, too.
void mover::rehoused_in_vain(motion &which)
{
    if (which.to.handle != 0)
        rooms_.drop(which.unit().bytes, which.to);
    rehouse_after_ns_ = now_ns() + find_again_ns;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// The choice of the unit that moves next, and of the one that leaves for it.
#pragma once

#include "policy/view.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// Free frames, so that there is always one to go on with. More would only be
/// VRAM that holds nothing.
constexpr std::uint64_t max_free_bytes = std::uint64_t{96} << 20;

/// The wish that a unit should move. A wish and no more: whoever carries it out
/// asks the gate first, and drops what has become untrue.
struct intent
{
    enum class action
    {
        fetch, ///< copy to VRAM
        evict, ///< copy to system RAM, as far as it is dirty
    };
    static constexpr std::size_t none = SIZE_MAX;

    action what = action::fetch;
    std::size_t unit = none; ///< in view::units
    /// Evicted, it takes over the room of this one; none: it has a room, or is
    /// to be given a new one.
    std::size_t room_of = none;
    bool arranges = false; ///< part of an arrangement, no step of a round

    bool operator==(const intent &) const = default;
};

/// The kinds of motion that may begin now.
struct allowance
{
    bool copies = false;     ///< fetch a unit by a copy
    bool gives_vram = false; ///< give a blank unit VRAM, without a copy
    bool evicts = false;

    bool any() const { return copies || gives_vram || evicts; }
};

/// Keeps the link busy, and no queue behind it. Needs no units.
allowance allowed_motions(const view &now);

/// Bytes that are used in a round and do not fit in VRAM, less the headroom:
/// what has to move.
std::uint64_t excess_of_round(const view &now);

/// Bytes in system RAM that would not fit in VRAM if nothing had to be free.
std::uint64_t excess_at_rest(const view &now);

/// Chooses the motion most worth its cost, by the next use of each unit.
///
/// A fetch is for the unit needed first. If VRAM is short, the unit needed last
/// leaves, if that is later. First choice is one that the plan has away in this
/// gap. So this is Belady's rule, but for two costs. A frame of another size
/// has to be made anew, which takes the driver as long as the copy. A unit that
/// the plan keeps in VRAM has to come back, so it leaves only while the link
/// would rest. A unit that is never used again leaves at any time.
/// @return what to try in order, until one begins; empty: nothing is worth it
std::vector<intent> choose_motion(const view &now);

/// Chooses a motion that the program asks for, of units whose next use the past
/// does not show; of pinned ones in any case.
///
/// Units that are asked for come in the order of their priority. If VRAM is
/// short, another unit leaves: one that was asked to leave, else the coldest of
/// the lowest priority. None leaves that came as asked and was not used since,
/// or that has a higher priority.
/// @param now  with each unit's heat
/// @return what to try in order, until one begins; empty: there is nothing
std::vector<intent> choose_advised(const view &now);

/// True if VRAM has to be given up, and more than is on its way out. Needs no
/// units.
bool must_give_way(const view &now);

/// Chooses the unit to evict if VRAM has to be given up: of those that may,
/// the one needed last. A pinned one leaves only where there is no other.
/// @return empty: there is none
std::vector<intent> choose_to_give_way(const view &now);

/// A unit in system RAM, and the one in VRAM that leaves for it.
struct exchange_intent
{
    intent in;
    bool fits = false; ///< try to fetch it first, with no unit leaving
    intent out;        ///< unit == intent::none: no unit is cold enough
};

/// Chooses units that change places while no next use is predicted. The units
/// used most often lately come to VRAM, for those used less than half
/// as often. One of a lower priority leaves if it is used less at all, one of a
/// higher priority never.
/// @param now  with each unit's heat
/// @return what to try in order, hottest first, until one begins
std::vector<exchange_intent> choose_exchanges(const view &now);

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// A program's advice about its memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// A thing that a program may say of a part of its memory.
enum class hint : std::uint8_t
{
    access,      ///< it is used about now
    prefetch,    ///< it is used soon
    promote,     ///< it belongs in VRAM
    demote,      ///< it is not used for long
    discard,     ///< its contents are dead
    read_mostly, ///< it is seldom written
    pin,         ///< it stays in VRAM
    unpin,
};

/// A program's advice about a unit. It changes which unit moves first, and
/// never whether a move is safe. A next use that the past shows counts for
/// more.
struct advice
{
    enum class wish : std::uint8_t
    {
        none,
        come,  ///< to VRAM
        leave, ///< to system RAM
    };
    static constexpr int lowest = -100;
    static constexpr int highest = 100;
    /// A wish that has not come true after so many uses of anything is over.
    static constexpr std::uint64_t kept_uses = 4096;

    wish asks = wish::none;
    bool came = false;        ///< as asked, and not used since
    bool pinned = false;      ///< comes to VRAM and stays
    bool read_mostly = false; ///< its copy in system RAM is seldom out of date
    int priority = 0;         ///< lowest to highest: the lowest leave first
    std::uint64_t asked = 0;  ///< how many uses there had been then

    bool operator==(const advice &) const = default;

    /// The rest of it after so many uses of anything.
    advice at(std::uint64_t uses) const
    {
        advice left = *this;
        if (uses - asked > kept_uses)
            left.used();
        return left;
    }
    /// True if a use of the unit changes it.
    bool is_pending() const { return came || asks != wish::none; }
    bool comes() const { return pinned || asks == wish::come; }
    bool leaves() const { return !pinned && asks == wish::leave; }
    /// The unit is used: the program's wish for it is over.
    void used()
    {
        asks = wish::none;
        came = false;
    }
};

/// The priorities of the parts of a unit that have one.
class ranks
{
public:
    void add(int priority)
    {
        const auto at = position_of(priority);
        if (at != all_.end() && at->priority == priority)
            at->count++;
        else
            all_.insert(at, {priority, 1});
    }
    /// Takes back one that was added.
    void remove(int priority)
    {
        const auto at = position_of(priority);
        if (at != all_.end() && at->priority == priority && --at->count == 0)
            all_.erase(at);
    }
    /// @return 0 where there is none
    int highest() const { return all_.empty() ? 0 : all_.front().priority; }
    bool empty() const { return all_.empty(); }
    void clear() { all_.clear(); }

private:
    struct rank
    {
        int priority = 0;
        std::size_t count = 0;
    };
    std::vector<rank>::iterator position_of(int priority)
    {
        return std::find_if(all_.begin(), all_.end(), [=](const rank &each) {
            return each.priority <= priority;
        });
    }

    std::vector<rank> all_; // the highest first
};

/// Most bytes of a share that may be pinned: the rest has to move.
constexpr std::uint64_t most_pinned_bytes(std::uint64_t share_bytes)
{
    return share_bytes / 4 * 3;
}

} // namespace emuv::cuda

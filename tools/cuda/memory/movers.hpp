// SPDX-License-Identifier: LGPL-2.1-or-later
// All movers, by device.
#pragma once

#include "account/budget.hpp"
#include "movement/mover.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// The movers of one process. For a budget that is short, they give up the
/// memory that movement alone holds, and evict units.
class movers final : public relief
{
public:
    /// @param all  by device ordinal; none where memory does not move
    explicit movers(std::vector<mover *> all) : all_(std::move(all)) {}

    bool empty() const { return all_.empty(); }
    auto begin() const { return all_.begin(); }
    auto end() const { return all_.end(); }

    /// @return null where there is none, as for -1
    mover *of(int device) const
    {
        const auto at = static_cast<std::size_t>(device);
        return at < all_.size() ? all_[at] : nullptr;
    }
    /// A card that lends its VRAM has no mover: all of them may hold memory
    /// there.
    bool give_up(int device) override
    {
        if (static_cast<std::size_t>(device) >= all_.size()) {
            for (mover *each : all_)
                each->give_back_rooms(device);
            return !all_.empty();
        }
        all_[static_cast<std::size_t>(device)]->shed();
        return true;
    }
    /// @return bytes that give_up() would make room for
    std::uint64_t spare_bytes(int device) const
    {
        mover *const moves = of(device);
        return moves != nullptr ? moves->spare_bytes() : 0;
    }
    /// All moves so far.
    [[nodiscard]] moves moved() const
    {
        moves sum;
        for (mover *each : all_)
            sum += each->moved();
        return sum;
    }
    bool make_way(int device, std::uint64_t bytes) override
    {
        mover *const moves = of(device);
        return moves != nullptr && moves->make_way(bytes);
    }

private:
    const std::vector<mover *> all_;
};

} // namespace emuv::cuda

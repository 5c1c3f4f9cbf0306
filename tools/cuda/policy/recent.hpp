// SPDX-License-Identifier: LGPL-2.1-or-later
// The values found of late in a tree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace emuv::cuda {

/// Some values of a tree, by keys that are addresses. Each launch asks for
/// some, and every node of a tree is in another line of the cache. The caller
/// locks, and calls forget() for every value that leaves the tree.
/// @tparam Spacing  bytes that keys are usually apart
template <typename Value, std::size_t Places, std::uint64_t Spacing>
class recent
{
public:
    /// @return null if only the tree can tell
    Value *find(std::uint64_t key) const
    {
        const place &at = places_[place_of(key)];
        return at.key == key ? at.value : nullptr;
    }
    /// @param value  one of the tree's; it evicts any other from its place
    void keep(std::uint64_t key, Value &value)
    {
        places_[place_of(key)] = {key, &value};
    }
    void forget(std::uint64_t key) { places_[place_of(key)] = {}; }
    void forget_all() { places_ = {}; }

private:
    static std::size_t place_of(std::uint64_t key)
    {
        return key / Spacing % Places;
    }
    struct place
    {
        std::uint64_t key = 0;
        Value *value = nullptr;
    };
    std::array<place, Places> places_{};
};

} // namespace emuv::cuda

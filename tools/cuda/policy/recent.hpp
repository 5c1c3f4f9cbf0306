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
template <typename Value, std::size_t Buckets, std::uint64_t Spacing>
class recent
{
public:
    /// @return null if only the tree can tell
    Value *find(std::uint64_t key) const
    {
        const bucket &at = buckets_[bucket_of(key)];
        return at.key == key ? at.value : nullptr;
    }
    /// @param value  one of the tree's; it evicts any other from its bucket
    void keep(std::uint64_t key, Value &value)
    {
        buckets_[bucket_of(key)] = {key, &value};
    }
    void forget(std::uint64_t key) { buckets_[bucket_of(key)] = {}; }
    void forget_all() { buckets_ = {}; }

private:
    static std::size_t bucket_of(std::uint64_t key)
    {
        return key / Spacing % Buckets;
    }
    struct bucket
    {
        std::uint64_t key = 0;
        Value *value = nullptr;
    };
    std::array<bucket, Buckets> buckets_{};
};

} // namespace emuv::cuda

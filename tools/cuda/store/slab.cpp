// SPDX-License-Identifier: LGPL-2.1-or-later
// A piece of system RAM, shared by what is smaller: a chunk by allocations.
#include "store/slab.hpp"

#include <algorithm>

namespace emuv::cuda {

bool slab::take(std::uint64_t bytes, std::uint64_t &offset)
{
    if (bytes > bytes_)
        return false;
    bytes = round_up(bytes, alignment);
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
        if (gap->second < bytes)
            continue;
        offset = gap->first;
        const std::uint64_t rest = gap->second - bytes;
        gaps_.erase(gap);
        if (rest > 0)
            gaps_[offset + bytes] = rest;
        return true;
    }
    return false;
}

bool slab::has_gap(std::uint64_t bytes) const
{
    return std::any_of(gaps_.begin(), gaps_.end(), [bytes](const auto &gap) {
        return gap.second >= round_up(bytes, alignment);
    });
}

void slab::give(std::uint64_t offset, std::uint64_t bytes)
{
    bytes = round_up(bytes, alignment);
    const auto after = gaps_.lower_bound(offset);
    if (after != gaps_.end() && after->first == offset + bytes) {
        bytes += after->second;
        gaps_.erase(after);
    }
    auto before = gaps_.lower_bound(offset);
    if (before != gaps_.begin()) {
        --before;
        if (before->first + before->second == offset) {
            before->second += bytes;
            return;
        }
    }
    gaps_[offset] = bytes;
}

bool slab::empty() const
{
    const auto first = gaps_.begin();
    return first != gaps_.end() && first->second == bytes_;
}

} // namespace emuv::cuda

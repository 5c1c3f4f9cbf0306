// SPDX-License-Identifier: LGPL-2.1-or-later
// The amount of VRAM kept for units on the move.
#include "policy/headroom.hpp"

#include <algorithm>

namespace emuv::cuda {

void headroom::begin(std::uint64_t now_ns)
{
    since_ns_ = looked_ns_ = now_ns;
    brought_ns_ = busy_ns_ = waited_ns_ = 0;
}

void headroom::looked(to_do now, std::uint64_t now_ns)
{
    const std::uint64_t past_ns = now_ns - looked_ns_;
    brought_ns_ += seen_.brings ? past_ns : 0;
    busy_ns_ += seen_.brings || seen_.maps ? past_ns : 0;
    looked_ns_ = now_ns;
    seen_ = now;
}

bool headroom::choose(std::uint64_t now_ns)
{
    looked(seen_, now_ns);
    const std::uint64_t all_ns = now_ns - since_ns_;
    const std::uint64_t before = bytes_;
    if (all_ns - brought_ns_ < all_ns / short_rest)
        bytes_ -= std::min(step_bytes, bytes_ - least_bytes);
    else if (all_ns - busy_ns_ > all_ns / long_rest &&
             waited_ns_ > all_ns / long_wait)
        bytes_ = std::min(most_bytes, bytes_ + step_bytes);
    begin(now_ns);
    return bytes_ != before;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// How much VRAM is planned for what moves.
#include "headroom.hpp"

#include <algorithm>

namespace emuv::cuda {

void headroom::begin(std::uint64_t now_ns)
{
    since_ns_ = looked_ns_ = now_ns;
    carried_ns_ = waited_ns_ = 0;
}

void headroom::looked(bool carries, std::uint64_t now_ns)
{
    carried_ns_ += carries_ ? now_ns - looked_ns_ : 0;
    looked_ns_ = now_ns;
    carries_ = carries;
}

bool headroom::choose(std::uint64_t now_ns)
{
    looked(carries_, now_ns);
    const std::uint64_t all_ns = now_ns - since_ns_;
    const std::uint64_t rested_ns = all_ns - std::min(all_ns, carried_ns_);
    const std::uint64_t before = bytes_;
    if (rested_ns < all_ns / short_rest)
        bytes_ = std::max(least_bytes, bytes_ - step_bytes);
    else if (rested_ns > all_ns / long_rest && waited_ns_ > all_ns / long_wait)
        bytes_ = std::min(most_bytes, bytes_ + step_bytes);
    begin(now_ns);
    return bytes_ != before;
}

} // namespace emuv::cuda

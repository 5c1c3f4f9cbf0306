// SPDX-License-Identifier: LGPL-2.1-or-later
// The reach of work into a block, beyond the address that it was given.
#include "policy/reach.hpp"

#include <algorithm>

namespace emuv::cuda {

bool reach::to_the_end(std::uint64_t work) const
{
    return std::binary_search(to_the_end_.begin(), to_the_end_.end(), work);
}

void reach::take(std::uint64_t work, finding &known, bool to_the_end)
{
    if (known.to_the_end == to_the_end)
        return;
    known.to_the_end = to_the_end;
    const auto at =
        std::lower_bound(to_the_end_.begin(), to_the_end_.end(), work);
    if (to_the_end)
        to_the_end_.insert(at, work);
    else
        to_the_end_.erase(at);
}

// True if the work took so long that it may have read over the link.
bool reach::may_have_read(std::uint64_t beyond, time_bounds took)
{
    const std::uint64_t half_ns = beyond / (2 * link_bytes_per_ns);
    return beyond > 0 && took.least_ns >= std::clamp(half_ns, slow_ns, long_ns);
}

bool reach::ended(std::uint64_t work, std::uint64_t beyond, time_bounds took)
{
    auto found = findings_.find(work);
    if (found == findings_.end()) {
        if (!may_have_read(beyond, took))
            return false;
        if (findings_.size() >= max_kept) {
            findings_.clear();
            to_the_end_.clear();
        }
        found = findings_.emplace(work, finding{}).first;
    }
    finding &known = found->second;
    if (known.settled)
        return false;
    if (!known.to_the_end) {
        if (!may_have_read(beyond, took))
            return false;
        known.short_ns = std::min(known.short_ns, took.least_ns);
        take(work, known, ++known.slow == slow_ends);
        return known.to_the_end;
    }
    known.lacked = 0;
    const std::uint64_t faster = known.short_ns / 4 * 3;
    if (took.most_ns < faster) {
        known.settled = true;
    } else if (took.least_ns >= faster && ++known.trials == max_trials) {
        known.settled = true;
        take(work, known, false);
    }
    return false;
}

void reach::lacked(std::uint64_t work)
{
    const auto found = findings_.find(work);
    if (found == findings_.end() || found->second.settled ||
        !found->second.to_the_end || ++found->second.lacked < max_lacked)
        return;
    found->second.settled = true;
    take(work, found->second, false);
}

} // namespace emuv::cuda

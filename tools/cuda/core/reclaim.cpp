// SPDX-License-Identifier: LGPL-2.1-or-later
// Requests that would spill, refused once for what is given back then.
#include "reclaim.hpp"

#include <algorithm>

namespace emuv::cuda {

bool reclaim::comes_again(std::uintptr_t thread, int device,
                          std::uint64_t bytes, std::uint64_t returned,
                          std::uint64_t now_ns)
{
    const std::lock_guard guard(lock_);
    const auto found = refused_.find({thread, device});
    if (found == refused_.end())
        return false;
    const request before = found->second;
    refused_.erase(found);
    unheard_ = unheard_ || before.bytes != bytes;
    if (before.bytes != bytes)
        return false;
    spent_ns_ += now_ns - before.since_ns;
    const bool helped = returned - before.returned >= bytes;
    in_vain_ = helped ? 0 : std::min(in_vain_ + 1, 4u);
    to_grant_ = in_vain_ * patience_bytes;
    return true;
}

bool reclaim::refuse(std::uintptr_t thread, int device, std::uint64_t bytes,
                     std::uint64_t returned, std::uint64_t now_ns)
{
    const std::lock_guard guard(lock_);
    if (unheard_)
        return false;
    if (to_grant_ > 0) {
        to_grant_ -= std::min(to_grant_, bytes);
        return false;
    }
    if (count_ == 0)
        begun_ns_ = now_ns;
    if (count_ >= free_refusals &&
        spent_ns_ * part_of_time > now_ns - begun_ns_)
        return false;
    count_++;
    refused_[{thread, device}] = {bytes, returned, now_ns};
    return true;
}

} // namespace emuv::cuda

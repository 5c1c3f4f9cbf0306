// SPDX-License-Identifier: LGPL-2.1-or-later
// Refuses requests that would spill once, so that their program frees memory.
#include "account/reclaim.hpp"

#include <algorithm>

namespace emuv::cuda {

void reclaim::returned(int device, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    devices_[device].returned += bytes;
}

bool reclaim::comes_again(std::uintptr_t thread, int device,
                          std::uint64_t bytes, bool fits, std::uint64_t now_ns)
{
    const std::lock_guard guard(lock_);
    device_state &of = devices_[device];
    if (!of.pending || of.thread != thread)
        return false;
    of.pending = false;
    stopped_ = stopped_ || of.bytes != bytes;
    if (of.bytes != bytes)
        return false;
    of.spent_ns += now_ns - of.since_ns;
    const bool helped = fits || of.returned - of.returned_before >= of.missing;
    of.in_vain = helped ? 0 : std::min(of.in_vain + 1, 4u);
    of.to_grant = of.in_vain * patience_bytes;
    return true;
}

bool reclaim::refuse(std::uintptr_t thread, int device, std::uint64_t bytes,
                     std::uint64_t missing, std::uint64_t now_ns)
{
    const std::lock_guard guard(lock_);
    device_state &of = devices_[device];
    // The allocator is one thread's at a time until it has asked again.
    stopped_ = stopped_ || of.pending;
    if (stopped_)
        return false;
    if (bytes <= of.to_grant) {
        of.to_grant -= bytes;
        return false;
    }
    of.to_grant = 0;
    if (of.count == 0)
        of.begun_ns = now_ns;
    if (of.count >= free_refusals &&
        of.spent_ns * divisor_of_time > now_ns - of.begun_ns)
        return false;
    of.count++;
    of.pending = true;
    of.thread = thread;
    of.bytes = bytes;
    of.missing = missing;
    of.returned_before = of.returned;
    of.since_ns = now_ns;
    return true;
}

void reclaim::stop()
{
    const std::lock_guard guard(lock_);
    stopped_ = true;
}

} // namespace emuv::cuda

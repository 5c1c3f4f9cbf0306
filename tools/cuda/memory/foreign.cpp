// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that others made, and this program opened.
#include "memory/foreign.hpp"

#include "memory/mappings.hpp"

namespace emuv::cuda {

// NVML counts it for the process that made it.
bool foreign::charge(int device, std::uint64_t bytes)
{
    if (!budget_.charge_vram_alone(device, bytes))
        return false;
    budget_.not_measured(device, static_cast<std::int64_t>(bytes));
    return true;
}

void foreign::uncharge(int device, std::uint64_t bytes)
{
    budget_.not_measured(device, -static_cast<std::int64_t>(bytes));
    budget_.uncharge_vram(device, bytes);
}

bool foreign::open(const key &which, int device, std::uint64_t bytes)
{
    if (!counts_)
        return true;
    {
        const std::lock_guard guard(lock_);
        held &of = held_[which];
        if (of.times++ == 0)
            of.device = device;
    }
    if (grow(which, bytes))
        return true;
    close(which);
    return false;
}

void foreign::open_again(const key &which)
{
    const std::lock_guard guard(lock_);
    if (const auto found = held_.find(which); found != held_.end())
        found->second.times++;
}

// A charge may wait for room, so it is made without the lock.
bool foreign::grow(const key &which, std::uint64_t bytes)
{
    for (;;) {
        held before;
        {
            const std::lock_guard guard(lock_);
            const auto found = held_.find(which);
            if (found == held_.end() || found->second.bytes >= bytes)
                return true;
            before = found->second;
        }
        const std::uint64_t more = bytes - before.bytes;
        if (!charge(before.device, more))
            return false;
        const std::lock_guard guard(lock_);
        const auto found = held_.find(which);
        if (found != held_.end() && found->second.bytes == before.bytes) {
            found->second.bytes = bytes;
            return true;
        }
        // Another thread was faster, or has closed it.
        uncharge(before.device, more);
    }
}

void foreign::close(const key &which)
{
    const std::lock_guard guard(lock_);
    const auto found = held_.find(which);
    if (found == held_.end() || --found->second.times > 0)
        return;
    if (found->second.bytes > 0)
        uncharge(found->second.device, found->second.bytes);
    held_.erase(found);
}

void foreign::mapped(CUdeviceptr at, std::uint64_t bytes, const key &which)
{
    if (!counts_ || bytes == 0)
        return;
    const std::lock_guard guard(lock_);
    const auto found = held_.find(which);
    if (found == held_.end())
        return;
    found->second.times++;
    mappings_[at] = which;
}

foreign::mappings foreign::take(CUdeviceptr at, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    return take_from(mappings_, at, bytes);
}

void foreign::settle(mappings taken, bool unmapped)
{
    if (unmapped) {
        for (const auto &[at, which] : taken)
            close(which);
        return;
    }
    const std::lock_guard guard(lock_);
    mappings_.merge(taken);
}

} // namespace emuv::cuda

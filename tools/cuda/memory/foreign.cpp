// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that others made, and this program opened.
#include "memory/foreign.hpp"

#include "memory/mappings.hpp"

#include <iterator>

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

bool foreign::open(const key &which, const place &where, std::uint64_t bytes)
{
    if (!counts_)
        return true;
    {
        const std::lock_guard guard(lock_);
        held_ref &of = held_[which];
        if (!of) {
            of = held_ref(new held);
            of->where = where;
        }
        of->opened++;
        of->uses++;
    }
    if (grow(which, bytes))
        return true;
    if (const held_ref taken = take(which))
        let_go(*taken);
    return false;
}

void foreign::open_again(const key &which, CUdeviceptr at)
{
    const std::lock_guard guard(lock_);
    const auto after = mappings_.upper_bound(at);
    if (after == mappings_.begin())
        return;
    const auto &[begin, found] = *std::prev(after);
    if (at - begin >= found.bytes)
        return;
    held_[which] = found.of;
    found.of->opened++;
    found.of->uses++;
}

// A charge may wait for room, so it is made without the lock.
bool foreign::grow(const key &which, std::uint64_t bytes)
{
    for (;;) {
        held_ref of;
        std::uint64_t before = 0;
        {
            const std::lock_guard guard(lock_);
            const auto found = held_.find(which);
            if (found == held_.end() || found->second->bytes >= bytes)
                return true;
            of = found->second;
            before = of->bytes;
        }
        const std::uint64_t more = bytes - before;
        if (!charge(of->where.device, more))
            return false;
        const std::lock_guard guard(lock_);
        if (of->uses > 0 && of->bytes == before) {
            of->bytes = bytes;
            return true;
        }
        // Another thread was faster, or has closed it.
        uncharge(of->where.device, more);
    }
}

// The driver may give the number to others before its answer is here. So the
// memory has no number meanwhile if this is the last time that it is open.
foreign::held_ref foreign::take(const key &which)
{
    const std::lock_guard guard(lock_);
    const auto found = held_.find(which);
    if (found == held_.end())
        return {};
    held_ref taken = found->second;
    if (--taken->opened == 0)
        held_.erase(found);
    return taken;
}

void foreign::put_back(const key &which, const held_ref &taken)
{
    const std::lock_guard guard(lock_);
    if (taken->uses == 0) // its context has gone
        return;
    held_ref &there = held_[which];
    // Another thread has opened it meanwhile.
    if (there && there != taken) {
        there->opened++;
        there->uses++;
        let_go_locked(*taken);
        return;
    }
    there = taken;
    taken->opened++;
}

void foreign::let_go(held &of)
{
    const std::lock_guard guard(lock_);
    let_go_locked(of);
}

void foreign::let_go_locked(held &of)
{
    if (of.uses == 0 || --of.uses > 0)
        return;
    if (of.bytes > 0)
        uncharge(of.where.device, of.bytes);
    of.bytes = 0;
}

void foreign::mapped(CUdeviceptr at, std::uint64_t bytes, const key &which)
{
    if (!counts_ || bytes == 0)
        return;
    const std::lock_guard guard(lock_);
    const auto found = held_.find(which);
    if (found == held_.end())
        return;
    found->second->uses++;
    mappings_[at] = {bytes, found->second};
}

foreign::mappings foreign::take(CUdeviceptr at, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    return take_from(mappings_, at, bytes);
}

void foreign::settle(mappings taken, bool unmapped)
{
    const std::lock_guard guard(lock_);
    if (unmapped)
        for (const auto &[at, each] : taken)
            let_go_locked(*each.of);
    else
        mappings_.merge(taken);
}

void foreign::context_gone(CUcontext context, std::uint64_t before)
{
    const std::lock_guard guard(lock_);
    for (auto each = held_.begin(); each != held_.end();) {
        held &of = *each->second;
        if (of.where.context == nullptr || of.where.context != context ||
            of.where.serial >= before) {
            ++each;
            continue;
        }
        of.uses = 1; // however often it was opened
        let_go_locked(of);
        each = held_.erase(each);
    }
}

} // namespace emuv::cuda

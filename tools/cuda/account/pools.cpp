// SPDX-License-Identifier: LGPL-2.1-or-later
// VRAM that the driver sets aside for stream-ordered allocations and graphs.
// The charge is what the driver holds, not what the program has of it.
#include "account/pools.hpp"

#include "base/captures.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

pools::pools(const driver &calls, std::vector<ledger *> ledgers)
    : calls_(calls), ledgers_(std::move(ledgers))
{}

namespace {

// The device of pinned device memory; -1 for other memory. The processor may
// need that, so no handle stands in for it.
int device_with(const CUmemLocation &where, CUmemAllocationType type)
{
    return where.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                   type == CU_MEM_ALLOCATION_TYPE_PINNED
               ? where.id
               : -1;
}

} // namespace

void pools::created(CUmemoryPool pool, const CUmemLocation &where,
                    CUmemAllocationType type)
{
    const std::lock_guard guard(lock_);
    known_[pool] = device_with(where, type);
}

void pools::named(CUmemoryPool pool, const CUmemLocation &where,
                  CUmemAllocationType type)
{
    const std::lock_guard guard(lock_);
    known_.emplace(pool, device_with(where, type));
}

pools::orphan pools::release(CUmemoryPool pool)
{
    std::unique_lock lock(lock_);
    trim_ended_.wait(lock, [&] {
        return std::find(trimmed_.begin(), trimmed_.end(), pool) ==
               trimmed_.end();
    });
    orphan left;
    left.from.pool = pool;
    if (const auto known = known_.find(pool); known != known_.end()) {
        left.known = true;
        left.from.device = known->second;
        known_.erase(known);
    }
    const auto found = states_.find(left.from);
    if (found == states_.end())
        return left;
    left.from.device = found->first.device;
    state &of = found->second;
    left.number = of.number;
    if (of.charged > of.allocated)
        of.limits->uncharge_physical(of.charged - of.allocated);
    of.charged = of.allocated;
    if (of.allocated > 0)
        orphans_[of.number] = of;
    states_.erase(found);
    return left;
}

void pools::take_back(const orphan &left)
{
    const std::lock_guard guard(lock_);
    if (left.known)
        known_[left.from.pool] = left.from.device;
    const auto found = orphans_.find(left.number);
    if (found == orphans_.end())
        return;
    states_[left.from] = found->second;
    orphans_.erase(found);
}

int pools::device_of(CUmemoryPool pool, int current)
{
    const std::lock_guard guard(lock_);
    const auto found = known_.find(pool);
    return found == known_.end() ? current : found->second;
}

// The bytes that the driver holds; if it does not say, those allocated.
std::uint64_t pools::reserved_by(const source &which, const state &of) const
{
    const beside_captures apart(calls_);
    cuuint64_t bytes = 0;
    const CUresult result =
        which.pool != nullptr
            ? calls_.cuMemPoolGetAttribute(
                  which.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes)
            : calls_.cuDeviceGetGraphMemAttribute(
                  which.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    return result == CUDA_SUCCESS ? bytes : of.allocated;
}

// Under the lock. False when the driver holds more than can be charged.
bool pools::settle(const source &which, state &of)
{
    const std::uint64_t reserved = reserved_by(which, of);
    if (reserved > of.charged) {
        if (!of.limits->charge_physical(reserved - of.charged))
            return false;
        of.charged = reserved;
        return true;
    }
    const std::uint64_t keep = std::max(reserved, of.allocated) + of.pending;
    if (of.charged > keep) {
        of.limits->uncharge_physical(of.charged - keep);
        of.charged = keep;
    }
    return true;
}

std::uint64_t pools::missing_in(const state &of, std::uint64_t bytes)
{
    const std::uint64_t taken = of.allocated + of.pending;
    const std::uint64_t unused = of.charged > taken ? of.charged - taken : 0;
    return bytes > unused ? bytes - unused + of.slack : 0;
}

std::uint64_t pools::missing(const source &from, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    const auto found = states_.find(from);
    return found != states_.end() ? missing_in(found->second, bytes) : bytes;
}

bool pools::begin(const source &from, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    state &of = states_[from];
    if (of.number == 0)
        of.number = next_number_++;
    of.limits = &of_device(ledgers_, from.device);
    if (const std::uint64_t more = missing_in(of, bytes); more > 0) {
        if (more < of.slack || !of.limits->charge_physical(more))
            return false;
        of.charged += more;
    }
    of.pending += bytes;
    return true;
}

bool pools::end(const source &from, std::uint64_t bytes, bool granted,
                std::uint64_t &number)
{
    const std::lock_guard guard(lock_);
    const auto found = states_.find(from);
    if (found == states_.end()) // destroyed meanwhile
        return true;
    state &of = found->second;
    number = of.number;
    of.pending -= bytes;
    if (granted && from.pool != nullptr)
        of.allocated += bytes;
    if (settle(from, of))
        return true;
    // Only the driver knows how much it takes at once. Next time there must
    // be room for as much.
    const std::uint64_t reserved = reserved_by(from, of);
    if (reserved > of.charged)
        of.slack = std::max(of.slack, reserved - of.charged);
    if (granted && from.pool != nullptr)
        of.allocated -= bytes;
    return false;
}

void pools::freed(std::uint64_t number, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    for (auto &[which, of] : states_)
        if (of.number == number) {
            of.allocated -= std::min(of.allocated, bytes);
            return;
        }
    const auto left = orphans_.find(number);
    if (left == orphans_.end())
        return;
    left->second.limits->uncharge_physical(bytes);
    left->second.allocated -= bytes;
    if (left->second.allocated == 0)
        orphans_.erase(left);
}

void pools::settle()
{
    const std::lock_guard guard(lock_);
    for (auto &[which, of] : states_)
        if (of.charged != of.allocated)
            settle(which, of);
}

bool pools::trim(int device)
{
    const ledger *limits = &of_device(ledgers_, device);
    const auto is_idle = [&](const source &which, const state &of) {
        return of.limits == limits && reserved_by(which, of) > of.allocated;
    };
    std::vector<source> idle;
    {
        const std::lock_guard guard(lock_);
        for (const auto &[which, of] : states_)
            if (is_idle(which, of)) {
                idle.push_back(which);
                trimmed_.push_back(which.pool);
            }
    }
    // Trimming may wait for the device, and so is done without the lock.
    const beside_captures apart(calls_);
    for (const source &each : idle)
        if (each.pool != nullptr)
            calls_.cuMemPoolTrimTo(each.pool, 0);
        else
            calls_.cuDeviceGraphMemTrim(each.device);
    bool lowered = false;
    const std::lock_guard guard(lock_);
    for (const source &each : idle)
        trimmed_.erase(std::find(trimmed_.begin(), trimmed_.end(), each.pool));
    trim_ended_.notify_all();
    for (auto &[which, of] : states_) {
        if (of.limits != limits)
            continue;
        const std::uint64_t before = of.charged;
        settle(which, of);
        lowered = lowered || of.charged < before;
    }
    return lowered;
}

} // namespace emuv::cuda

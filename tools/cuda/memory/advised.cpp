// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that the program has registered, to say things of it by a key.
#include "memory/advised.hpp"

#include <utility>

namespace emuv::cuda {

void advised::counts::add(const memory::places &found)
{
    accesses.fetch_add(1, std::memory_order_relaxed);
    vram_bytes.fetch_add(found.vram_bytes, std::memory_order_relaxed);
    ram_bytes.fetch_add(found.ram_bytes, std::memory_order_relaxed);
}

void advised::counts::show(emuv_advice_stats &out) const
{
    out.accesses = accesses.load();
    out.hit_bytes[EMUV_TIER_VRAM] = vram_bytes.load();
    out.hit_bytes[EMUV_TIER_RAM] = ram_bytes.load();
}

int advised::add(std::uint64_t key, CUdeviceptr at, std::uint64_t bytes,
                 int priority)
{
    if (key == EMUV_ADVICE_ALL || priority < advice::lowest ||
        priority > advice::highest)
        return EMUV_ADVICE_VALUE;
    memory::told_of of;
    if (!table_.find(at, of))
        return EMUV_ADVICE_ADDRESS;
    if (bytes == 0 || bytes > of.bytes - (at - of.base))
        return EMUV_ADVICE_RANGE;
    record_ref made(new record);
    made->at = at;
    made->bytes = bytes;
    made->serial = of.serial;
    made->before = table_.places_of(of, at, bytes).moved;
    record_ref old;
    {
        const std::lock_guard guard(lock_);
        if (keys_.size() >= most_keys && !keys_.contains(key))
            return EMUV_ADVICE_FULL;
        old = std::exchange(keys_[key], made);
    }
    if (old)
        let_go(*old);
    table_.rank(of, at, bytes, priority);
    return EMUV_ADVICE_OK;
}

// Takes back the advice about memory that is no longer registered.
void advised::let_go(record &which)
{
    const std::lock_guard guard(pinning_);
    which.gone = true;
    memory::told_of of;
    if (table_.find(which.at, of) && of.serial == which.serial)
        table_.forget_advice(of, which.at, which.bytes, which.pinned);
}

// A key pins its memory once, however often it says so.
int advised::pin(record &which, const memory::told_of &of, hint what)
{
    const std::lock_guard guard(pinning_);
    const bool pins = what == hint::pin;
    if (which.gone || which.pinned == pins)
        return EMUV_ADVICE_OK;
    if (!table_.advise(of, which.at, which.bytes, what))
        return EMUV_ADVICE_PINNED;
    which.pinned = pins;
    return EMUV_ADVICE_OK;
}

int advised::forget(std::uint64_t key)
{
    record_ref gone;
    {
        const std::lock_guard guard(lock_);
        const auto found = keys_.find(key);
        if (found == keys_.end())
            return EMUV_ADVICE_KEY;
        gone = found->second;
        keys_.erase(found);
    }
    let_go(*gone);
    return EMUV_ADVICE_OK;
}

advised::record_ref advised::find(std::uint64_t key)
{
    const std::lock_guard guard(lock_);
    const auto found = keys_.find(key);
    return found != keys_.end() ? found->second : record_ref();
}

// @param of  out: the allocation, which is there
int advised::find(std::uint64_t key, record_ref &which, memory::told_of &of)
{
    which = find(key);
    if (!which)
        return EMUV_ADVICE_KEY;
    if (!table_.find(which->at, of) || of.serial != which->serial)
        return EMUV_ADVICE_FREED;
    return EMUV_ADVICE_OK;
}

int advised::tell(std::uint64_t key, hint what)
{
    record_ref which;
    memory::told_of of;
    if (const int wrong = find(key, which, of); wrong != EMUV_ADVICE_OK)
        return wrong;
    if (what == hint::access) {
        const auto found = table_.places_of(of, which->at, which->bytes);
        which->used.add(found);
        all_.add(found);
    }
    if (what == hint::pin || what == hint::unpin)
        return pin(*which, of, what);
    table_.advise(of, which->at, which->bytes, what);
    return EMUV_ADVICE_OK;
}

int advised::where(std::uint64_t key, emuv_advice_place &out)
{
    record_ref which;
    memory::told_of of;
    if (const int wrong = find(key, which, of); wrong != EMUV_ADVICE_OK)
        return wrong;
    const auto found = table_.places_of(of, which->at, which->bytes);
    out.bytes[EMUV_TIER_VRAM] = found.vram_bytes;
    out.bytes[EMUV_TIER_RAM] = found.ram_bytes;
    out.tier =
        found.ram_bytes > found.vram_bytes ? EMUV_TIER_RAM : EMUV_TIER_VRAM;
    return EMUV_ADVICE_OK;
}

int advised::stats(std::uint64_t key, emuv_advice_stats &out)
{
    moves moved;
    out.moves = table_.moves() ? 1 : 0;
    if (key == EMUV_ADVICE_ALL) {
        all_.show(out);
        moved = table_.moved();
    } else {
        record_ref which;
        memory::told_of of;
        if (const int wrong = find(key, which, of); wrong != EMUV_ADVICE_OK)
            return wrong;
        which->used.show(out);
        moved = table_.places_of(of, which->at, which->bytes).moved;
        moved -= which->before;
    }
    out.fetches = moved.fetches;
    out.evictions = moved.evictions;
    out.fetched_bytes = moved.fetched_bytes;
    out.evicted_bytes = moved.evicted_bytes;
    out.moving_ns = moved.ns;
    return EMUV_ADVICE_OK;
}

} // namespace emuv::cuda

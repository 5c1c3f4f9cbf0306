// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that the program has registered, to say things of it by a key.
#include "memory/advised.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

namespace {

// The lower bits of a key say where its record lies.
std::uint64_t index_of(std::uint64_t key)
{
    return key % advised::most_keys;
}

int result_of(mover::answer said)
{
    switch (said) {
    case mover::answer::done:
        return EMUV_ADVICE_OK;
    case mover::answer::too_much:
        return EMUV_ADVICE_PINNED;
    case mover::answer::gone:
        break;
    }
    return EMUV_ADVICE_FREED;
}

// A subrange up to an allocation's end has the rest of the last chunk, too.
mover::subrange to_the_end(const memory::told_of &of, mover::subrange in)
{
    if (in.at + in.bytes == of.base + of.bytes)
        in.bytes = of.base + of.whole_bytes - in.at;
    return in;
}

} // namespace

void advised::counts::add(const whereabouts &found)
{
    accesses.fetch_add(1, std::memory_order_relaxed);
    vram_bytes.fetch_add(found.vram_bytes, std::memory_order_relaxed);
    ram_bytes.fetch_add(found.ram_bytes, std::memory_order_relaxed);
    card_bytes.fetch_add(found.card_bytes, std::memory_order_relaxed);
}

void advised::counts::show(emuv_advice_stats &out) const
{
    out.accesses = accesses.load();
    out.hit_bytes[EMUV_TIER_VRAM] = vram_bytes.load();
    out.hit_bytes[EMUV_TIER_RAM] = ram_bytes.load();
    out.hit_bytes[EMUV_TIER_CARD] = card_bytes.load();
}

// ---- Allocations: memory that has no mover stays as it is

// Adds the identity, of the part at an address where the program's own
// allocator divides the allocation.
// @return false if the allocation has gone meanwhile
bool advised::identify(memory::told_of &of, CUdeviceptr at)
{
    mover *const moves = of.is_range ? table_.moving().of(of.device) : nullptr;
    if (moves == nullptr)
        return true;
    of.identity = moves->identify(at);
    // A range enters the table behind its mover's block, and leaves it first.
    return is_there(of);
}

bool advised::is_there(const memory::told_of &of)
{
    memory::told_of now;
    return table_.find(of.base, now) && now.serial == of.serial;
}

mover *advised::mover_of(const record &which) const
{
    return which.of.identity != 0 ? table_.moving().of(which.of.device)
                                  : nullptr;
}

mover::answer advised::advise(const record &which, hint what)
{
    if (mover *const moves = mover_of(which))
        return moves->advise(to_the_end(which.of, which.in), what);
    return is_there(which.of) ? mover::answer::done : mover::answer::gone;
}

void advised::take_back(const record &which)
{
    if (mover *const moves = mover_of(which))
        moves->forget_advice(to_the_end(which.of, which.in), which.said);
}

// The same as whereabouts_of(). They are used about now.
std::optional<advised::whereabouts> advised::access(const record &which)
{
    if (mover *const moves = mover_of(which))
        return moves->access(which.in);
    return whereabouts_of(which);
}

// The places of a key's bytes, and their units' moves so far.
// @return nothing where the allocation is gone
std::optional<advised::whereabouts> advised::whereabouts_of(const record &which)
{
    if (mover *const moves = mover_of(which))
        return moves->find(which.in);
    const memory::told_of &of = which.of;
    if (!is_there(of))
        return {};
    whereabouts out;
    CUdeviceptr at = which.in.at;
    std::uint64_t bytes = which.in.bytes;
    while (bytes > 0) {
        const auto found =
            of.is_range ? table_.stretch_at(at) : std::optional<stretch>();
        if (of.is_range && !found) // it goes just now
            return {};
        const std::uint64_t here =
            found && found->bytes > 0 ? std::min(bytes, found->bytes) : bytes;
        const bool in_ram = found ? found->in_ram : of.in_ram;
        (in_ram ? out.ram_bytes : out.vram_bytes) += here;
        at += here;
        bytes -= here;
    }
    if (out.ram_bytes > 0) {
        out.card_bytes = std::min(
            table_.lent_bytes(which.in.at, which.in.bytes), out.ram_bytes);
        out.ram_bytes -= out.card_bytes;
    }
    return out;
}

// ---- Keys

int advised::add(CUdeviceptr at, std::uint64_t bytes, int priority,
                 std::uint64_t &key)
{
    key = EMUV_ADVICE_NONE;
    if (priority < advice::lowest || priority > advice::highest)
        return EMUV_ADVICE_VALUE;
    record_ref made(new record);
    memory::told_of &of = made->of;
    if (!table_.find(at, of))
        return EMUV_ADVICE_ADDRESS;
    if (bytes == 0 || bytes > of.bytes - (at - of.base))
        return EMUV_ADVICE_RANGE;
    if (!identify(of, at))
        return EMUV_ADVICE_ADDRESS;
    made->in = {at, bytes, of.identity};
    made->said.priority = priority;
    const auto found = whereabouts_of(*made);
    mover *const moves = mover_of(*made);
    if (!found ||
        (moves != nullptr && moves->rank(to_the_end(of, made->in), priority) ==
                                 mover::answer::gone))
        return EMUV_ADVICE_ADDRESS;
    made->before = found->moved;
    {
        const std::lock_guard guard(lock_);
        if (unused_.empty() && keys_.size() < most_keys) {
            unused_.push_back(static_cast<std::uint32_t>(keys_.size()));
            keys_.emplace_back();
        }
        if (!unused_.empty()) {
            made->key = ++last_ * most_keys + unused_.back();
            keys_[unused_.back()] = made;
            unused_.pop_back();
        }
    }
    if (made->key == EMUV_ADVICE_NONE) {
        take_back(*made);
        return EMUV_ADVICE_FULL;
    }
    key = made->key;
    return EMUV_ADVICE_OK;
}

// Says once what lasts, however often the program says so.
int advised::tell_lasting(record &which, hint what)
{
    const std::lock_guard guard(lasting_);
    bool &said =
        what == hint::read_mostly ? which.said.read_mostly : which.said.pinned;
    const bool next = what != hint::unpin;
    if (which.gone)
        return EMUV_ADVICE_KEY;
    if (said == next) {
        // The answer says whether the memory is there all the same.
        return whereabouts_of(which) ? EMUV_ADVICE_OK : EMUV_ADVICE_FREED;
    }
    const auto answer = advise(which, what);
    if (answer == mover::answer::done)
        said = next;
    return result_of(answer);
}

int advised::forget(std::uint64_t key)
{
    record_ref gone;
    {
        const std::lock_guard guard(lock_);
        const std::uint64_t at = index_of(key);
        if (at >= keys_.size() || !keys_[at] || keys_[at]->key != key)
            return EMUV_ADVICE_KEY;
        gone = std::exchange(keys_[at], {});
        unused_.push_back(static_cast<std::uint32_t>(at));
    }
    const std::lock_guard guard(lasting_);
    gone->gone = true;
    take_back(*gone);
    return EMUV_ADVICE_OK;
}

advised::record_ref advised::find(std::uint64_t key)
{
    const std::lock_guard guard(lock_);
    const std::uint64_t at = index_of(key);
    return at < keys_.size() && keys_[at] && keys_[at]->key == key
               ? keys_[at]
               : record_ref();
}

int advised::tell(std::uint64_t key, hint what)
{
    const record_ref which = find(key);
    if (!which)
        return EMUV_ADVICE_KEY;
    switch (what) {
    case hint::access:
        if (const auto found = access(*which)) {
            which->used.add(*found);
            all_.add(*found);
            return EMUV_ADVICE_OK;
        }
        return EMUV_ADVICE_FREED;
    case hint::read_mostly:
    case hint::pin:
    case hint::unpin:
        return tell_lasting(*which, what);
    case hint::discard: {
        // Once its key is forgotten, the memory may have another owner.
        const std::lock_guard guard(lasting_);
        return which->gone ? EMUV_ADVICE_KEY : result_of(advise(*which, what));
    }
    default:
        return result_of(advise(*which, what));
    }
}

int advised::where(std::uint64_t key, emuv_advice_place &out)
{
    const record_ref which = find(key);
    if (!which)
        return EMUV_ADVICE_KEY;
    const auto found = whereabouts_of(*which);
    if (!found)
        return EMUV_ADVICE_FREED;
    out.bytes[EMUV_TIER_VRAM] = found->vram_bytes;
    out.bytes[EMUV_TIER_RAM] = found->ram_bytes;
    out.bytes[EMUV_TIER_CARD] = found->card_bytes;
    out.tier = EMUV_TIER_VRAM;
    for (const std::uint32_t each : {EMUV_TIER_RAM, EMUV_TIER_CARD})
        if (out.bytes[each] > out.bytes[out.tier])
            out.tier = each;
    return EMUV_ADVICE_OK;
}

int advised::stats(std::uint64_t key, emuv_advice_stats &out)
{
    moves moved;
    out.moves = table_.moving().empty() ? 0 : 1;
    if (key == EMUV_ADVICE_ALL) {
        all_.show(out);
        moved = table_.moving().moved();
    } else {
        const record_ref which = find(key);
        if (!which)
            return EMUV_ADVICE_KEY;
        const auto found = whereabouts_of(*which);
        if (!found)
            return EMUV_ADVICE_FREED;
        which->used.show(out);
        moved = found->moved;
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

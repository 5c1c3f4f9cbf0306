// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that others made, and this program opened.
#include "memory/foreign.hpp"

#include "memory/mappings.hpp"

#include <algorithm>
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

bool foreign::open(const key &which, const opening &where, std::uint64_t bytes)
{
    if (!counts_)
        return true;
    {
        const std::lock_guard guard(lock_);
        if (has_gone_locked(where))
            return true;
        auto there = open_.find(which);
        if (there == open_.end()) {
            there = open_.emplace(which, opened_ref(new opened_memory));
            there->second->where = where;
        }
        there->second->opened++;
        there->second->uses++;
    }
    if (grow(which, bytes))
        return true;
    if (const opened_ref taken = take(which))
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
    // A handle of that number may be there, of the same memory: it was opened
    // anew since it was mapped.
    auto there = open_.find(which);
    if (there == open_.end())
        there = open_.emplace(which, found.of);
    there->second->opened++;
    there->second->uses++;
}

// A charge may wait for room, so it is made without the lock.
bool foreign::grow(const key &which, std::uint64_t bytes)
{
    for (;;) {
        opened_ref of;
        std::uint64_t before = 0;
        {
            const std::lock_guard guard(lock_);
            const auto found = open_.find(which);
            if (found == open_.end() || found->second->bytes >= bytes)
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

foreign::table::iterator foreign::find_in(table &all, const key &which)
{
    const auto [first, end] = all.equal_range(which);
    return first != end ? std::prev(end) : all.end();
}

bool foreign::is_in(const opened_memory &of, CUcontext context)
{
    return context != nullptr && of.where.context == context;
}

bool foreign::has_gone_locked(const opening &where) const
{
    const auto found = gone_.find(where.context);
    return where.context != nullptr && found != gone_.end() &&
           where.serial < found->second;
}

// The driver may give the number to others before its answer is here. So the
// memory has no number meanwhile if this is the last time that it is open.
foreign::opened_ref foreign::take(const key &which)
{
    const std::lock_guard guard(lock_);
    table *from = &open_;
    auto found = find_in(open_, which);
    if (found == open_.end()) {
        from = &going_;
        found = find_in(going_, which);
        if (found == going_.end())
            return {};
    }
    opened_ref taken = found->second;
    if (--taken->opened == 0)
        from->erase(found);
    return taken;
}

void foreign::put_back(const key &which, const opened_ref &taken)
{
    const std::lock_guard guard(lock_);
    if (taken->uses == 0) // its context has gone
        return;
    if (has_gone_locked(taken->where)) { // while it had no number
        let_go_of_all_locked(*taken);
        return;
    }
    const auto there = open_.find(which);
    // Another thread has opened it meanwhile.
    if (there != open_.end() && there->second != taken) {
        there->second->opened++;
        there->second->uses++;
        let_go_locked(*taken);
        return;
    }
    if (taken->opened++ == 0)
        open_.emplace(which, taken);
}

void foreign::let_go(opened_memory &of)
{
    const std::lock_guard guard(lock_);
    let_go_locked(of);
}

void foreign::let_go_locked(opened_memory &of)
{
    if (of.uses == 0 || --of.uses > 0)
        return;
    if (of.bytes > 0)
        uncharge(of.where.device, of.bytes);
    of.bytes = 0;
}

// However often it was opened.
void foreign::let_go_of_all_locked(opened_memory &of)
{
    of.uses = std::min(of.uses, 1U);
    let_go_locked(of);
}

void foreign::mapped(CUdeviceptr at, std::uint64_t bytes, const key &which)
{
    if (!counts_ || bytes == 0)
        return;
    const std::lock_guard guard(lock_);
    const auto found = open_.find(which);
    if (found == open_.end())
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

void foreign::context_ends(CUcontext context)
{
    const std::lock_guard guard(lock_);
    for (auto each = open_.begin(); each != open_.end();) {
        const auto next = std::next(each);
        if (is_in(*each->second, context))
            going_.insert(open_.extract(each));
        each = next;
    }
}

void foreign::context_stays(CUcontext context)
{
    const std::lock_guard guard(lock_);
    for (auto each = going_.begin(); each != going_.end();) {
        const auto next = std::next(each);
        if (is_in(*each->second, context)) {
            const auto there = open_.find(each->first);
            if (there == open_.end()) {
                open_.insert(going_.extract(each));
            } else { // opened once more meanwhile
                there->second->opened += each->second->opened;
                there->second->uses += each->second->uses;
                let_go_of_all_locked(*each->second);
                going_.erase(each);
            }
        }
        each = next;
    }
}

void foreign::context_gone(CUcontext context, std::uint64_t before)
{
    if (!counts_ || context == nullptr)
        return;
    const std::lock_guard guard(lock_);
    std::uint64_t &last = gone_[context];
    last = std::max(last, before);
    for (table *const all : {&open_, &going_})
        for (auto each = all->begin(); each != all->end();) {
            const auto next = std::next(each);
            opened_memory &of = *each->second;
            if (is_in(of, context) && of.where.serial < before) {
                let_go_of_all_locked(of);
                all->erase(each);
            }
            each = next;
        }
}

} // namespace emuv::cuda

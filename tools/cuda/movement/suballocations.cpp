// SPDX-License-Identifier: LGPL-2.1-or-later
// Parts of allocations that the program's own allocator hands out, and takes
// back.
#include "base/captures.hpp"
#include "movement/mover.hpp"

#include <algorithm>
#include <cstring>

#include <pthread.h>

namespace emuv::cuda {

namespace {

// True if a kernel has iterators of C++ that go backward: those hold the end of
// what they go through.
bool counts_back(const work &announced)
{
    return announced.kernel != nullptr &&
           std::strstr(announced.kernel, "reverse_iterator") != nullptr;
}

// True if work is given an address in an allocation of a block.
bool is_given_any(const work &announced, CUdeviceptr base, const lot &which)
{
    const CUdeviceptr *const first = announced.addresses.data();
    return std::any_of(first, first + announced.count, [&](CUdeviceptr each) {
        return each - base - which.begin < which.end - which.begin;
    });
}

} // namespace

// The block that parts are handed out of. In a capture nothing is learned: what
// is free after it, the graph uses as if it were not.
block *mover::divided_around(CUdeviceptr at, std::uint64_t bytes)
{
    block *const of = blocks_.around(at);
    if (of == nullptr || of->small || bytes == 0 ||
        bytes > of->bytes - (at - of->base) ||
        of->divided == division::by_nobody)
        return nullptr;
    if (open_captures.load() > 0) {
        unite(*of);
        return nullptr;
    }
    return of;
}

void mover::hand_out(CUdeviceptr at, std::uint64_t bytes)
{
    const std::unique_lock lock = enter();
    block *const of = divided_around(at, bytes);
    if (of == nullptr)
        return;
    const std::uint64_t begin = at - of->base;
    const std::uint64_t end = begin + bytes;
    // PyTorch restores the state of a pool so: it takes all back, and hands all
    // out as it was, part by part. Memory there counts.
    if (forget_taken_back([&](const taken_back &each) {
            return &*each.of == of && each.begin == begin && each.end == end;
        }) > 0)
        return;
    settle_taken_back_if([&](const taken_back &each) {
        return &*each.of == of && each.begin < end && each.end > begin;
    });
    if (of->divided == division::by_us && !begin_division(*of, begin))
        return;
    const lot &around = of->lot_at(at);
    if (!around.vacant || around.end < end)
        unite(*of);
    else
        vacant_ -= of->occupy(begin, end, ++last_identity_);
    version_++;
}

void mover::take_back(CUdeviceptr at, std::uint64_t bytes)
{
    const std::unique_lock lock = enter();
    block *const of = divided_around(at, bytes);
    if (of == nullptr || of->divided != division::by_program)
        return;
    const std::uint64_t begin = at - of->base;
    const lot &freed = of->lot_at(at);
    const auto is_this = [&](const taken_back &each) {
        return &*each.of == of && each.begin == begin;
    };
    if (freed.vacant || freed.begin != begin || freed.end != begin + bytes ||
        (of->taken_back > 0 &&
         std::any_of(taken_back_.begin(), taken_back_.end(), is_this))) {
        unite(*of);
        return;
    }
    of->taken_back++;
    taken_back_.push_back(
        {block_ref(of), begin, begin + bytes, pthread_self()});
}

// @return how many there were
template <typename Which>
std::size_t mover::forget_taken_back(Which which)
{
    return std::erase_if(taken_back_, [&](const taken_back &each) {
        const bool goes = which(each);
        each.of->taken_back -= goes ? 1 : 0;
        return goes;
    });
}

// Parts that are free from here on.
template <typename Which>
void mover::settle_taken_back_if(Which which)
{
    for (const taken_back &each : taken_back_)
        if (which(each))
            vacate(*each.of, each.of->lot_at(each.of->base + each.begin),
                   !gated_.empty());
    forget_taken_back(which);
}

// The first part of a block is handed out. Memory that the allocator has from
// others, who may use the rest, is no block of its own.
// @return false if it is not divided
bool mover::begin_division(block &of, std::uint64_t begin)
{
    // Memory in stream order is divided already, or will be.
    if (of.is_divided() || of.lots.front().vacant)
        return false;
    const pthread_t self = pthread_self();
    if (begin != 0 || std::none_of(made_last_.begin(), made_last_.end(),
                                   [&](const made_by &each) {
                                       return each.base == of.base &&
                                              pthread_equal(each.by, self) != 0;
                                   })) {
        unite(of);
        return false;
    }
    vacate(of, of.lots.front(), false); // nobody has used it
    of.divided = division::by_program;
    return true;
}

// The calling thread has made a block.
void mover::note_made(CUdeviceptr base)
{
    const pthread_t self = pthread_self();
    const auto found = std::find_if(
        made_last_.begin(), made_last_.end(), [self](const made_by &each) {
            return pthread_equal(each.by, self) != 0;
        });
    if (found != made_last_.end())
        found->base = base;
    else
        made_last_.push_back({self, base});
}

// A thread that goes on with other work takes back nothing that it has freed.
void mover::settle_taken_back()
{
    if (taken_back_.empty())
        return;
    const pthread_t self = pthread_self();
    settle_taken_back_if([self](const taken_back &each) {
        return pthread_equal(each.by, self) != 0;
    });
}

// From here on the word of the program's allocator about a block counts no
// more.
void mover::unite(block &of)
{
    if (of.divided == division::by_us && of.is_divided())
        return; // see hand_out()
    forget_taken_back(of);
    if (of.divided == division::by_program) {
        vacant_ -= of.unite(++last_identity_);
        forget_advice(of, of.all());
    }
    of.divided = division::by_nobody;
    version_++;
}

void mover::forget_taken_back(const block &of)
{
    if (of.taken_back > 0)
        forget_taken_back(
            [&](const taken_back &each) { return &*each.of == &of; });
}

// Work is given an address in a block that the program's allocator divides. In
// a part that is free, it may only be the end of the part before, which the
// work is given, too. Otherwise whoever divides the block uses more than it
// says, as graphs do. The begin of a part is the end of the part before as
// well, to kernels that count back.
// @return true if the work reaches memory there
bool mover::reaches_memory_in(block &of, CUdeviceptr address,
                              const work &announced)
{
    if (of.divided != division::by_program)
        return true;
    const lot &meant = of.lot_at(address);
    const std::uint64_t offset = address - of.base;
    const bool is_end = offset == meant.begin && offset > 0;
    if (!meant.vacant && !(is_end && counts_back(announced)))
        return true;
    // Copies and fills are given no ends.
    const bool may_be_end = meant.vacant && announced.kernel != nullptr;
    if (may_be_end &&
        (offset == of.bytes ||
         (is_end && is_given_any(announced, of.base, of.lot_at(address - 1)))))
        return false;
    unite(of);
    return true;
}

// True if an address is where the part before ends, of which the work is given
// an address, too. A loop may go by the end alone, and only compare with the
// begin: then the proof calls that no pointer.
bool mover::is_end_of_given(const block &of, CUdeviceptr address,
                            const work &announced)
{
    if (!announced.goes_by_pointers() || !of.is_divided() || address == of.base)
        return false;
    const lot &before = of.lot_at(address - 1);
    return before.end == address - of.base && !before.vacant &&
           is_given_any(announced, of.base, before);
}

// An address a little before a part may be the part's, for a kernel that adds
// to it. The driver gives each allocation of its own a distance to others.
void mover::add_next_part(block &of, CUdeviceptr address,
                          std::vector<touched> &all)
{
    if (of.divided != division::by_program)
        return;
    const lot &meant = of.lot_at(address);
    const std::uint64_t offset = address - of.base;
    if (offset == meant.begin || offset + guard_bytes <= meant.end ||
        meant.end == of.bytes)
        return;
    const CUdeviceptr next = of.base + meant.end;
    if (!of.lot_at(next).vacant &&
        std::none_of(all.begin(), all.end(), [next](const touched &each) {
            return each.begin == next;
        }))
        all.emplace_back(of, next);
}

} // namespace emuv::cuda

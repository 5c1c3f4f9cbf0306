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
    const auto is_of = [of](const taken_back &each) { return &*each.of == of; };
    // PyTorch restores the state of a pool so, and memory there counts.
    if (std::erase_if(taken_back_, [&](const taken_back &each) {
            return is_of(each) && each.begin == begin && each.end == end;
        }) > 0)
        return;
    settle_taken_back_if(is_of);
    if (of->divided == division::by_us) {
        // Memory in stream order is divided already, or will be.
        if (of->is_divided() || of->lots.front().vacant)
            return;
        vacate(*of, of->lots.front());
        of->divided = division::by_program;
    }
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
    const bool is_handed_out =
        !freed.vacant && freed.begin == begin && freed.end == begin + bytes &&
        std::none_of(taken_back_.begin(), taken_back_.end(),
                     [&](const taken_back &each) {
                         return &*each.of == of && each.begin == begin;
                     });
    if (!is_handed_out)
        unite(*of);
    else
        taken_back_.push_back(
            {block_ref(of), begin, begin + bytes, pthread_self()});
}

// Parts that are free from here on.
template <typename Which>
void mover::settle_taken_back_if(Which which)
{
    for (const taken_back &each : taken_back_)
        if (which(each))
            vacate(*each.of, each.of->lot_at(each.of->base + each.begin));
    std::erase_if(taken_back_, which);
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
    std::erase_if(taken_back_,
                  [&](const taken_back &each) { return &*each.of == &of; });
    if (of.divided == division::by_program)
        vacant_ -= of.unite(++last_identity_);
    of.divided = division::by_nobody;
    version_++;
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
    if (meant.vacant && offset == of.bytes)
        return false;
    if (meant.vacant && is_end &&
        is_given_any(announced, of.base, of.lot_at(address - 1)))
        return false;
    unite(of);
    return true;
}

} // namespace emuv::cuda

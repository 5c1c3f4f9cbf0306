// SPDX-License-Identifier: LGPL-2.1-or-later
// All memory that the program holds: its place, and its charge.
#include "memory/memory.hpp"

#include "base/around.hpp"
#include "base/captures.hpp"
#include "base/size.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace emuv::cuda {

memory::memory(const options &asked)
    : calls_(asked.calls), budget_(asked.shares), movers_(asked.movers),
      first_spill_(calls_, asked.host, asked.notice),
      refusals_(budget_, asked.refused), exportable_(asked.exportable),
      handles_(calls_, budget_, asked.host, first_spill_),
      foreign_(budget_, asked.counts_foreign),
      ranges_({.calls = calls_,
               .shares = budget_,
               .host = asked.host,
               .moving = movers_,
               .spills = first_spill_}),
      pieces_(ranges_), order_(calls_, budget_, movers_, next_serial_)
{
    // Memory that is kept for later makes way before memory that movement
    // needs.
    budget_.add(*this);
    budget_.add(movers_);
}

void memory::context_ends(CUcontext context)
{
    for (mover *each : movers_)
        each->stop(context);
    foreign_.context_ends(context);
}

void memory::context_stays(CUcontext context)
{
    for (mover *each : movers_)
        each->resume(context);
    foreign_.context_stays(context);
}

// ---- Plain allocations

CUresult memory::allocate(CUdeviceptr *pointer, std::uint64_t bytes)
{
    collect(false);
    const int device = current_device(calls_);
    if (bytes >= chunk_bytes && budget_.is_refused(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return refusals_.answered(allocate_plain(pointer, bytes, device), device,
                              bytes, first_refusal::kinds::both);
}

CUresult memory::allocate_plain(CUdeviceptr *pointer, std::uint64_t bytes,
                                int device)
{
    const bool large = bytes >= chunk_bytes;
    if (large && !exportable_)
        return allocate_range(pointer, bytes, device, placing::vram_first);
    // The driver, too, takes whole chunks for a large one. A size that wraps is
    // not to be had in any case.
    const std::uint64_t taken =
        std::max(large ? round_up(bytes, chunk_bytes) : bytes, bytes);
    if (budget_.charge_vram(device, taken)) {
        const CUresult result = calls_.cuMemAlloc_v2(pointer, bytes);
        if (result == CUDA_SUCCESS) {
            remember(*pointer, taken, device, {});
            return result;
        }
        budget_.uncharge_vram(device, taken);
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            return result;
    }
    return large ? allocate_range(pointer, bytes, device, placing::vram_first)
                 : allocate_host(pointer, bytes, device);
}

CUresult memory::allocate_pitch(CUdeviceptr *pointer, std::size_t *pitch,
                                std::size_t width, std::size_t height,
                                unsigned element_bytes)
{
    // The driver's rule for pitches is its own, so it is asked once for each
    // element size. Its answer to bad arguments is passed on, too.
    std::size_t wide = 0;
    const bool known =
        element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    const auto index = static_cast<std::size_t>(
        known ? std::countr_zero(element_bytes) - 2 : 0);
    {
        const std::lock_guard guard(lock_);
        wide = known ? pitch_alignment_[index] : 0;
    }
    if (wide == 0) {
        CUdeviceptr probe = 0;
        const CUresult result =
            calls_.cuMemAllocPitch_v2(&probe, &wide, 1, 1, element_bytes);
        if (result != CUDA_SUCCESS)
            return result;
        calls_.cuMemFree_v2(probe);
        const std::lock_guard guard(lock_);
        if (known && std::has_single_bit(wide))
            pitch_alignment_[index] = wide;
    }
    std::size_t row = 0;
    std::size_t bytes = 0;
    // This is more than an address can count, and the driver has an answer to
    // it.
    if (__builtin_add_overflow(width, wide - 1, &row) ||
        __builtin_mul_overflow(row / wide * wide, height, &bytes))
        return calls_.cuMemAllocPitch_v2(pointer, pitch, width, height,
                                         element_bytes);
    row = row / wide * wide;
    const CUresult result = allocate(pointer, bytes);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

CUresult memory::free(CUdeviceptr pointer)
{
    if (order_.has(pointer))
        return CUDA_ERROR_INVALID_VALUE;
    collect(false);
    // It leaves the table first. If the address is freed again, the
    // driver then gives its answer to an unknown address.
    allocations::node_type ours = take_ours(pointer);
    if (ours.empty())
        return free_counted(pointer, allocations_,
                            [&] { return calls_.cuMemFree_v2(pointer); });
    const allocation &of = ours.mapped();
    // cuMemFree waits for the kernels that may still use the memory. Unmapping
    // does not wait, and would kill them.
    const CUresult waited = synchronize(of.context);
    if (waited == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
        // Nobody waits while a stream is captured. The memory stays, as with
        // cuMemFree.
        put_back(std::move(ours));
        return waited;
    }
    order_.count_freed(of);
    budget_.returned(of.device, of.bytes);
    const CUresult dropped = drop(std::move(ours));
    return waited != CUDA_SUCCESS ? waited : dropped;
}

CUresult memory::synchronize(CUcontext context) const
{
    CUcontext current = nullptr;
    calls_.cuCtxGetCurrent(&current);
    if (current == context)
        return calls_.cuCtxSynchronize();
    CUresult result = calls_.cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = calls_.cuCtxSynchronize();
    calls_.cuCtxPopCurrent_v2(&context);
    return result;
}

// ---- Ranges and pieces

allocation memory::all_of(const range &made, std::uint64_t bytes, int device)
{
    return {.made_by = allocation::maker::range,
            .bytes = bytes,
            .device = device,
            .context = made.context,
            .reserved_bytes = made.bytes,
            .spilled = made.spilled};
}

CUresult memory::allocate_range(CUdeviceptr *pointer, std::uint64_t bytes,
                                int device, placing where)
{
    range made;
    const CUresult result = ranges_.make(bytes, device, where, made);
    if (result != CUDA_SUCCESS)
        return result;
    *pointer = made.base;
    enter(allocations_, made.base, all_of(made, bytes, device));
    return CUDA_SUCCESS;
}

// System RAM, in whole chunks or in pieces of one.
CUresult memory::allocate_host(CUdeviceptr *pointer, std::uint64_t bytes,
                               int device)
{
    if (bytes >= chunk_bytes)
        return allocate_range(pointer, bytes, device, placing::ram);
    pieces::piece made;
    const CUresult result = pieces_.make(bytes, device, made);
    if (result != CUDA_SUCCESS)
        return result;
    *pointer = made.at;
    enter(allocations_, made.at,
          {.made_by = allocation::maker::piece,
           .bytes = bytes,
           .device = device,
           .context = current_context(calls_),
           .chunk = made.chunk,
           .spilled = true});
    return CUDA_SUCCESS;
}

// No work may use it any more. A part of a range is kept, as long as others
// have the rest.
CUresult memory::drop(allocations::node_type gone)
{
    // Others of its context may have gone with that.
    if (!ranges_.is_going(gone.key()))
        order_.keep_for_all(gone);
    return gone.empty() ? CUDA_SUCCESS : drop(gone.key(), gone.mapped());
}

CUresult memory::drop(CUdeviceptr at, const allocation &gone)
{
    return gone.made_by == allocation::maker::piece
               ? pieces_.drop({at, gone.chunk, gone.bytes})
               : ranges_.let_go(at, gone.reserved_bytes);
}

// ---- Stream order

CUresult memory::allocate_in_order(CUdeviceptr *pointer, std::uint64_t bytes,
                                   int device, CUstream stream)
{
    collect(false);
    return refusals_.answered(make_in_order(pointer, bytes, device, stream),
                              device, bytes, first_refusal::kinds::both);
}

// Makes a range. One that several share is made only where there is room for
// it: nothing makes way for it. It is not the first memory to spill, either.
CUresult memory::make_in_order(CUdeviceptr *pointer, std::uint64_t bytes,
                               int device, CUstream stream)
{
    const std::uint64_t shared = order_.shared_for(bytes);
    const usage now = budget_.ledger_of(device).read();
    const std::uint64_t free_bytes =
        now.physical_free_bytes() +
        (ranges_.has_seams() ? now.virtual_free_bytes() : 0);
    range made;
    if (shared > 0 && shared <= free_bytes &&
        ranges_.try_make(shared, device, placing::vram_first, made) ==
            CUDA_SUCCESS) {
        if (!made.moves) {
            ranges_.drop(made.base);
        } else {
            allocation entered = all_of(made, bytes, device);
            entered.in_order = true;
            entered.range = {made.base, made.bytes};
            entered.serial = next_serial();
            order_.divide(made.base, entered, stream);
            enter_in_order(pointer, made.base, entered);
            return CUDA_SUCCESS;
        }
    }
    const CUresult result =
        ranges_.make(bytes, device, placing::vram_first, made);
    if (result != CUDA_SUCCESS)
        return result;
    allocation entered = all_of(made, bytes, device);
    entered.in_order = true;
    enter_in_order(pointer, made.base, entered);
    return CUDA_SUCCESS;
}

void memory::enter_in_order(CUdeviceptr *pointer, CUdeviceptr at,
                            const allocation &made)
{
    *pointer = at;
    order_.count_made(made);
    enter(allocations_, at, made);
}

bool memory::take_kept(CUdeviceptr *pointer, std::uint64_t bytes,
                       CUstream stream)
{
    allocations::node_type taken = order_.take(bytes, stream);
    if (taken.empty())
        return false;
    *pointer = taken.key();
    const std::lock_guard guard(lock_);
    taken.mapped().serial = next_serial_++;
    allocations_.insert(std::move(taken));
    return true;
}

// Settles an allocation from a pool with the driver's answer.
// @return whether that is the program's answer, too
bool memory::end_pooled(const ordered &asked, CUdeviceptr at, CUresult result)
{
    const bool granted = result == CUDA_SUCCESS;
    const int device = asked.from.device;
    std::uint64_t number = 0;
    const bool fits =
        budget_.stream_pools().end(asked.from, asked.bytes, granted, number);
    if (granted && fits)
        remember(at, asked.bytes, device, {charge_kind::pooled, number},
                 asked.is_kept);
    else if (granted)
        order_.hand_back(at, asked.stream, device);
    return granted ? fits : result != CUDA_ERROR_OUT_OF_MEMORY;
}

// Keeps memory that was made in stream order, in the current context, for the
// next request in that stream.
bool memory::keep(CUdeviceptr pointer, CUstream stream)
{
    CUcontext context = nullptr;
    if (!order_.keeps_for(stream) || !order_.is_current(stream) ||
        calls_.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return false;
    allocations::node_type freed;
    {
        const std::lock_guard guard(lock_);
        const auto found = allocations_.find(pointer);
        if (found == allocations_.end() || !found->second.in_order ||
            found->second.context != context)
            return false;
        freed = allocations_.extract(found);
    }
    order_.keep(std::move(freed), stream);
    return true;
}

CUresult memory::leave(allocations::node_type ours, CUstream stream)
{
    const CUresult result = order_.leave(ours, stream);
    if (result != CUDA_SUCCESS)
        put_back(std::move(ours));
    return result;
}

// Drops memory that was freed in stream order, once its stream has come that
// far; with @p wait, all of it.
// @return whether anything was dropped
bool memory::collect(bool wait)
{
    const beside_captures apart(calls_);
    budget_.stream_pools().settle();
    auto gone = order_.take_gone(wait);
    for (auto &each : gone) {
        const allocation &of = each.mapped();
        budget_.returned(of.device, of.bytes);
        drop(std::move(each));
    }
    return !gone.empty();
}

bool memory::give_up(int)
{
    order_.give_up_all();
    return collect(true);
}

// ---- The table

// Takes memory that we placed out of the table.
allocations::node_type memory::take_ours(CUdeviceptr pointer)
{
    const std::lock_guard guard(lock_);
    const auto found = allocations_.find(pointer);
    return found != allocations_.end() && found->second.is_ours()
               ? allocations_.extract(found)
               : allocations::node_type();
}

void memory::put_back(allocations::node_type taken)
{
    const std::lock_guard guard(lock_);
    allocations_.insert(std::move(taken));
}

void memory::enter(allocations &table, CUdeviceptr key, allocation made)
{
    const std::lock_guard guard(lock_);
    made.serial = next_serial_++;
    table[key] = made;
}

void memory::remember(CUdeviceptr at, std::uint64_t bytes, int device,
                      const charge &taken, bool in_order)
{
    enter(allocations_, at,
          {.bytes = bytes,
           .device = device,
           .context = current_context(calls_),
           .taken = taken,
           .reserved_bytes = in_order ? bytes : 0,
           .in_order = in_order});
}

bool memory::is_allocation(CUdeviceptr at, std::uint64_t bytes)
{
    {
        const std::lock_guard guard(lock_);
        if (any_within(allocations_, at, bytes, &allocation::range_bytes))
            return true;
    }
    return pieces_.touches(at, bytes);
}

bool memory::find(CUdeviceptr address, allocation_view &view)
{
    {
        const std::lock_guard guard(lock_);
        const auto found =
            around(allocations_, address, &allocation::our_bytes);
        if (found != allocations_.end()) {
            const allocation &of = found->second;
            view = {.base = found->first,
                    .bytes = of.bytes,
                    .device = of.device,
                    .context = of.context,
                    .split = true,
                    .host = of.spilled,
                    .serial = of.serial};
            return true;
        }
    }
    return handles_.find(address, view);
}

// A chunk of pieces has none: it is no allocation.
std::optional<stretch> memory::stretch_at(CUdeviceptr at)
{
    {
        const std::lock_guard guard(lock_);
        if (around(allocations_, at, &allocation::range_bytes) ==
            allocations_.end())
            return {};
    }
    return ranges_.stretch_at(at);
}

bool memory::find(CUdeviceptr address, told_of &out)
{
    {
        const std::lock_guard guard(lock_);
        const auto found = around(allocations_, address, &allocation::bytes);
        if (found != allocations_.end()) {
            const allocation &of = found->second;
            const std::uint64_t range = of.range_bytes();
            out = {.base = found->first,
                   .bytes = of.bytes,
                   .whole_bytes = range > 0 ? range : of.bytes,
                   .device = of.device,
                   .serial = of.serial,
                   .is_range = range > 0,
                   .in_ram = of.made_by == allocation::maker::piece ||
                             of.taken.kind == charge_kind::host};
            return true;
        }
    }
    allocation_view view;
    if (!handles_.find(address, view))
        return false;
    out = {.base = view.base,
           .bytes = view.bytes,
           .whole_bytes = view.bytes,
           .device = view.device,
           .serial = view.serial,
           .is_range = false,
           .in_ram = view.host};
    return true;
}

void memory::show_info(int device, std::size_t &real_free,
                       std::size_t &real_total)
{
    collect(false);
    budget_.follow_footprint(device);
    const std::uint64_t kept =
        order_.spare_bytes(device) + movers_.spare_bytes(device);
    budget_.show_info(device, kept, real_free, real_total);
}

void memory::context_gone(CUcontext context, std::uint64_t before)
{
    for (mover *each : movers_)
        each->gone(context);
    budget_.forget_context(context);
    foreign_.context_gone(context, before);
    const auto lost = [=](const allocation &each) {
        return each.context == context && each.serial < before;
    };
    std::vector<allocations::node_type> gone;
    {
        const std::lock_guard guard(lock_);
        for (allocations *table : {&allocations_, &arrays_})
            for (auto each = table->begin(); each != table->end();) {
                const auto next = std::next(each);
                if (lost(each->second))
                    gone.push_back(table->extract(each));
                each = next;
            }
    }
    for (const auto &each : gone)
        if (each.mapped().is_ours())
            order_.count_freed(each.mapped());
    for (auto &each : order_.context_gone(context, before))
        gone.push_back(std::move(each));
    for (const auto &each : gone)
        give_back(each.key(), each.mapped());
    budget_.shrink_footprints();
}

void memory::give_back(CUdeviceptr key, const allocation &gone)
{
    if (gone.is_ours())
        drop(key, gone);
    else
        budget_.give_back(gone.device, gone.bytes, gone.taken);
}

CUresult memory::create_handle(CUmemGenericAllocationHandle *handle,
                               std::size_t bytes,
                               const CUmemAllocationProp &properties,
                               unsigned long long flags)
{
    collect(false);
    return refusals_.answered(handles_.create(handle, bytes, properties, flags),
                              properties.location.id, bytes,
                              handles_.can_be_host(bytes, properties)
                                  ? first_refusal::kinds::both
                                  : first_refusal::kinds::vram);
}

} // namespace emuv::cuda

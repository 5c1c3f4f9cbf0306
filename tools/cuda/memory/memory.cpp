// SPDX-License-Identifier: LGPL-2.1-or-later
// Every piece of memory the program holds: where it lies, what it is charged.
#include "memory/memory.hpp"

#include "base/around.hpp"
#include "base/captures.hpp"
#include "base/current.hpp"
#include "base/size.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace emuv::cuda {

memory::memory(const driver &calls, std::vector<ledger *> ledgers, store &host,
               report_kind report, void (*notice)(const spill_notice &),
               bool exportable, std::vector<mover *> movers,
               bool (*asks_again)(), std::vector<footprint *> footprints)
    : calls_(calls), host_(host), movers_(std::move(movers)),
      budget_({calls, std::move(ledgers), std::move(footprints), report,
               asks_again}),
      first_spill_(calls, host, notice), exportable_(exportable),
      graphs_(calls, budget_.stream_pools()),
      handles_(calls, budget_, host, first_spill_),
      ranges_({calls, budget_, host, movers_, first_spill_}), pieces_(ranges_)
{
    // What is kept for later makes way before what movement needs.
    budget_.add(*this);
    budget_.add(movers_);
}

void memory::context_ends(CUcontext context)
{
    for (mover *each : movers_)
        each->stop(context);
}

void memory::context_stays(CUcontext context)
{
    for (mover *each : movers_)
        each->resume(context);
}

void memory::context_attached(CUcontext context)
{
    const std::lock_guard guard(lock_);
    attached_[context]++;
}

bool memory::context_detached(CUcontext context)
{
    const std::lock_guard guard(lock_);
    const auto found = attached_.find(context);
    if (found == attached_.end())
        return false;
    if (--found->second == 0)
        attached_.erase(found);
    return true;
}

int memory::current_device() const
{
    return cuda::current_device(calls_);
}

bool memory::is_capturing(CUstream stream) const
{
    return cuda::is_capturing(calls_, stream);
}

// ---- Plain allocations

CUresult memory::allocate(CUdeviceptr *pointer, std::uint64_t bytes)
{
    collect(false);
    const int device = current_device();
    const bool large = bytes >= chunk_bytes;
    if (large && budget_.is_refused(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (large && !exportable_)
        return allocate_range(pointer, bytes, device, placing::vram_first);
    // A large one takes whole chunks of the driver, too. What wraps is not to
    // be had in any case.
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
    // The driver's rule for pitches is its own: ask it once for each element
    // size. What it says to arguments it does not like is its answer, too.
    std::size_t wide = 0;
    const bool known =
        element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    const auto slot = static_cast<std::size_t>(
        known ? std::countr_zero(element_bytes) - 2 : 0);
    {
        const std::lock_guard guard(lock_);
        wide = known ? pitch_alignment_[slot] : 0;
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
            pitch_alignment_[slot] = wide;
    }
    std::size_t row = 0;
    std::size_t bytes = 0;
    // More than an address can count: the driver has an answer to that.
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
    if (is_vacant(pointer))
        return CUDA_ERROR_INVALID_VALUE;
    collect(false);
    allocations::node_type freed;
    {
        // Out of the table first: whoever frees it again gets the driver's
        // answer to an address it does not know.
        const std::lock_guard guard(lock_);
        const auto found = allocations_.find(pointer);
        if (found != allocations_.end() && found->second.placed()) {
            freed = allocations_.extract(found);
            count_use(freed.mapped(), false);
        }
    }
    if (!freed.empty()) {
        const allocation &of = freed.mapped();
        // cuMemFree waits for the kernels that may still use the memory;
        // unmapping does not, and would kill them.
        const CUresult waited = synchronize(of.context);
        if (waited == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
            // Nobody waits while a stream is captured: it stays, as with
            // cuMemFree.
            const std::lock_guard guard(lock_);
            count_use(of, true);
            allocations_.insert(std::move(freed));
            return waited;
        }
        budget_.returned(of.device, of.bytes);
        const CUresult dropped = drop(pointer, of);
        return waited != CUDA_SUCCESS ? waited : dropped;
    }
    return free_counted(pointer, allocations_,
                        [&] { return calls_.cuMemFree_v2(pointer); });
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

// ---- What we place

CUresult memory::allocate_range(CUdeviceptr *pointer, std::uint64_t bytes,
                                int device, placing where, bool in_order)
{
    range made;
    const CUresult result = ranges_.make(bytes, device, where, made);
    if (result != CUDA_SUCCESS)
        return result;
    *pointer = made.base;
    enter(allocations_, made.base,
          {.made_by = allocation::maker::range,
           .bytes = bytes,
           .device = device,
           .context = made.context,
           .reserved_bytes = made.bytes,
           .spilled = made.spilled,
           .in_order = in_order});
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

CUresult memory::drop(CUdeviceptr at, const allocation &gone)
{
    return gone.made_by == allocation::maker::piece
               ? pieces_.drop({at, gone.chunk, gone.bytes})
               : ranges_.drop(at);
}

// ---- The table

bool memory::is_placed(CUdeviceptr pointer)
{
    const std::lock_guard guard(lock_);
    const auto found = allocations_.find(pointer);
    return found != allocations_.end() && found->second.placed();
}

void memory::enter(allocations &table, CUdeviceptr key, allocation made)
{
    const std::lock_guard guard(lock_);
    made.serial = next_serial_++;
    table[key] = made;
    if (made.placed())
        count_use(made, true);
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

void memory::remember_array(CUdeviceptr handle, std::uint64_t bytes, int device)
{
    enter(
        arrays_, handle,
        {.bytes = bytes, .device = device, .context = current_context(calls_)});
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

bool memory::find(CUdeviceptr address, range_view &view)
{
    {
        const std::lock_guard guard(lock_);
        const auto found =
            around(allocations_, address, &allocation::placed_bytes);
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

// Chunks of pieces have none: they are no allocation.
std::optional<range_stretch> memory::stretch_around(CUdeviceptr at)
{
    {
        const std::lock_guard guard(lock_);
        if (around(allocations_, at, &allocation::range_bytes) ==
            allocations_.end())
            return {};
    }
    return ranges_.stretch_at(at);
}

std::uint64_t memory::seam_after(CUdeviceptr at)
{
    const auto found = stretch_around(at);
    return found ? found->bytes : UINT64_MAX;
}

bool memory::crosses_seam(CUdeviceptr at, std::uint64_t bytes)
{
    const auto found = stretch_around(at);
    return found && bytes <= found->left && found->bytes < bytes;
}

bool memory::in_system_ram(CUdeviceptr at)
{
    const auto found = stretch_around(at);
    return found && found->in_ram;
}

void memory::show_info(int device, std::size_t &real_free,
                       std::size_t &real_total)
{
    collect(false);
    budget_.follow_footprint(device);
    std::uint64_t kept = 0;
    {
        const std::lock_guard guard(lock_);
        kept = vacancies_.bytes();
    }
    budget_.show_info(device, kept, real_free, real_total);
}

std::uint64_t memory::next_serial()
{
    const std::lock_guard guard(lock_);
    return next_serial_;
}

void memory::context_gone(CUcontext context, std::uint64_t before)
{
    for (mover *each : movers_)
        each->gone(context);
    budget_.forget_context(context);
    const auto lost = [=](const allocation &each) {
        return each.context == context && each.serial < before;
    };
    std::vector<std::pair<CUdeviceptr, allocation>> gone;
    {
        const std::lock_guard guard(lock_);
        attached_.erase(context);
        vacancies_.take_if([&](const vacancies::vacancy &each) {
            return lost(vacant_[each.base]);
        });
        for (auto *table : {&allocations_, &arrays_, &vacant_})
            for (auto each = table->begin(); each != table->end();) {
                if (!lost(each->second)) {
                    ++each;
                    continue;
                }
                if (table == &allocations_ && each->second.placed())
                    count_use(each->second, false);
                if (table == &vacant_ && !each->second.placed())
                    count_use(each->second, true);
                gone.emplace_back(each->first, each->second);
                each = table->erase(each);
            }
        for (auto each = leaving_.begin(); each != leaving_.end();) {
            if (!lost(each->what)) {
                ++each;
                continue;
            }
            gone.emplace_back(each->base, each->what);
            each = leaving_.erase(each);
        }
    }
    for (const auto &[at, of] : gone) {
        if (of.placed())
            drop(at, of);
        else
            budget_.give_back(of.device, of.bytes, of.taken);
    }
    budget_.shrink_footprints();
}

CUresult memory::create_handle(CUmemGenericAllocationHandle *handle,
                               std::size_t bytes,
                               const CUmemAllocationProp &properties,
                               unsigned long long flags)
{
    collect(false);
    return handles_.create(handle, bytes, properties, flags);
}

} // namespace emuv::cuda

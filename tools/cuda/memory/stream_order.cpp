// SPDX-License-Identifier: LGPL-2.1-or-later
// What is allocated and freed in stream order.
#include "base/captures.hpp"
#include "memory/memory.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

// False where the driver has no pool to name, or where the pool holds no VRAM.
bool memory::find_pool(CUmemoryPool pool, pools::source &from)
{
    from.device = current_device();
    from.pool = pool;
    if (pool == nullptr &&
        calls_.cuDeviceGetMemPool(&from.pool, from.device) != CUDA_SUCCESS)
        return false;
    from.device = budget_.stream_pools().device_of(from.pool, from.device);
    return from.device >= 0;
}

// Gives back what the driver had to take too much VRAM for. The program has
// not seen it yet, so nothing but the allocation itself is waited for.
void memory::give_up(CUdeviceptr pointer, CUstream stream, int device)
{
    const beside_captures apart(calls_);
    calls_.cuMemFreeAsync(pointer, stream);
    calls_.cuStreamSynchronize(stream);
    budget_.stream_pools().trim(device);
}

// Of per-thread streams there is one name for several.
bool memory::keeps_for(CUstream stream) const
{
    return movers_.only() != nullptr && stream != CU_STREAM_PER_THREAD;
}

// Whether it is the device's default pool, which it has as its current one.
// Others' memory is handed to other processes, or to other devices.
bool memory::is_usual(CUmemoryPool pool)
{
    CUmemoryPool usual = usual_pool_.load();
    if (usual == nullptr) {
        CUmemoryPool current = nullptr;
        if (calls_.cuDeviceGetDefaultMemPool(&usual, 0) != CUDA_SUCCESS ||
            calls_.cuDeviceGetMemPool(&current, 0) != CUDA_SUCCESS ||
            usual != current)
            return false;
        usual_pool_.store(usual);
    }
    return pool == nullptr || pool == usual;
}

// Whether anything of a pool that the program names may be ours.
bool memory::keeps_from(CUmemoryPool pool)
{
    return pool != nullptr && keeps_for(CU_STREAM_LEGACY) && is_usual(pool);
}

// Under the lock: it is allocated, or no longer.
void memory::count_use(const allocation &of, bool is_used)
{
    if (!of.in_order)
        return;
    if (of.pooled()) {
        use_.kept = is_used ? use_.kept - of.reserved_bytes
                            : use_.kept + of.reserved_bytes;
        return;
    }
    use_.used =
        is_used ? use_.used + of.reserved_bytes : use_.used - of.reserved_bytes;
    use_.used_high = std::max(use_.used_high, use_.used);
    use_.reserved_high = std::max(use_.reserved_high, reserved());
}

// What was freed in this stream before. No question to the driver here: it maps
// memory meanwhile, and lets others wait for that.
bool memory::take_vacant(CUdeviceptr *pointer, std::uint64_t bytes,
                         CUstream stream)
{
    CUcontext context = nullptr;
    calls_.cuCtxGetCurrent(&context);
    // Of what is the driver's it knows no more than was asked for.
    const std::uint64_t unit = bytes < chunk_bytes ? 1 : chunk_bytes;
    bool is_moved = false;
    {
        const std::lock_guard guard(lock_);
        const auto taken =
            vacancies_.take(round_up(bytes, unit), {context, stream});
        if (!taken)
            return false;
        *pointer = taken->base;
        auto entry = vacant_.extract(taken->base);
        allocation &of = entry.mapped();
        of.serial = next_serial_++;
        is_moved = of.placed();
        if (is_moved)
            of.bytes = bytes;
        allocations_.insert(std::move(entry));
        count_use(of, true);
    }
    if (is_moved)
        movers_.only()->occupy(*pointer);
    return true;
}

CUresult memory::allocate_in_order(CUdeviceptr *pointer, std::uint64_t bytes,
                                   int device)
{
    collect(false);
    return allocate_range(pointer, bytes, device, placing::vram_first, true);
}

// Keeps what was allocated in stream order for who asks next in that stream.
bool memory::vacate(CUdeviceptr pointer, CUstream stream)
{
    CUcontext context = nullptr;
    if (!keeps_for(stream) || calls_.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
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
    const allocation &of = freed.mapped();
    const vacancies::vacancy made{
        pointer, of.reserved_bytes, {context, stream}};
    if (of.placed())
        movers_.only()->vacate(pointer);
    const std::lock_guard guard(lock_);
    count_use(of, false);
    vacant_.insert(std::move(freed));
    vacancies_.put(made);
    return true;
}

bool memory::is_vacant(CUdeviceptr pointer)
{
    const std::lock_guard guard(lock_);
    return vacant_.contains(pointer);
}

void memory::give_up_idle()
{
    std::vector<vacancies::vacancy> idle;
    {
        const std::lock_guard guard(lock_);
        idle = vacancies_.take_idle();
    }
    give_up(idle);
}

bool memory::give_up(int)
{
    return give_up_all() && collect(true);
}

// @return true: the driver may have something to give up by now, in any case
bool memory::give_up_all()
{
    give_up_if([](const vacancies::vacancy &) { return true; });
    return true;
}

// What was kept leaves once the work before it has ended.
void memory::give_up(const std::vector<vacancies::vacancy> &unused)
{
    for (const vacancies::vacancy &each : unused) {
        CUcontext popped = nullptr;
        CUevent event = nullptr;
        bool is_pooled = false;
        {
            const std::lock_guard guard(lock_);
            is_pooled = vacant_[each.base].pooled();
        }
        const CUstream stream = each.behind.stream;
        bool is_behind = false;
        if (stream != nullptr &&
            calls_.cuCtxPushCurrent_v2(each.behind.context) == CUDA_SUCCESS) {
            if (is_capturing(stream))
                is_behind = false;
            else if (is_pooled)
                is_behind =
                    calls_.cuMemFreeAsync(each.base, stream) == CUDA_SUCCESS;
            else if (calls_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) ==
                     CUDA_SUCCESS)
                is_behind = calls_.cuEventRecord(event, stream) == CUDA_SUCCESS;
            if (!is_behind && event != nullptr)
                calls_.cuEventDestroy_v2(event);
            calls_.cuCtxPopCurrent_v2(&popped);
        }
        const std::lock_guard guard(lock_);
        if (!is_behind) { // it stays, then
            vacancies_.put(each);
            continue;
        }
        auto gone = vacant_.extract(each.base);
        if (is_pooled) {
            count_use(gone.mapped(), true); // as the driver does: not ours
            budget_.stream_pools().freed(gone.mapped().taken.token,
                                         gone.mapped().bytes);
        } else {
            leaving_.push_back({event, each.base, gone.mapped()});
        }
    }
}

void memory::stream_goes(CUstream stream)
{
    const auto is_behind = [stream](const vacancies::vacancy &each) {
        return each.behind.stream == stream;
    };
    give_up_if(is_behind);
    // Of what is left there nobody will know when it may be used again: the
    // next stream may have that name.
    const std::lock_guard guard(lock_);
    for (vacancies::vacancy each : vacancies_.take_if(is_behind)) {
        each.behind.stream = nullptr;
        vacancies_.put(each);
    }
}

memory::pool_use memory::use_of(CUmemoryPool pool)
{
    if (!keeps_from(pool))
        return {};
    const std::lock_guard guard(lock_);
    pool_use now = use_;
    now.reserved = reserved();
    return now;
}

void memory::reset_high(CUmemoryPool pool, bool used)
{
    if (!keeps_from(pool))
        return;
    const std::lock_guard guard(lock_);
    if (used)
        use_.used_high = use_.used;
    else
        use_.reserved_high = reserved();
}

void memory::trim_ours(CUmemoryPool pool, std::uint64_t keep)
{
    if (!keeps_from(pool))
        return;
    cuuint64_t elsewhere = 0;
    calls_.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                 &elsewhere);
    std::uint64_t reserved = use_of(pool).reserved + elsewhere;
    give_up_if([&](const vacancies::vacancy &each) {
        if (reserved <= keep)
            return false;
        reserved -= each.bytes;
        return true;
    });
    collect(false);
}

CUresult memory::free_placed_async(CUdeviceptr pointer, CUstream stream)
{
    CUevent event = nullptr;
    CUresult result = calls_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = calls_.cuEventRecord(event, stream);
    if (result != CUDA_SUCCESS) {
        calls_.cuEventDestroy_v2(event);
        return result;
    }
    {
        const std::lock_guard guard(lock_);
        const auto found = allocations_.find(pointer);
        if (found != allocations_.end() && found->second.placed()) {
            count_use(found->second, false);
            leaving_.push_back({event, pointer, found->second});
            allocations_.erase(found);
            return CUDA_SUCCESS;
        }
    }
    calls_.cuEventDestroy_v2(event);
    return CUDA_ERROR_INVALID_VALUE;
}

namespace {

// Whether a stream has come that far, by the driver's answer about an event, or
// has gone with its context. Anything else is no answer: what was freed behind
// the event may be in use.
bool has_come(CUresult answer)
{
    switch (answer) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
        return true;
    default:
        return false;
    }
}

} // namespace

// Drops what was freed in stream order and whose stream has come that far.
// With wait, all of it. Says whether anything was dropped.
bool memory::collect(bool wait)
{
    const beside_captures apart(calls_);
    budget_.stream_pools().settle();
    std::vector<leaving> ready;
    {
        const std::lock_guard guard(lock_);
        if (leaving_.empty())
            return false;
        ready.swap(leaving_);
    }
    bool dropped = false;
    std::vector<leaving> later;
    for (leaving &each : ready) {
        const CUresult state = wait ? calls_.cuEventSynchronize(each.event)
                                    : calls_.cuEventQuery(each.event);
        if (!has_come(state)) {
            later.push_back(std::move(each));
            continue;
        }
        calls_.cuEventDestroy_v2(each.event);
        budget_.returned(each.what.device, each.what.bytes);
        drop(each.base, each.what);
        dropped = true;
    }
    const std::lock_guard guard(lock_);
    for (leaving &each : later)
        leaving_.push_back(std::move(each));
    return dropped;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that is allocated and freed in stream order.
#include "memory/stream_order.hpp"

#include "base/around.hpp"
#include "base/captures.hpp"
#include "base/current.hpp"
#include "base/size.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace emuv::cuda {

namespace {

// A program frees much of what it allocates once it has freed this fraction of
// it: one of so many.
constexpr std::uint64_t churn_divisor = 8;
constexpr std::uint64_t excess_divisor = 4;

} // namespace

bool stream_order::find_pool(CUmemoryPool pool, pools::source &from) const
{
    from.device = current_device(calls_);
    from.pool = pool;
    if (pool == nullptr &&
        calls_.cuDeviceGetMemPool(&from.pool, from.device) != CUDA_SUCCESS)
        return false;
    from.device = pools_.device_of(from.pool, from.device);
    return from.device >= 0;
}

std::uint64_t stream_order::size_for(std::uint64_t bytes, CUmemoryPool pool,
                                     CUstream stream)
{
    return keeps(pool, stream) && !is_capturing(calls_, stream)
               ? vacancies::size_for(bytes)
               : bytes;
}

bool stream_order::begin(const pools::source &from, std::uint64_t bytes,
                         bool is_kept)
{
    if (pools_.begin(from, bytes))
        return true;
    if (is_kept && bytes < chunk_bytes)
        make_way(from, bytes);
    if (pools_.begin(from, bytes))
        return true;
    give_up_all(); // the driver may have something to give up then
    return pools_.trim(from.device) && pools_.begin(from, bytes);
}

// Small memory of the driver's cannot move. If there is no room for it, memory
// that can makes way: read over the link each time, it would cost far more.
void stream_order::make_way(const pools::source &from, std::uint64_t bytes)
{
    {
        const std::lock_guard guard(lock_);
        if (!for_way_.is_left(serials_))
            return;
    }
    const std::uint64_t missing = pools_.missing(from, bytes);
    const bool made = budget_.charge_vram_alone(from.device, missing);
    if (made)
        budget_.uncharge_vram(from.device, missing);
    const std::lock_guard guard(lock_);
    if (made)
        for_way_.regain();
    else
        for_way_.lose(serials_);
}

// The program has not seen the allocation yet, so nothing else is waited for.
void stream_order::hand_back(CUdeviceptr at, CUstream stream, int device)
{
    const beside_captures apart(calls_);
    calls_.cuMemFreeAsync(at, stream);
    calls_.cuStreamSynchronize(stream);
    pools_.trim(device);
}

// The context of a stream; the current one for the streams that each has.
CUcontext stream_order::context_of(CUstream stream) const
{
    CUcontext context = nullptr;
    if (stream != nullptr && stream != CU_STREAM_LEGACY &&
        stream != CU_STREAM_PER_THREAD &&
        calls_.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS &&
        context != nullptr)
        return context;
    return current_context(calls_);
}

bool stream_order::is_current(CUstream stream) const
{
    return context_of(stream) == current_context(calls_);
}

// True if the current device is the one whose memory is kept. Without any so
// far it is from now on. A stream of another context may be another device's.
bool stream_order::is_of_device(CUstream stream)
{
    if (!is_current(stream))
        return false;
    const int current = current_device(calls_);
    int device = device_.load();
    if (device < 0 && movers_.of(current) != nullptr &&
        device_.compare_exchange_strong(device, current))
        device = current;
    return device == current;
}

// True if the pool is that device's default pool, and is its current one, too.
// Other pools' memory is handed to other processes, or to other devices.
bool stream_order::is_usual(CUmemoryPool pool)
{
    CUmemoryPool usual = usual_pool_.load();
    if (usual == nullptr) {
        const int device = device_.load();
        CUmemoryPool current = nullptr;
        if (calls_.cuDeviceGetDefaultMemPool(&usual, device) != CUDA_SUCCESS ||
            calls_.cuDeviceGetMemPool(&current, device) != CUDA_SUCCESS ||
            usual != current)
            return false;
        usual_pool_.store(usual);
    }
    return pool == nullptr || pool == usual;
}

int stream_order::pool_is_shared(CUmemoryPool pool, int reader, bool opens)
{
    for (int each = 0; movers_.of(each) != nullptr; each++) {
        CUmemoryPool usual = nullptr;
        if (each == reader ||
            calls_.cuDeviceGetDefaultMemPool(&usual, each) != CUDA_SUCCESS ||
            usual != pool)
            continue;
        if (opens)
            shared_ |= std::uint64_t{1} << each;
        return each;
    }
    return -1;
}

// True if any memory of a pool that the program names may be ours.
bool stream_order::keeps_from(CUmemoryPool pool)
{
    return pool != nullptr && moving() != nullptr && is_usual(pool);
}

void stream_order::count(const allocation &of, bool is_used)
{
    if (!of.in_order)
        return;
    const std::lock_guard guard(lock_);
    count_locked(of, is_used);
}

void stream_order::count_locked(const allocation &of, bool is_used)
{
    if (!of.in_order)
        return;
    if (of.pooled()) {
        use_.kept = is_used ? use_.kept - of.reserved_bytes
                            : use_.kept + of.reserved_bytes;
        return;
    }
    (is_used ? ever_made_ : ever_freed_) += of.reserved_bytes;
    use_.used =
        is_used ? use_.used + of.reserved_bytes : use_.used - of.reserved_bytes;
    use_.used_high = std::max(use_.used_high, use_.used);
    most_used_ = std::max(most_used_, use_.used);
    use_.reserved_high = std::max(use_.reserved_high, reserved());
}

// Asks the driver for the context only. The driver may be mapping memory, and
// lets others wait for that.
allocations::node_type stream_order::take(std::uint64_t bytes, CUstream stream)
{
    const CUcontext context = current_context(calls_);
    allocations::node_type taken;
    {
        const std::lock_guard guard(lock_);
        const auto found = vacancies_.take(bytes, {context, stream, false});
        if (!found)
            return taken;
        taken = vacant_.extract(found->cut.base);
        if (found->left_bytes > 0) {
            allocation rest = taken.mapped();
            rest.reserved_bytes = found->left_bytes;
            vacant_[found->cut.end()] = rest;
            taken.mapped().reserved_bytes = found->cut.bytes;
        }
        count_locked(taken.mapped(), true);
    }
    allocation &of = taken.mapped();
    if (of.is_ours()) {
        of.bytes = bytes;
        moving()->occupy(taken.key(), of.reserved_bytes);
    }
    return taken;
}

std::uint64_t stream_order::shared_for(std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    return ever_freed_ >= ever_made_ / churn_divisor
               ? vacancies::shared_for(bytes, reserved())
               : 0;
}

void stream_order::divide(CUdeviceptr base, allocation &made, CUstream stream)
{
    const std::uint64_t cut = vacancies::cut_for(made.bytes);
    mover &moves = *moving();
    moves.vacate(base);
    moves.occupy(base, cut);
    allocation rest = made;
    rest.reserved_bytes -= cut;
    made.reserved_bytes = cut;
    std::vector<vacancies::vacancy> replaced;
    {
        const std::lock_guard guard(lock_);
        vacant_[base + cut] = rest;
        put({base + cut,
             rest.reserved_bytes,
             {made.context, nullptr, true}, // no work ever used it
             made.range});
        replaced = vacancies_.take_replaced(made.range.bytes,
                                            {made.context, stream, false});
    }
    give_up(replaced);
}

void stream_order::keep(allocations::node_type freed, CUstream stream)
{
    const allocation &of = freed.mapped();
    const vacancies::vacancy made{
        freed.key(), of.reserved_bytes, {of.context, stream, false}, of.range};
    if (of.is_ours())
        moving()->vacate(made.base);
    const std::lock_guard guard(lock_);
    count_locked(of, false);
    vacant_.insert(std::move(freed));
    put(made);
}

void stream_order::keep_for_all(allocations::node_type &freed)
{
    const allocation &of = freed.mapped();
    if (of.range.bytes == 0 || of.reserved_bytes == of.range.bytes)
        return;
    moving()->vacate(freed.key());
    const vacancies::vacancy made{
        freed.key(), of.reserved_bytes, {of.context, nullptr, true}, of.range};
    const std::lock_guard guard(lock_);
    vacant_.insert(std::move(freed));
    const vacancies::vacancy joined = put(made);
    if (!joined.is_whole() || !joined.behind.is_any)
        return;
    vacancies_.take_if([&](const vacancies::vacancy &each) {
        return each.base == joined.base;
    });
    freed = vacant_.extract(joined.base);
}

// Those that have become one with it are one there, too.
vacancies::vacancy stream_order::put(const vacancies::vacancy &made)
{
    const vacancies::vacancy joined = vacancies_.put(made);
    if (joined.bytes != made.bytes) {
        const auto first = vacant_.find(joined.base);
        const auto end = vacant_.lower_bound(joined.end());
        std::uint64_t last_serial = 0;
        for (auto each = first; each != end; ++each)
            last_serial = std::max(last_serial, each->second.serial);
        vacant_.erase(std::next(first), end);
        // It was used as late as any of them.
        allocation &all = vacant_[joined.base];
        all.reserved_bytes = joined.bytes;
        all.serial = last_serial;
    }
    return joined;
}

bool stream_order::has(CUdeviceptr at)
{
    const std::lock_guard guard(lock_);
    return around(vacant_, at, &allocation::reserved_bytes) != vacant_.end();
}

// Memory is in excess beyond what the program ever used at once, and a part
// more.
void stream_order::give_up_idle(std::uint64_t bytes)
{
    std::vector<vacancies::vacancy> idle;
    {
        const std::lock_guard guard(lock_);
        const std::uint64_t needs = most_used_ + most_used_ / excess_divisor;
        const std::uint64_t will_be = reserved() + bytes;
        idle = vacancies_.take_idle(
            will_be > needs ? std::min(will_be - needs, 2 * bytes) : 0);
    }
    give_up(idle);
}

void stream_order::give_up_all()
{
    give_up_if([](const vacancies::vacancy &each) { return each.is_whole(); });
}

void stream_order::give_up(const std::vector<vacancies::vacancy> &unused)
{
    for (const vacancies::vacancy &each : unused)
        give_up(each);
}

// Kept memory leaves once the work before it has ended. If nothing can be put
// behind that work, the memory stays.
void stream_order::give_up(const vacancies::vacancy &unused)
{
    bool is_pooled = false;
    auto going = going_.end();
    {
        const std::lock_guard guard(lock_);
        const auto found = vacant_.find(unused.base);
        if (found == vacant_.end()) // gone with its context
            return;
        is_pooled = found->second.pooled();
        going = going_.insert(going_.end(), vacant_.extract(found));
    }
    CUevent event = nullptr;
    const bool is_behind = put_behind(unused, is_pooled, event);
    allocations::node_type freed;
    {
        const std::lock_guard guard(lock_);
        freed = std::move(*going); // or none by now
        going_.erase(going);
        if (!is_behind) {
            if (!freed.empty()) {
                vacant_.insert(std::move(freed));
                put(unused);
            }
            return;
        }
        if (!freed.empty() && !is_pooled) {
            leaving_.push_back({event, std::move(freed)});
            return;
        }
        if (!freed.empty())
            count_locked(freed.mapped(), true); // as the driver does: not ours
    }
    if (event != nullptr)
        calls_.cuEventDestroy_v2(event);
    if (!freed.empty())
        pools_.freed(freed.mapped().taken.token, freed.mapped().bytes);
}

// @param event  out: for memory that is not the driver's to free
bool stream_order::put_behind(const vacancies::vacancy &which, bool is_pooled,
                              CUevent &event) const
{
    const CUstream stream = which.behind.stream;
    CUcontext popped = nullptr;
    bool is_behind = false;
    if (which.behind.is_any)
        return true;
    if (stream == nullptr ||
        calls_.cuCtxPushCurrent_v2(which.behind.context) != CUDA_SUCCESS)
        return false;
    if (is_capturing(calls_, stream))
        is_behind = false;
    else if (is_pooled)
        is_behind = calls_.cuMemFreeAsync(which.base, stream) == CUDA_SUCCESS;
    else if (calls_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) ==
             CUDA_SUCCESS)
        is_behind = calls_.cuEventRecord(event, stream) == CUDA_SUCCESS;
    if (!is_behind && event != nullptr)
        calls_.cuEventDestroy_v2(event);
    calls_.cuCtxPopCurrent_v2(&popped);
    return is_behind;
}

void stream_order::stream_goes(CUstream stream)
{
    const auto is_behind = [stream](const vacancies::vacancy &each) {
        return each.behind.stream == stream;
    };
    give_up_if(is_behind);
    // Nobody will know when the memory left there may be used again: the next
    // stream may have the same handle.
    const std::lock_guard guard(lock_);
    for (vacancies::vacancy each : vacancies_.take_if(is_behind)) {
        each.behind.stream = nullptr;
        put(each);
    }
}

stream_order::pool_use stream_order::use_of(CUmemoryPool pool)
{
    if (!keeps_from(pool))
        return {};
    const std::lock_guard guard(lock_);
    pool_use now = use_;
    now.reserved = reserved();
    return now;
}

void stream_order::reset_high(CUmemoryPool pool, bool used)
{
    if (!keeps_from(pool))
        return;
    const std::lock_guard guard(lock_);
    if (used)
        use_.used_high = use_.used;
    else
        use_.reserved_high = reserved();
}

bool stream_order::trim(CUmemoryPool pool, std::uint64_t keep)
{
    if (!keeps_from(pool))
        return false;
    cuuint64_t elsewhere = 0;
    calls_.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                 &elsewhere);
    std::uint64_t left = use_of(pool).reserved + elsewhere;
    give_up_if([&](const vacancies::vacancy &each) {
        if (left <= keep || !each.is_whole())
            return false;
        left -= each.bytes;
        return true;
    });
    return true;
}

std::uint64_t stream_order::spare_bytes(int device)
{
    if (device != device_.load())
        return 0;
    const std::lock_guard guard(lock_);
    return vacancies_.whole_bytes();
}

CUresult stream_order::leave(allocations::node_type &freed, CUstream stream)
{
    CUevent event = nullptr;
    CUcontext popped = nullptr;
    // The event is of the stream's context.
    CUresult result = calls_.cuCtxPushCurrent_v2(context_of(stream));
    if (result != CUDA_SUCCESS)
        return result;
    result = calls_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) {
        result = calls_.cuEventRecord(event, stream);
        if (result != CUDA_SUCCESS)
            calls_.cuEventDestroy_v2(event);
    }
    calls_.cuCtxPopCurrent_v2(&popped);
    if (result != CUDA_SUCCESS)
        return result;
    const std::lock_guard guard(lock_);
    count_locked(freed.mapped(), false);
    leaving_.push_back({event, std::move(freed)});
    return CUDA_SUCCESS;
}

namespace {

// True if a stream has come that far, by the driver's answer about an event, or
// has gone with its context. No other answer tells that: memory freed behind
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

std::vector<allocations::node_type> stream_order::take_gone(bool wait)
{
    std::vector<allocations::node_type> gone;
    std::vector<leaving> all;
    {
        const std::lock_guard guard(lock_);
        if (leaving_.empty())
            return gone;
        all.swap(leaving_);
    }
    std::vector<leaving> later;
    for (leaving &each : all) {
        if (each.event != nullptr) { // or no work may use it
            const CUresult state = wait ? calls_.cuEventSynchronize(each.event)
                                        : calls_.cuEventQuery(each.event);
            if (!has_come(state)) {
                later.push_back(std::move(each));
                continue;
            }
            calls_.cuEventDestroy_v2(each.event);
        }
        gone.push_back(std::move(each.what));
    }
    const std::lock_guard guard(lock_);
    for (leaving &each : later)
        leaving_.push_back(std::move(each));
    return gone;
}

std::vector<allocations::node_type>
stream_order::context_gone(CUcontext context, std::uint64_t before)
{
    const auto lost = [=](const allocation &each) {
        return each.context == context && each.serial < before;
    };
    std::vector<allocations::node_type> gone;
    const std::lock_guard guard(lock_);
    vacancies_.take_if([&](const vacancies::vacancy &each) {
        return lost(vacant_[each.base]);
    });
    for (auto each = vacant_.begin(); each != vacant_.end();) {
        const auto next = std::next(each);
        if (lost(each->second)) {
            if (each->second.pooled())
                count_locked(each->second, true);
            gone.push_back(vacant_.extract(each));
        }
        each = next;
    }
    for (allocations::node_type &each : going_) {
        if (each.empty() || !lost(each.mapped()))
            continue;
        if (each.mapped().pooled())
            count_locked(each.mapped(), true);
        gone.push_back(std::move(each));
    }
    for (auto each = leaving_.begin(); each != leaving_.end();) {
        if (!lost(each->what.mapped())) {
            ++each;
            continue;
        }
        gone.push_back(std::move(each->what));
        each = leaving_.erase(each);
    }
    return gone;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: GPL-2.0-or-later
// Contexts: made, made current, lost and destroyed.
#include "context.hpp"

#include "array.hpp"
#include "graph.hpp"
#include "ipc.hpp"
#include "module.hpp"
#include "state.hpp"

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace sim {

context::context(device &on, unsigned flags_, bool primary_)
    : dev(on), flags(flags_), primary(primary_), id(the().next_id()),
      memory(on), legacy(std::make_shared<stream>())
{
    legacy->owner = this;
    legacy->legacy = true;
    legacy->id = the().next_id();
    streams.insert(legacy);
}

std::vector<context *> &context_stack()
{
    // Handlers at exit run after the objects of their thread have gone.
    static std::mutex lock;
    static auto &all = *new std::deque<std::vector<context *>>;
    // Aligned, lest a block of this library's thread-local variables begin 16
    // bytes into a page: AddressSanitizer of GCC 12 takes such a block for one
    // of glibc 2.19, and its search for leaks follows what is no address.
    alignas(64) thread_local std::vector<context *> *stack;
    if (stack == nullptr) {
        const std::lock_guard guard(lock);
        stack = &all.emplace_back();
    }
    return *stack;
}

namespace {

// Null if the device has no room for it.
std::shared_ptr<context> make(device &on, unsigned flags, bool primary)
{
    if (!on.vram.charge(the().context_frames))
        return nullptr;
    auto made = std::make_shared<context>(on, flags, primary);
    the().contexts.add<CUcontext>(made);
    return made;
}

// Ends all work in the context and frees all it owned.
void end(std::unique_lock<std::mutex> &lock, context &which)
{
    which.alive = false;
    which.closing = true;
    close_streams(lock, which);
    auto ours = [&](const auto &object) { return object.owner == &which; };
    the().execs.remove_if(ours);
    the().modules.remove_if(ours);
    the().arrays.remove_if(ours);
    close_opened(which);
    auto &maps = the().space.mappings;
    for (auto at = maps.begin(); at != maps.end();) {
        mapping &m = at->second;
        if (m.owner != &which || m.what == kind::pooled) {
            ++at;
            continue;
        }
        if (m.what == kind::host || m.what == kind::managed)
            munmap(reinterpret_cast<void *>(m.base), m.bytes);
        at = maps.erase(at);
    }
    which.memory.clear();
    if (which.primary) {
        std::vector<std::uintptr_t> pooled;
        for (const auto &[base, m] : maps)
            if (m.from && m.device == which.dev.ordinal)
                pooled.push_back(base);
        for (std::uintptr_t base : pooled)
            pool_release(base);
    }
    pools_trim();
}

CUcontext handle(context *which)
{
    return reinterpret_cast<CUcontext>(which);
}

} // namespace
} // namespace sim

using namespace sim;

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    SIM_ENTER(init);
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!on->primary)
        on->primary = make(*on, on->primary_flags, true);
    if (!on->primary)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ++on->primary_count;
    *pctx = handle(on->primary.get());
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    SIM_ENTER(init);
    device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    if (on->primary_count == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--on->primary_count == 0) {
        auto old = std::exchange(on->primary, nullptr);
        end(entered.lock, *old);
        on->vram.uncharge(the().context_frames);
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    SIM_ENTER(init);
    device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    if (on->primary) {
        // The handle stays good for those who retained it.
        context &old = *on->primary;
        end(entered.lock, old);
        old.alive = true;
        old.closing = false;
        old.lost = CUDA_SUCCESS;
        old.legacy = std::make_shared<stream>();
        old.legacy->owner = &old;
        old.legacy->legacy = true;
        old.legacy->id = the().next_id();
        old.streams.insert(old.legacy);
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags)
{
    SIM_ENTER(init);
    device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    on->primary_flags = flags;
    if (on->primary)
        on->primary->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
    SIM_ENTER(init);
    device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = on->primary_flags;
    *active = on->primary != nullptr;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned flags,
                                   CUdevice dev)
{
    SIM_ENTER(init);
    if (!pctx || (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)))
        return CUDA_ERROR_INVALID_VALUE;
    device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    auto made = make(*on, flags, false);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context_stack().push_back(made.get());
    *pctx = handle(made.get());
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *, int,
                                   unsigned flags, CUdevice dev)
{
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate(CUcontext *pctx, CUctxCreateParams *, unsigned flags,
                     CUdevice dev)
{
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    SIM_ENTER(init);
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    auto found = the().contexts.find(ctx);
    if (!found || found->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!found->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    end(entered.lock, *found);
    found->dev.vram.uncharge(the().context_frames);
    auto &stack = context_stack();
    if (!stack.empty() && stack.back() == found.get())
        stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned flags)
{
    SIM_ENTER(context);
    if (!pctx || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    entered.current->uses++;
    *pctx = handle(entered.current);
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx)
{
    {
        SIM_ENTER(context);
        if (!ctx)
            return CUDA_ERROR_INVALID_VALUE;
        if (handle(entered.current) != ctx || entered.current->primary)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (--entered.current->uses > 0)
            return CUDA_SUCCESS;
    }
    return cuCtxDestroy(ctx);
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    SIM_ENTER(init);
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    auto found = the().contexts.find(ctx);
    if (!found || !found->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(found.get());
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
    SIM_ENTER(init);
    auto &stack = context_stack();
    if (stack.empty())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx)
        *pctx = handle(stack.back());
    stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    SIM_ENTER(init);
    auto &stack = context_stack();
    if (!ctx) {
        if (!stack.empty())
            stack.pop_back();
        return CUDA_SUCCESS;
    }
    auto found = the().contexts.find(ctx);
    if (!found || !found->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stack.empty())
        stack.push_back(found.get());
    else
        stack.back() = found.get();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    SIM_ENTER(init);
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = handle(entered.current);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
    SIM_ENTER(init);
    if (!dev)
        return CUDA_ERROR_INVALID_VALUE;
    if (!entered.current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *dev = entered.current->dev.ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags)
{
    SIM_ENTER(init);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!entered.current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *flags = entered.current->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    SIM_ENTER(init);
    if (!ctxId)
        return CUDA_ERROR_INVALID_VALUE;
    auto found = ctx ? the().contexts.find(ctx) : nullptr;
    const context *which = ctx ? found.get() : entered.current;
    if (!which)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ctxId = which->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned *version)
{
    SIM_ENTER(init);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    if (ctx ? !the().contexts.find(ctx) : !entered.current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize()
{
    SIM_ENTER(context);
    if (CUresult r = refuse_during_capture())
        return r;
    wait_all(entered.lock, *entered.current);
    return entered.current->lost;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    SIM_ENTER(context);
    if (!pvalue)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit < 0 || limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *pvalue = entered.current->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    SIM_ENTER(context);
    if (limit < 0 || limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    entered.current->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    SIM_ENTER(context);
    if (!pconfig)
        return CUDA_ERROR_INVALID_VALUE;
    *pconfig = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache)
{
    SIM_ENTER(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    SIM_ENTER(context);
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = -5;
    return CUDA_SUCCESS;
}

// Any device of the simulation reaches any other's memory.
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned Flags)
{
    SIM_ENTER(context);
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    auto found = the().contexts.find(peerContext);
    return found && found->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    SIM_ENTER(context);
    auto found = the().contexts.find(peerContext);
    return found && found->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

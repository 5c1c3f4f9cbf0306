// SPDX-License-Identifier: LGPL-2.1-or-later
// Executable graphs as the launches, copies and fills that they stand for.
#include "hooks/unrolled.hpp"

#include "base/captures.hpp"
#include "base/current.hpp"
#include "hooks/session.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

namespace {

// Why a graph runs as a whole.
constexpr const char *because_of_objects =
    "a graph in a program that ties objects to graphs";
constexpr const char *because_of_change =
    "a graph with a node that was changed";

// True if no other context than this one may be in use: then all nodes of a
// graph are its.
bool is_alone(const state &ours, CUcontext context)
{
    bool own = false;
    int others = 0;
    for (int i = 0; i < ours.devices; i++) {
        unsigned flags = 0;
        int active = 0;
        if (ours.calls.cuDevicePrimaryCtxGetState(i, &flags, &active) !=
            CUDA_SUCCESS)
            return false;
        others += active;
    }
    CUdevice device = 0;
    CUcontext primary = nullptr;
    if (others == 1 && ours.calls.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
        EMUV_REAL(cuDevicePrimaryCtxRetain)(&primary, device) == CUDA_SUCCESS) {
        own = primary == context;
        EMUV_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    }
    return own;
}

} // namespace

counted_ref<unrolled_graphs::executable>
unrolled_graphs::find(CUgraphExec which)
{
    const std::lock_guard guard(lock_);
    const auto found = all_.find(which);
    return found != all_.end() ? found->second : counted_ref<executable>();
}

// Reads a graph. It is to run as a whole if it says why.
counted_ref<unrolled_graphs::executable> unrolled_graphs::made_of(CUgraph from)
{
    counted_ref<executable> made(new executable);
    const state *const ours = current_state();
    const CUcontext context =
        ours != nullptr ? current_context(ours->calls) : nullptr;
    if (context == nullptr)
        return made;
    const beside_captures apart(ours->calls);
    if (ties_objects_.load()) {
        made->whole = because_of_objects;
    } else if (!is_alone(*ours, context)) {
        made->whole = "a graph that is made beside a second context";
    } else {
        graph_steps steps = steps_of(from, context);
        made->whole = steps.whole;
        made->steps = std::move(steps.all);
    }
    if (made->whole == nullptr)
        made->context = made->made_in = context;
    return made;
}

void unrolled_graphs::instantiated(CUgraphExec made, CUgraph from,
                                   unsigned long long flags)
{
    counted_ref<executable> known;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0) {
        known = made_of(from);
    } else {
        known = counted_ref<executable>(new executable);
        known->whole = "a graph that the device launches";
    }
    const std::lock_guard guard(lock_);
    all_.insert_or_assign(made, std::move(known));
    any_.store(true, std::memory_order_release);
}

void unrolled_graphs::make_whole(executable &which, const char *why)
{
    which.context = nullptr; // see run()
    which.whole = why;
}

// Reads the steps of a graph that one which runs by steps takes over.
graph_steps unrolled_graphs::read(CUgraph from, CUcontext context) const
{
    const state *const ours = current_state();
    if (ours == nullptr || ties_objects_.load())
        return {.all = {}, .whole = because_of_objects};
    const beside_captures apart(ours->calls);
    return steps_of(from, context);
}

// Has a graph that may run by steps take over something.
// @param how  tells why it is one whole from now on; or null
template <typename Change>
void unrolled_graphs::change(CUgraphExec which, Change how)
{
    const auto found = find(which);
    if (!found || found->made_in == nullptr)
        return;
    const std::lock_guard guard(found->lock);
    found->has_addresses = false;
    if (const char *const why = how(*found))
        make_whole(*found, why);
}

void unrolled_graphs::updated(CUgraphExec which, CUgraph from)
{
    change(which, [&](executable &of) {
        graph_steps steps = read(from, of.context);
        if (steps.whole == nullptr)
            of.steps = std::move(steps.all);
        return steps.whole;
    });
}

void unrolled_graphs::changed(CUgraphExec which, CUgraphNode node,
                              const CUDA_KERNEL_NODE_PARAMS &kernel)
{
    change(which, [&](executable &of) {
        const auto step = std::find_if(
            of.steps.begin(), of.steps.end(),
            [node](const graph_step &is) { return is.node == node; });
        auto *const known = step != of.steps.end()
                                ? std::get_if<kernel_step>(&step->what)
                                : nullptr;
        return known != nullptr && known->take(kernel) &&
                       known->is_for(of.context)
                   ? nullptr
                   : because_of_change;
    });
}

void unrolled_graphs::changed(CUgraphExec which, CUgraphNode node,
                              CUgraph child)
{
    change(which, [&](executable &of) {
        const auto is_of_child = [node](const graph_step &each) {
            return each.child == node;
        };
        const auto first =
            std::find_if(of.steps.begin(), of.steps.end(), is_of_child);
        const auto last = std::find_if_not(first, of.steps.end(), is_of_child);
        graph_steps made = read(child, of.context);
        if (made.whole != nullptr)
            return made.whole;
        // It has the same nodes: the driver demands that.
        if (of.context == nullptr ||
            made.all.size() != static_cast<std::size_t>(last - first))
            return because_of_change;
        for (auto [to, from] = std::pair(first, made.all.begin()); to != last;
             ++to, ++from)
            to->what = std::move(from->what);
        return static_cast<const char *>(nullptr);
    });
}

void unrolled_graphs::is_whole(CUgraphExec which)
{
    change(which, [](executable &) { return because_of_change; });
}

const char *unrolled_graphs::why_whole(CUgraphExec which)
{
    const auto found = find(which);
    if (!found)
        return nullptr;
    return found->whole != nullptr ? found->whole
                                   : "a graph that runs as a whole for now";
}

void unrolled_graphs::goes(CUgraphExec which)
{
    counted_ref<executable> gone;
    if (any_.load(std::memory_order_acquire)) {
        const std::lock_guard guard(lock_);
        if (const auto found = all_.find(which); found != all_.end()) {
            gone = found->second;
            all_.erase(found);
        }
    }
    const state *const ours = current_state();
    if (!gone || ours == nullptr)
        return;
    const std::lock_guard guard(gone->lock);
    if (gone->last != nullptr)
        ours->calls.cuEventDestroy_v2(gone->last);
    gone->last = nullptr;
}

void unrolled_graphs::gone(CUcontext context)
{
    std::vector<counted_ref<executable>> those;
    {
        const std::lock_guard guard(lock_);
        for (const auto &[which, each] : all_)
            those.push_back(each);
    }
    for (const counted_ref<executable> &each : those) {
        const std::lock_guard guard(each->lock);
        if (each->context != context && each->made_in != context)
            continue;
        each->context = nullptr;
        each->last = nullptr; // it went with the context
    }
}

bool unrolled_graphs::is_captured(CUstream stream)
{
    const state *const ours = current_state();
    return ours == nullptr || is_capturing(ours->calls, stream);
}

// True if the steps may run in that stream: in the context that they are for.
bool unrolled_graphs::is_in(const executable &which, CUstream stream)
{
    const state *const ours = current_state();
    if (ours == nullptr || which.context == nullptr ||
        current_context(ours->calls) != which.context)
        return false;
    CUcontext of = nullptr;
    return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
           (EMUV_REAL(cuStreamGetCtx)(stream, &of) == CUDA_SUCCESS &&
            of == which.context);
}

// Sees what the steps are given.
void unrolled_graphs::find_addresses(executable &which)
{
    if (which.has_addresses)
        return;
    which.addresses.clear();
    which.left.clear();
    for (graph_step &each : which.steps)
        each.add_addresses(which.addresses, which.left);
    std::sort(which.addresses.begin(), which.addresses.end());
    which.addresses.erase(
        std::unique(which.addresses.begin(), which.addresses.end()),
        which.addresses.end());
    which.has_addresses = true;
}

bool unrolled_graphs::gains_by_steps(executable &which, mover *moves)
{
    if (moves == nullptr || !moves->active())
        return false;
    find_addresses(which);
    return !moves->is_at_rest(which.addresses) &&
           std::all_of(which.steps.begin(), which.steps.end(),
                       [](const graph_step &each) {
                           const auto *const kernel =
                               std::get_if<kernel_step>(&each.what);
                           return kernel == nullptr || kernel->may_run();
                       });
}

// As a whole it may leave addresses in memory that nobody sees it leave.
void unrolled_graphs::note_tables(executable &which, mover *moves)
{
    const state *const ours = current_state();
    if (ours == nullptr || moves == nullptr || !moves->active())
        return;
    find_addresses(which);
    if (!which.left.empty())
        moves->note_table(which.left);
    for (const graph_step &each : which.steps)
        if (const auto *const copy = std::get_if<CUDA_MEMCPY3D>(&each.what))
            if (copy->srcMemoryType == CU_MEMORYTYPE_HOST)
                ours->note_table(copy->srcHost, copy->WidthInBytes,
                                 copy->srcPitch != 0 ? copy->srcPitch
                                                     : copy->WidthInBytes,
                                 copy->Height);
}

// Has the stream wait for the graph's launch before, and sees to an event for
// this one.
bool unrolled_graphs::await_last(executable &which, CUstream stream)
{
    const state *const ours = current_state();
    if (ours == nullptr)
        return false;
    if (which.last == nullptr)
        return ours->calls.cuEventCreate(
                   &which.last, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    return cuStreamWaitEvent(stream, which.last, 0) == CUDA_SUCCESS;
}

// Without an event, its steps would run beside the next launch.
void unrolled_graphs::note_last(executable &which, CUstream stream)
{
    const state *const ours = current_state();
    if (ours == nullptr || which.last == nullptr ||
        ours->calls.cuEventRecord(which.last, stream) != CUDA_SUCCESS)
        make_whole(which, "a graph whose end could not be noted");
}

// @return nothing if it has to run as a whole
std::optional<CUresult> unrolled_graphs::run(executable &which, CUstream stream,
                                             const mover &moves)
{
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < which.steps.size(); i++) {
        result = which.steps[i].run(stream);
        if (result == CUDA_SUCCESS)
            continue;
        // Its memory cannot come from the file just now. As a whole it would
        // need more.
        if (result == CUDA_ERROR_OUT_OF_MEMORY && moves.uses_file())
            break;
        if (i == 0)
            return {};
        // The driver has accepted the node, so a step by itself lacks
        // something.
        make_whole(which, "a graph of which a step was refused");
        break;
    }
    note_last(which, stream);
    return result;
}

} // namespace emuv::cuda

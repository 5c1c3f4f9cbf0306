// SPDX-License-Identifier: LGPL-2.1-or-later
// Executable graphs as the launches, copies and fills that they stand for.
#include "hooks/unrolled.hpp"

#include "base/captures.hpp"
#include "base/current.hpp"
#include "hooks/session.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

counted_ref<unrolled_graphs::executable>
unrolled_graphs::find(CUgraphExec which)
{
    if (!any_.load(std::memory_order_acquire))
        return {};
    const std::lock_guard guard(lock_);
    const auto found = all_.find(which);
    return found != all_.end() ? found->second : counted_ref<executable>();
}

void unrolled_graphs::put(CUgraphExec which, CUgraph from)
{
    const state *const ours = current_state();
    const CUcontext context =
        ours != nullptr ? current_context(ours->calls) : nullptr;
    if (context == nullptr)
        return;
    const beside_captures apart(ours->calls);
    auto steps = steps_of(from, context);
    if (!steps)
        return;
    counted_ref<executable> made(new executable);
    made->steps = std::move(*steps);
    made->context = context;
    const std::lock_guard guard(lock_);
    all_.insert_or_assign(which, std::move(made));
    any_.store(true, std::memory_order_release);
}

void unrolled_graphs::instantiated(CUgraphExec made, CUgraph from,
                                   unsigned long long flags)
{
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0)
        put(made, from);
}

void unrolled_graphs::updated(CUgraphExec which, CUgraph from)
{
    const auto found = find(which);
    if (!found)
        return;
    const std::lock_guard guard(found->lock);
    const state *const ours = current_state();
    std::optional<std::vector<graph_step>> steps;
    if (ours != nullptr) {
        const beside_captures apart(ours->calls);
        steps = steps_of(from, found->context);
    }
    found->named = false;
    if (steps)
        found->steps = std::move(*steps);
    else
        found->context = nullptr; // one whole: see run()
}

void unrolled_graphs::changed(CUgraphExec which, CUgraphNode node,
                              const CUDA_KERNEL_NODE_PARAMS &kernel)
{
    const auto found = find(which);
    if (!found)
        return;
    const std::lock_guard guard(found->lock);
    const auto step =
        std::find_if(found->steps.begin(), found->steps.end(),
                     [node](const graph_step &is) { return is.node == node; });
    found->named = false;
    auto *const known = step != found->steps.end()
                            ? std::get_if<kernel_step>(&step->what)
                            : nullptr;
    if (known == nullptr || !known->take(kernel) ||
        !known->is_for(found->context))
        found->context = nullptr;
}

void unrolled_graphs::is_whole(CUgraphExec which)
{
    if (const auto found = find(which)) {
        const std::lock_guard guard(found->lock);
        found->context = nullptr;
    }
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
    if (!gone || ours == nullptr || gone->last == nullptr)
        return;
    const std::lock_guard guard(gone->lock);
    const beside_captures apart(ours->calls);
    if (gone->ran_by_steps)
        ours->calls.cuEventSynchronize(gone->last);
    ours->calls.cuEventDestroy_v2(gone->last);
    gone->last = nullptr;
}

bool unrolled_graphs::is_captured(CUstream stream)
{
    const state *const ours = current_state();
    return ours == nullptr || ours->table->is_capturing(stream);
}

bool unrolled_graphs::gains_by_steps(executable &which, mover *moves)
{
    if (moves == nullptr || !moves->active() || which.context == nullptr)
        return false;
    if (!which.named) {
        which.names.clear();
        for (graph_step &each : which.steps)
            each.name(which.names);
        std::sort(which.names.begin(), which.names.end());
        which.names.erase(std::unique(which.names.begin(), which.names.end()),
                          which.names.end());
        which.named = true;
    }
    return !moves->is_at_rest(which.names);
}

// Has the stream wait for the graph's launch before. Streams of one name may
// be several.
// @return false if the driver refuses, or cannot record an event
bool unrolled_graphs::await_last(executable &which, CUstream stream)
{
    const state *const ours = current_state();
    if (ours == nullptr || which.context == nullptr ||
        current_context(ours->calls) != which.context)
        return which.last == nullptr ||
               cuStreamWaitEvent(stream, which.last, 0) == CUDA_SUCCESS;
    if (which.last == nullptr)
        return ours->calls.cuEventCreate(&which.last,
                                         CU_EVENT_DISABLE_TIMING) ==
               CUDA_SUCCESS;
    return (stream == which.last_stream && stream != CU_STREAM_PER_THREAD) ||
           cuStreamWaitEvent(stream, which.last, 0) == CUDA_SUCCESS;
}

void unrolled_graphs::note_last(executable &which, CUstream stream)
{
    const state *const ours = current_state();
    if (ours == nullptr || which.last == nullptr)
        return;
    ours->calls.cuEventRecord(which.last, stream);
    which.last_stream = stream;
}

// @return nothing if it has to run as a whole
std::optional<CUresult> unrolled_graphs::run(executable &which,
                                             CUstream stream)
{
    const state *const ours = current_state();
    if (ours == nullptr || which.context == nullptr ||
        current_context(ours->calls) != which.context)
        return {};
    bool any = false;
    for (graph_step &each : which.steps) {
        const CUresult result = each.run(stream);
        if (result != CUDA_SUCCESS) {
            // Its nodes have been accepted by the driver, so a step on its own
            // lacks something.
            which.context = nullptr;
            return any ? std::optional(result) : std::nullopt;
        }
        any = which.ran_by_steps = true;
    }
    return CUDA_SUCCESS;
}

} // namespace emuv::cuda

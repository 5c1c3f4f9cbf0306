// SPDX-License-Identifier: LGPL-2.1-or-later
// Executable graphs as the launches, copies and fills that they stand for.
#pragma once

#include "base/counted.hpp"
#include "base/driver.hpp"
#include "hooks/graph_step.hpp"
#include "movement/mover.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace emuv::cuda {

/// The program's executable graphs that can run step by step.
///
/// Nobody can tell the steps of a graph apart while the driver runs it, so
/// memory cannot move between them. While memory moves, a graph's launch is
/// instead one launch, copy or fill after the other, in an order that its edges
/// allow. Each is followed like any other work. That costs what launches cost,
/// and the steps of two branches follow each other. So a graph runs as a whole
/// while nothing would be gained: see mover::is_at_rest().
///
/// Some graphs are always one whole. They have other nodes than kernels, copies
/// and fills, or kernels whose order edges leave open. They copy pageable
/// memory, or the device launches them. They were changed in a way that is not
/// followed here. They were made beside a second context, or once the program
/// ties objects to graphs: the driver keeps those while it knows of a launch.
///
/// Every call may come from any thread. As with the driver, no two may be about
/// the same executable graph at once.
class unrolled_graphs
{
public:
    unrolled_graphs() = default;
    unrolled_graphs(const unrolled_graphs &) = delete;
    unrolled_graphs &operator=(const unrolled_graphs &) = delete;

    /// The driver has made @p made of @p from, which is as it was then.
    void instantiated(CUgraphExec made, CUgraph from, unsigned long long flags);
    /// It has taken over another graph's parameters.
    void updated(CUgraphExec which, CUgraph from);
    /// It has taken over a kernel's.
    void changed(CUgraphExec which, CUgraphNode node,
                 const CUDA_KERNEL_NODE_PARAMS &kernel);
    /// It has taken over another graph's parameters for a node that is a graph.
    void changed(CUgraphExec which, CUgraphNode node, CUgraph child);
    /// It was changed otherwise: it is one whole from now on.
    void is_whole(CUgraphExec which);
    /// Why it runs as a whole, a string that stays and begins with "a graph";
    /// null where nothing is known of it.
    const char *why_whole(CUgraphExec which);

    /// The program ties an object to a graph.
    void ties_objects() { ties_objects_ = true; }

    /// It is about to go. Its steps in flight need it no more.
    void goes(CUgraphExec which);
    /// A context has gone.
    void gone(CUcontext context);

    /// Launches a graph.
    /// @param stream  with the default streams named
    /// @param moves  the mover of the memory, or null; active if work is to be
    ///   followed
    /// @param whole  has the driver launch it
    template <typename Call>
    CUresult launch(CUgraphExec which, CUstream stream, mover *moves,
                    Call whole)
    {
        if (!any_.load(std::memory_order_acquire) || is_captured(stream))
            return whole();
        const counted_ref<executable> found = find(which);
        if (!found || found->made_in == nullptr)
            return whole();
        // No other graph's launch comes between the steps of one.
        const std::lock_guard in_turn(launching_);
        const std::lock_guard guard(found->lock);
        const bool by_steps = is_in(*found, stream) &&
                              gains_by_steps(*found, moves) &&
                              await_last(*found, stream);
        const auto steps =
            by_steps ? run(*found, stream, *moves) : std::optional<CUresult>();
        if (steps)
            return *steps;
        if (!by_steps)
            await_last(*found, stream);
        note_tables(*found, moves);
        const CUresult result = whole();
        note_last(*found, stream);
        return result;
    }

private:
    struct executable : counted
    {
        std::mutex lock; // guards all below; held while its steps are launched
        std::vector<graph_step> steps;
        CUcontext context = nullptr; // in which they may run; or none
        CUcontext made_in = nullptr; // none if it was never to run by steps
        const char *whole = nullptr; // why there is no context
        std::vector<CUdeviceptr> addresses; // that they are given
        std::vector<CUdeviceptr> left;      // that they may leave in memory
        bool has_addresses = false;         // that is so
        // Two launches of a graph follow each other, in any streams.
        CUevent last = nullptr;
    };

    counted_ref<executable> find(CUgraphExec which);
    counted_ref<executable> made_of(CUgraph from);
    graph_steps read(CUgraph from, CUcontext context) const;
    template <typename Change>
    void change(CUgraphExec which, Change how);
    static void make_whole(executable &which, const char *why);
    static bool is_captured(CUstream stream);
    static bool is_in(const executable &which, CUstream stream);
    static void find_addresses(executable &which);
    static bool gains_by_steps(executable &which, mover *moves);
    static void note_tables(executable &which, mover *moves);
    static bool await_last(executable &which, CUstream stream);
    static void note_last(executable &which, CUstream stream);
    static std::optional<CUresult> run(executable &which, CUstream stream,
                                       const mover &moves);

    std::atomic<bool> any_{false}; // most programs have none
    std::atomic<bool> ties_objects_{false};
    std::mutex launching_; // before any other lock here
    std::mutex lock_;      // guards all_
    std::map<CUgraphExec, counted_ref<executable>> all_;
};

} // namespace emuv::cuda

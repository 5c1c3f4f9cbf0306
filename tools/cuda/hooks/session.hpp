// SPDX-License-Identifier: LGPL-2.1-or-later
// The hooks share this: the state that cuInit makes, and the way into it.
#pragma once

#include "account/budget.hpp"
#include "account/graph_memory.hpp"
#include "base/current.hpp"
#include "base/settings.hpp"
#include "base/statistics.hpp"
#include "base/trace.hpp"
#include "hooks/attached.hpp"
#include "hooks/cut_nodes.hpp"
#include "hooks/unrolled.hpp"
#include "interpose/forward.hpp"
#include "memory/advised.hpp"
#include "memory/memory.hpp"
#include "movement/kernels.hpp"
#include "movement/pinned.hpp"
#include "store/file_store.hpp"

namespace emuv::cuda {

/// Everything behind the hooks, from the first successful cuInit on.
struct state
{
    settings asked;
    driver calls;
    trace record; ///< off unless it was asked for
    statistics_page page;
    /// Charges all that the process holds.
    budget *shares = nullptr;
    /// The source of system RAM.
    store *beyond = nullptr;
    /// For what has no room there; or null.
    file_store *file = nullptr;
    /// The memory of executable graphs.
    graphs *executable = nullptr;
    memory *table = nullptr;
    /// The memory that the program has registered, to say things of it.
    advised *advice = nullptr;
    int devices = 0;
    known_kernels *kernels = nullptr;
    /// Null if nothing is to be proven.
    proofs *proving = nullptr;
    cut_nodes nodes;
    unrolled_graphs unrolled;
    /// By device ordinal; empty if memory does not move.
    std::vector<mover *> movers;
    /// Set if kernels are checked and nothing moves; else null.
    check *checked = nullptr;
    pinned host;
    attached_contexts attached;

    /// The allocation around an address stays as it is from now on, for all
    /// movers but one.
    /// @return false where its memory cannot come from the file
    bool fix(CUdeviceptr at, const mover *but = nullptr) const
    {
        bool done = true;
        for (mover *each : movers)
            done = (each == but || each->fix(at)) && done;
        return done;
    }

    /// Words are copied to a device that may be a table of addresses: kernels
    /// may take them from there. Many words are searched only if some of them
    /// look so.
    /// @param words  in the host's memory, as far as the program says
    void note_table(const void *words, std::size_t bytes) const;
    /// The same of rows.
    void note_table(const void *words, std::size_t bytes, std::size_t pitch,
                    std::size_t rows) const;

    /// All memory stays as it is from now on.
    /// @param why  for the user
    void fix_all(const char *why) const
    {
        for (mover *each : movers)
            each->fix_all(why);
    }
    /// The same for allocations that move just now, but for one device's.
    void fix_others(const mover *but, const char *why) const
    {
        for (mover *each : movers)
            if (each != but && each->active())
                each->fix_all(why);
    }

    /// A stream is about to be captured, or to wait: see mover.
    void stream_waits() const
    {
        for (mover *each : movers)
            each->stream_waits();
    }
};

/// Makes the state, once; later calls give the first one's result.
CUresult start();

/// Null while the library only forwards: before cuInit, with EMUV_DISABLE=1 or
/// no limit set, and in the child of a process that had used CUDA.
state *current_state();

/// Finds PyTorch's own functions where they are loaded already. To be called
/// once, early: later its allocator would wait for whoever loads libraries.
void prepare_frameworks();

/// Work can reach memory in ways that nobody follows. All memory stays where it
/// is, from the return on and once the state is made.
/// @param name  the function that starts such work; outlives the process
void work_unseen(const char *name);
/// The same, by functions of the driver's that are not exported.
/// @param library  which has them; outlives the process
void work_private(const char *library);

/// The effects that a function newer than this library may have, by its name.
struct newer_does
{
    bool allocate = false; ///< hands out memory
    bool work = false;     ///< has the device work on memory
    bool wait = false;     ///< has a stream wait, on each call

    bool any() const { return allocate || work || wait; }
};

/// A stub that tells the effects of a function before it calls it.
/// @param name  the program's name for it
/// @param real  the driver's own
/// @return a stub of ours; @p real if there are none left, and then all its
///         effects have been told
void *newer_function(const char *name, void *real, newer_does what);

/// Our own function in place of one that a program asks cuGetProcAddress for.
/// @param real  the driver's answer
/// @return @p real if we have none
void *own_procedure(const char *name, int version, bool per_thread, void *real);

/// A hook's way in: null where it shall only forward, also when the driver
/// itself calls back into an exported function.
class entry
{
public:
    entry() : state_(depth_++ == 0 ? current_state() : nullptr) {}
    entry(const entry &) = delete;
    entry &operator=(const entry &) = delete;
    ~entry() { depth_--; }

    explicit operator bool() const { return state_ != nullptr; }
    state *operator->() const { return state_; }
    memory &table() const { return *state_->table; }

    /// The mover of the current device's memory, or null.
    mover *moving() const
    {
        const auto &all = state_->movers;
        if (all.empty())
            return nullptr;
        if (state_->devices == 1)
            return all.front();
        const auto device =
            static_cast<std::size_t>(current_device(state_->calls));
        return device < all.size() ? all[device] : nullptr;
    }

    /// True if a context is current; without one every answer is the driver's.
    bool has_context() const
    {
        CUdevice device = 0;
        return state_->calls.cuCtxGetDevice(&device) == CUDA_SUCCESS;
    }

private:
    static constinit thread_local int depth_ [[gnu::tls_model("initial-exec")]];
    state *const state_;
};

/// The default streams by name, so that one function serves both variants.
inline CUstream legacy(CUstream stream)
{
    return stream != nullptr ? stream : CU_STREAM_LEGACY;
}
inline CUstream per_thread(CUstream stream)
{
    return stream != nullptr ? stream : CU_STREAM_PER_THREAD;
}

/// The state behind the hooks, for a hook that makes its calls outside: these
/// may then be hooks', too. Null if a hook shall only forward.
inline state *state_if_ours()
{
    const entry ours;
    return ours ? ours.operator->() : nullptr;
}
inline memory *memory_if_ours()
{
    state *const ours = state_if_ours();
    return ours != nullptr ? ours->table : nullptr;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// One step of a graph: a launch, a copy or a fill.
#pragma once

#include "base/driver.hpp"

#include <cstddef>
#include <optional>
#include <variant>
#include <vector>

namespace emuv::cuda {

/// A kernel's launch, with all that it is given.
class kernel_step
{
public:
    /// @return nothing if the driver does not tell how its parameters lie, or
    ///   the device may change it
    static std::optional<kernel_step> of(CUgraphNode node);

    /// Takes over other parameters, which need not stay where they are.
    /// @return false if the driver does not tell how they lie
    bool take(const CUDA_KERNEL_NODE_PARAMS &params);

    /// True if it runs in that context.
    bool is_for(CUcontext context) const
    {
        return params_.ctx == nullptr || params_.ctx == context;
    }

    /// True if a launch is accepted as its function is set just now. The
    /// program may have set it otherwise since the node was made, which the
    /// node does not mind.
    bool may_run() const;
    CUresult run(CUstream stream);
    /// Adds the addresses that it is given, and those of them that it may leave
    /// in memory for other kernels.
    void add_addresses(std::vector<CUdeviceptr> &out,
                       std::vector<CUdeviceptr> &left);

private:
    // As launches take them. Valid as long as the step stays as it is.
    struct arguments
    {
        std::vector<void *> each;
        std::size_t bytes = 0;
        void *extra[5] = {};
        bool packed = false;

        void **parameters() { return packed ? nullptr : each.data(); }
        void **buffer() { return packed ? extra : nullptr; }
    };
    void give(arguments &out);

    CUDA_KERNEL_NODE_PARAMS params_{};
    std::vector<unsigned char> values_; // of all parameters, one after another
    std::vector<std::size_t> offsets_;  // of each, among those
    bool packed_ = false;               // given as one buffer, not each alone
    unsigned cluster_ = 1;              // blocks of one
    std::vector<CUlaunchAttribute> attributes_;
};

/// A node of a graph, by which the program changes the step, and what it does.
struct graph_step
{
    CUgraphNode node = nullptr;
    std::variant<kernel_step, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS> what;
    /// The graph's own node if that is a graph, and the step is of that; or
    /// null.
    CUgraphNode child = nullptr;

    /// Launches it.
    /// @param stream  with the default streams named
    CUresult run(CUstream stream);
    /// As for a kernel.
    void add_addresses(std::vector<CUdeviceptr> &out,
                       std::vector<CUdeviceptr> &left);
};

/// A graph, step by step.
struct graph_steps
{
    std::vector<graph_step> all;
    /// Why it has to run as a whole, a string that stays; or null.
    const char *whole = nullptr;
};

/// The steps of a graph and of the graphs in it, in the order that its edges
/// demand.
/// @param context  in which they are to run
graph_steps steps_of(CUgraph graph, CUcontext context);

} // namespace emuv::cuda

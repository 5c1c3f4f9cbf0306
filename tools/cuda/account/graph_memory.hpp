// SPDX-License-Identifier: LGPL-2.1-or-later
// Executable graphs that allocate memory by their own nodes.
#pragma once

#include "account/pools.hpp"
#include "base/driver.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// Which graphs take memory, and how much at most. The driver takes it when it
/// likes, at the latest when a graph is launched. Only afterwards it is known
/// how much that was (pools). So all of a graph's allocations must have room
/// before. Every call may come from any thread.
class graphs
{
public:
    graphs(const driver &calls, pools &taken) : calls_(calls), taken_(taken) {}

    /// cuGraphInstantiate, of whatever name.
    template <typename Call>
    CUresult instantiate(CUgraphExec *made, CUgraph from, Call from_driver)
    {
        std::vector<need> needs = needs_of(from);
        const CUresult result = within(needs, from_driver);
        if (result == CUDA_SUCCESS && !needs.empty())
            remember(*made, std::move(needs));
        return result;
    }

    /// cuGraphLaunch and cuGraphUpload.
    template <typename Call>
    CUresult launch(CUgraphExec which, Call from_driver)
    {
        if (!any_.load(std::memory_order_acquire))
            return from_driver();
        return within(needs_of(which), from_driver);
    }

    /// cuGraphExecDestroy.
    template <typename Call>
    CUresult destroy(CUgraphExec which, Call from_driver)
    {
        std::vector<need> needs = forget(which);
        const CUresult result = from_driver();
        if (result != CUDA_SUCCESS && !needs.empty())
            remember(which, std::move(needs));
        return result;
    }

private:
    struct need
    {
        int device = 0;
        std::uint64_t bytes = 0;
    };

    template <typename Call>
    CUresult within(const std::vector<need> &needs, Call from_driver)
    {
        if (!begin(needs))
            return CUDA_ERROR_OUT_OF_MEMORY;
        const CUresult result = from_driver();
        end(needs, needs.size());
        return result;
    }
    bool begin(const std::vector<need> &needs);
    void end(const std::vector<need> &needs, std::size_t count);

    std::vector<need> needs_of(CUgraph graph) const;
    std::vector<need> needs_of(CUgraphExec which);
    void remember(CUgraphExec which, std::vector<need> needs);
    std::vector<need> forget(CUgraphExec which);

    const driver &calls_;
    pools &taken_;
    std::atomic<bool> any_{false}; // launches of most programs ask no further
    std::mutex lock_;              // guards needs_
    std::map<CUgraphExec, std::vector<need>> needs_;
};

} // namespace emuv::cuda

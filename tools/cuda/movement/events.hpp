// SPDX-License-Identifier: LGPL-2.1-or-later
// The driver's events, used again and again.
#pragma once

#include "base/driver.hpp"

#include <vector>

namespace emuv::cuda {

/// Events of one context that nobody uses at the moment. The caller locks.
class events
{
public:
    /// @param calls  outlives this object
    explicit events(const driver &calls) : calls_(calls) {}
    events(const events &) = delete;
    events &operator=(const events &) = delete;

    /// @return null where the driver has none
    CUevent take()
    {
        CUevent event = nullptr;
        if (free_.empty())
            return calls_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) ==
                           CUDA_SUCCESS
                       ? event
                       : nullptr;
        event = free_.back();
        free_.pop_back();
        return event;
    }

    /// @param event  may be null
    void put(CUevent event)
    {
        if (event != nullptr)
            free_.push_back(event);
    }

    void destroy()
    {
        for (const CUevent each : free_)
            calls_.cuEventDestroy_v2(each);
        forget();
    }

    /// The driver has gone, and its events with it.
    void forget() { free_.clear(); }

private:
    const driver &calls_;
    std::vector<CUevent> free_;
};

} // namespace emuv::cuda

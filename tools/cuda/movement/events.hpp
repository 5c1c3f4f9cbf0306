// SPDX-License-Identifier: LGPL-2.1-or-later
// Keeps the driver's events, to be used again and again.
#pragma once

#include "base/driver.hpp"

#include <cstddef>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// Events of one context that nobody uses at the moment. By any thread. The
/// driver may wait for the device before it makes or destroys one, so neither
/// is done under a lock.
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
        const CUevent spare = take_spare();
        return spare != nullptr ? spare : make();
    }

    /// The same, of those that are there: waits for nobody.
    CUevent take_spare()
    {
        const std::lock_guard guard(lock_);
        if (free_.empty())
            return nullptr;
        const CUevent event = free_.back();
        free_.pop_back();
        return event;
    }

    /// How many those are.
    std::size_t spare()
    {
        const std::lock_guard guard(lock_);
        return free_.size();
    }
    /// Has so many of them there.
    void keep_spare(std::size_t count)
    {
        while (spare() < count) {
            const CUevent made = make();
            if (made == nullptr)
                return;
            put(made);
        }
    }

    /// @param event  null is none
    void put(CUevent event)
    {
        const std::lock_guard guard(lock_);
        if (event != nullptr)
            free_.push_back(event);
    }

    void destroy()
    {
        std::vector<CUevent> gone;
        {
            const std::lock_guard guard(lock_);
            gone.swap(free_);
        }
        for (const CUevent each : gone)
            calls_.cuEventDestroy_v2(each);
    }

    /// The driver has gone, and they with it.
    void forget()
    {
        const std::lock_guard guard(lock_);
        free_.clear();
    }

private:
    CUevent make()
    {
        CUevent event = nullptr;
        return calls_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) ==
                       CUDA_SUCCESS
                   ? event
                   : nullptr;
    }

    const driver &calls_;
    std::mutex lock_;
    std::vector<CUevent> free_;
};

} // namespace emuv::cuda

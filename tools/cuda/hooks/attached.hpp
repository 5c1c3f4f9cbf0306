// SPDX-License-Identifier: LGPL-2.1-or-later
// Contexts that the program holds more than once (cuCtxAttach).
#pragma once

#include <map>
#include <mutex>

#include <cuda.h>

namespace emuv::cuda {

/// How often the program holds a context beyond the first time. Every call may
/// come from any thread.
class attached_contexts
{
public:
    /// cuCtxAttach: the program holds once more a context that it created.
    void add(CUcontext context)
    {
        const std::lock_guard guard(lock_);
        more_[context]++;
    }
    /// cuCtxDetach. @return whether somebody holds it still
    bool remove(CUcontext context)
    {
        const std::lock_guard guard(lock_);
        const auto found = more_.find(context);
        if (found == more_.end())
            return false;
        if (--found->second == 0)
            more_.erase(found);
        return true;
    }
    /// The context is gone, however often it was retained.
    void gone(CUcontext context)
    {
        const std::lock_guard guard(lock_);
        more_.erase(context);
    }

private:
    std::mutex lock_; // guards all below
    std::map<CUcontext, unsigned> more_;
};

} // namespace emuv::cuda

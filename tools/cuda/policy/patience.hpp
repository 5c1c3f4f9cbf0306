// SPDX-License-Identifier: LGPL-2.1-or-later
// A limit on waits for something that may never come.
#pragma once

#include <algorithm>
#include <cstdint>

namespace emuv::cuda {

/// After a wait in vain no wait begins for some steps: twice as many each time.
/// A wait that was not in vain halves them.
class patience
{
public:
    bool is_left(std::uint64_t step) const { return step >= again_; }

    void lose(std::uint64_t step)
    {
        lost_ = std::min(lost_ + 1, 20u);
        again_ = step + (std::uint64_t{64} << lost_);
    }

    /// A wait was not in vain.
    void regain() { lost_ -= lost_ > 0 ? 1 : 0; }

private:
    std::uint64_t again_ = 0;
    unsigned lost_ = 0;
};

} // namespace emuv::cuda

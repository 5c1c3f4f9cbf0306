// SPDX-License-Identifier: LGPL-2.1-or-later
// Whether to wait again for what may never come.
#pragma once

#include <algorithm>
#include <cstdint>

namespace emuv::cuda {

/// After each wait in vain there is none for twice as many steps as before.
class patience
{
public:
    bool is_left(std::uint64_t step) const { return step >= again_; }

    void lose(std::uint64_t step)
    {
        lost_++;
        again_ = step + (std::uint64_t{64} << std::min(lost_, 20u));
    }

private:
    std::uint64_t again_ = 0;
    unsigned lost_ = 0;
};

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// How far a program is ahead of its device.
#include "lead.hpp"

#include <algorithm>

namespace emuv::cuda {

void lead::ended(std::uint64_t step, std::uint64_t handed_over_ns,
                 std::uint64_t now_ns)
{
    const std::uint64_t begun = std::max(handed_over_ns, last_end_ns_);
    busy_ns_ += now_ns - std::min(now_ns, begun);
    last_end_ns_ = now_ns;
    if (step == 0)
        return;
    if (ends_.empty())
        ends_.resize(max_steps);
    ends_[step % max_steps] = {step, busy_ns_};
}

std::uint64_t lead::busy_ns(std::uint64_t first, std::uint64_t last,
                            std::uint64_t lag) const
{
    if (lag == 0 || first <= lag + 1 || last < first)
        return 0;
    const end *const before = end_of(first - 1 - lag);
    const end *const after = end_of(last - lag);
    // Two streams may end in another order than they began in.
    return before != nullptr && after != nullptr &&
                   after->busy_ns > before->busy_ns
               ? after->busy_ns - before->busy_ns
               : 0;
}

const lead::end *lead::end_of(std::uint64_t step) const
{
    if (ends_.empty())
        return nullptr;
    const end &found = ends_[step % max_steps];
    return found.step == step ? &found : nullptr;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// The times that the device took for a program's last steps.
#include "policy/step_times.hpp"

#include <algorithm>

namespace emuv::cuda {

void step_times::add(std::uint64_t step, std::uint64_t took_ns,
                     std::uint64_t least_ns, std::uint64_t same)
{
    if (kept_.empty())
        kept_.resize(max_steps);
    const std::uint64_t known_ns = same != 0 ? least_of(same) : 0;
    kept_[step % max_steps] = {
        step, took_ns,
        std::min(took_ns, std::max(least_ns, known_ns - known_ns / 8))};
    late_ns_ += took_ns - late_ns_ / late_steps;
}

std::uint64_t step_times::of(std::uint64_t step) const
{
    if (kept_.empty())
        return 0;
    const time &found = kept_[step % max_steps];
    return found.step == step ? found.took_ns : late_ns_ / late_steps;
}

std::uint64_t step_times::least_of(std::uint64_t step) const
{
    if (kept_.empty())
        return 0;
    const time &found = kept_[step % max_steps];
    return found.step == step ? found.least_ns : 0;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// How far a piece of work reaches beyond the address that it was given.
#include "reach.hpp"

namespace emuv::cuda {

bool reach::to_the_end(std::uint64_t work) const
{
    const auto found = findings_.find(work);
    return found != findings_.end() && found->second.to_the_end;
}

bool reach::ended(std::uint64_t work, std::uint64_t beyond, std::uint64_t ns)
{
    const auto found = findings_.find(work);
    if (found == findings_.end()) {
        if (beyond == 0 || ns < slow_ns)
            return false;
        if (findings_.size() >= max_kept)
            findings_.clear();
        findings_[work].short_ns = ns;
        return true;
    }
    finding &known = found->second;
    if (known.settled || beyond > 0)
        return false;
    // One slow end may have another reason.
    if (ns < known.short_ns / 4 * 3) {
        known.settled = true;
    } else if (++known.trials == max_trials) {
        known.settled = true;
        known.to_the_end = false;
    }
    return false;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// Checks that a program's kernels keep to the memory that they are given.
#include "movement/check.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace emuv::cuda {

void check::begins(const work &launch)
{
    if (launch.kernel == nullptr)
        return;
    const std::lock_guard guard(lock_);
    if (found_.failed)
        return;
    if (launch.trusted) {
        found_.launches++;
        kernels_.insert(launch.what);
    } else {
        found_.untrusted_launches++;
        if (untrusted_.insert(launch.what).second)
            add_name(launch.kernel);
    }
}

void check::add_name(const char *name)
{
    constexpr int most = 72; // names of templates have no end
    const std::size_t left = found_.untrusted.size() - named_bytes_;
    const int added =
        std::snprintf(&found_.untrusted[named_bytes_], left, "%s%.*s%s",
                      named_bytes_ > 0 ? ", " : "", most, name,
                      std::strlen(name) > most ? "..." : "");
    if (added > 0)
        named_bytes_ += std::min<std::size_t>(added, left - 1);
}

void check::failed(const char *kernel, bool proven, CUresult error)
{
    {
        const std::lock_guard guard(lock_);
        if (std::exchange(found_.failed, true))
            return;
    }
    tell_(kernel, proven, error);
}

check::result check::so_far() const
{
    const std::lock_guard guard(lock_);
    result out = found_;
    out.kernels = kernels_.size();
    out.untrusted_kernels = untrusted_.size();
    return out;
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that was freed in stream order, and is kept for the next request.
#include "memory/vacancies.hpp"

#include "base/size.hpp"

#include <algorithm>
#include <bit>

namespace emuv::cuda {

std::uint64_t vacancies::size_for(std::uint64_t bytes)
{
    constexpr std::uint64_t least_step = 512;
    constexpr std::uint64_t steps_between_powers_of_two = 16;
    if (bytes >= chunk_bytes)
        return bytes;
    return round_up(bytes,
                    std::max(least_step, std::bit_floor(bytes) /
                                             steps_between_powers_of_two));
}

void vacancies::put(const vacancy &freed)
{
    free_[{freed.behind, freed.bytes, freed.base}] = asks_;
    bytes_ += freed.bytes;
}

std::optional<vacancies::vacancy> vacancies::take(std::uint64_t bytes,
                                                  const stream_of &behind)
{
    asks_++;
    const auto found = free_.lower_bound({behind, bytes, 0});
    if (found == free_.end() || found->first.behind != behind ||
        found->first.bytes - bytes > bytes / 8)
        return {};
    const vacancy taken{found->first.base, found->first.bytes, behind};
    bytes_ -= taken.bytes;
    free_.erase(found);
    return taken;
}

std::vector<vacancies::vacancy> vacancies::take_idle()
{
    if (asks_ < next_look_)
        return {};
    next_look_ = asks_ + asks_between_looks;
    return take_if([this](const vacancy &each) {
        return asks_ - free_[{each.behind, each.bytes, each.base}] >
               max_idle_asks;
    });
}

} // namespace emuv::cuda

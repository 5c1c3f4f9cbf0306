// SPDX-License-Identifier: LGPL-2.1-or-later
// Which element of a map by addresses an address lies in.
#pragma once

#include <functional>
#include <iterator>

namespace emuv::cuda {

/// The element of a map whose keys are where its values begin that an address
/// lies in; the end where there is none.
/// @param bytes  how large a value is: a member, or a function of a value
template <typename Map, typename Bytes>
auto around(Map &map, typename Map::key_type at, Bytes bytes)
{
    const auto after = map.upper_bound(at);
    if (after == map.begin())
        return map.end();
    const auto found = std::prev(after);
    return at - found->first < std::invoke(bytes, found->second) ? found
                                                                 : map.end();
}

/// True if any element has one of @p size addresses from @p at on. One of 0
/// bytes has none.
template <typename Map, typename Bytes>
bool any_within(Map &map, typename Map::key_type at,
                typename Map::key_type size, Bytes bytes)
{
    if (around(map, at, bytes) != map.end())
        return true;
    for (auto each = map.upper_bound(at);
         each != map.end() && each->first - at < size; ++each)
        if (std::invoke(bytes, each->second) > 0)
            return true;
    return false;
}

} // namespace emuv::cuda

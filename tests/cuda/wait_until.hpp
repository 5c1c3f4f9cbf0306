// SPDX-License-Identifier: GPL-2.0-or-later
// Waits for what other threads do.
#pragma once

#include <chrono>

/// Does a step again and again until something holds.
/// @param longest  only what hangs takes so long
/// @return false if it has not come to hold by then
template <typename Condition, typename Step>
bool wait_until(Condition holds, Step step,
                std::chrono::seconds longest = std::chrono::seconds(120))
{
    const auto end = std::chrono::steady_clock::now() + longest;
    while (!holds()) {
        if (std::chrono::steady_clock::now() >= end)
            return false;
        step();
    }
    return true;
}

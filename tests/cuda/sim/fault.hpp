// SPDX-License-Identifier: GPL-2.0-or-later
// Touches of unmapped device addresses, turned into an error of the work that
// made them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace sim {

// Faults in this range, on a thread inside run_guarded(), are the driver's.
// All others go to the handler that was there before.
void catch_faults(std::uintptr_t base, std::size_t bytes);

// False when the work touched an address it must not. Work that is cut short
// is not unwound.
bool run_guarded(const std::function<void()> &work);

} // namespace sim

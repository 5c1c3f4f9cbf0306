// SPDX-License-Identifier: GPL-2.0-or-later
// Counts of a simulation in virtual time.
#pragma once

#include <cstdint>

namespace bench {

/// How often a thread has gone on, of all threads together: each wait that has
/// ended counts once.
std::uint64_t turns();

} // namespace bench

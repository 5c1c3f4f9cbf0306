// SPDX-License-Identifier: GPL-2.0-or-later
// Tapes before the made-up card: the engine of this tree, and the oracle.
#pragma once

namespace bench {

/// movement_bench with --tape: see its help.
/// @return true if the arguments ask for tapes; then @p status is set
bool run_tapes(int count, char **arguments, int &status);

} // namespace bench

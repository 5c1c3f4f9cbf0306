// SPDX-License-Identifier: GPL-2.0-or-later
// Stands for the kernels that emuV brings with it as PTX.
#pragma once

#include "sim.h"

namespace sim {

// The module that stands for this PTX, or null: the simulation runs no PTX.
const emuv_sim_module *module_for_ptx(const char *text);

} // namespace sim

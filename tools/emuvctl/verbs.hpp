// SPDX-License-Identifier: GPL-2.0-or-later
// The verbs, each made in the file of its name, cmd_*.cpp.
#pragma once

#include "verb.hpp"

#include <vector>

namespace emuvctl {

verb apply_verb();
verb assert_verb();
verb batch_verb();
verb bugreport_verb();
verb cdi_verb();
verb complete_verb();
verb container_args_verb();
verb create_verb();
verb define_verb();
verb destroy_verb();
verb diagnose_verb();
verb doctor_verb();
verb estimate_verb();
verb export_verb();
verb gpu_verb();
verb info_verb();
verb kernels_verb();
verb list_verb();
verb load_verb();
verb profile_verb();
verb report_verb();
verb resize_verb();
verb run_verb();
verb serve_verb();
verb start_verb();
verb stats_verb();
verb stop_verb();
verb tape_verb();
verb top_verb();
verb undefine_verb();
verb unload_verb();
verb vm_args_verb();
verb vm_serve_verb();
verb why_verb();

/// All of them, in the help's order.
std::vector<verb> all_verbs();

} // namespace emuvctl

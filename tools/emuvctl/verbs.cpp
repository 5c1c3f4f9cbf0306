// SPDX-License-Identifier: GPL-2.0-or-later
// The list of verbs, in the help's order.
#include "verbs.hpp"

namespace emuvctl {

std::vector<verb> all_verbs()
{
    return {load_verb(),     unload_verb(),  create_verb(),
            destroy_verb(),  resize_verb(),  list_verb(),
            info_verb(),     stats_verb(),   top_verb(),
            why_verb(),      serve_verb(),   run_verb(),
            batch_verb(),    cdi_verb(),     container_args_verb(),
            vm_serve_verb(), vm_args_verb(), profile_verb(),
            define_verb(),   start_verb(),   stop_verb(),
            undefine_verb(), apply_verb(),   export_verb(),
            assert_verb(),   gpu_verb(),     estimate_verb(),
            kernels_verb(),  tape_verb(),    report_verb(),
            diagnose_verb(), doctor_verb(),  bugreport_verb(),
            complete_verb()};
}

} // namespace emuvctl

// SPDX-License-Identifier: GPL-2.0-or-later
// The variables that have frameworks use memory so that it can move.
#include "frameworks.hpp"

#include <cstdlib>

namespace emuvctl {

namespace {

std::vector<std::pair<std::string, std::string>> variables_for_frameworks()
{
    std::vector<std::pair<std::string, std::string>> out;
    const char *const known = std::getenv("XLA_FLAGS");
    std::string flags = known != nullptr ? known : "";
    // XLA takes a value that does not begin with '-' for a file's name.
    const std::size_t begin = flags.find_first_not_of(" \t\n");
    const bool is_file = begin != std::string::npos && flags[begin] != '-';
    // https://openxla.org/xla/flags_guidance: an empty list turns them off.
    if (!is_file &&
        flags.find("--xla_gpu_enable_command_buffer") == std::string::npos) {
        flags += flags.empty() ? "" : " ";
        out.emplace_back("XLA_FLAGS",
                         flags + "--xla_gpu_enable_command_buffer=");
    }
    // https://docs.jax.dev/en/latest/gpu_memory_allocation.html
    for (const auto &[name, value] :
         {std::pair{"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"},
          std::pair{"XLA_PYTHON_CLIENT_PREALLOCATE", "false"}})
        if (std::getenv(name) == nullptr)
            out.emplace_back(name, value);
    return out;
}

} // namespace

void add_for_frameworks(const asked_settings &asked,
                        std::vector<std::pair<std::string, std::string>> &set)
{
    if (!asked.holds("EMUV_MOVE") || asked.holds("EMUV_DISABLE"))
        return;
    for (auto &each : variables_for_frameworks())
        set.push_back(std::move(each));
}

option leave_frameworks_flag(bool &leaves)
{
    return flag("--leave-frameworks", leaves, "leave JAX's variables alone");
}

} // namespace emuvctl

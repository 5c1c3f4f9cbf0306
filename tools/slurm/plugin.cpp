// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's plugin: --emuv-vram of srun, sbatch and salloc, and on a node the
// variables that put a job's tasks under the CUDA library.
#include "job_environment.hpp"
#include "request.hpp"

#include <array>
#include <exception>
#include <string>
#include <string_view>

#include <unistd.h>

// Slurm's loader reads these, and the hooks below, by their names in C.
#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(emuv, 1)
}
#pragma GCC visibility pop

namespace {

// Slurm goes on after a hook that fails with a number above 0.
constexpr int failed = -1;

// The GiB that were asked for; 0 without the option.
std::uint64_t asked_gib = 0;

// Slurm calls it as it meets the option.
int on_option(int /*value*/, const char *text, int remote) noexcept
{
    try {
        // On a node the allocation counts, and not what was typed.
        if (remote == 0)
            asked_gib = emuv_slurm::read_request(text != nullptr ? text : "");
        return ESPANK_SUCCESS;
    } catch (const std::exception &problem) {
        slurm_error("--emuv-vram: %s", problem.what());
        return failed;
    }
}

// Slurm's structure has no const.
spank_option &vram_option()
{
    static std::array<char, 16> name{"emuv-vram"};
    static std::array<char, 8> argument{"SIZE"};
    static std::array<char, 128> usage{
        "virtual VRAM (system RAM behind the card's) on each node, as 48G; "
        "a share of the card goes with it"};
    static spank_option option{name.data(), argument.data(), usage.data(), 1,
                               0,           on_option};
    return option;
}

bool asks(spank_t spank)
{
    char *text = nullptr;
    return spank_option_getopt(spank, &vram_option(), &text) == ESPANK_SUCCESS;
}

// A variable of the job; empty if it has none.
std::string variable(spank_t spank, const std::string &name)
{
    std::string value(4096, '\0');
    for (;;) {
        const auto problem = spank_getenv(spank, name.c_str(), value.data(),
                                          static_cast<int>(value.size()));
        if (problem == ESPANK_NOSPACE && value.size() < (1U << 20)) {
            value.resize(2 * value.size());
            continue;
        }
        if (problem != ESPANK_SUCCESS)
            return {};
        value.resize(std::string_view(value.c_str()).size());
        return value;
    }
}

std::string node_name(spank_t spank)
{
    if (auto name = variable(spank, "SLURMD_NODENAME"); !name.empty())
        return name;
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const std::string_view whole(host.data());
    return std::string(whole.substr(0, whole.find('.')));
}

// plugstack.conf may name the folder of the prolog's notes: state=DIR
std::string state_folder(int count, char *arguments[])
{
    constexpr std::string_view key = "state=";
    for (int i = 0; i < count; i++)
        if (std::string_view(arguments[i]).starts_with(key))
            return arguments[i] + key.size();
    return "/run/emuv/slurm";
}

// Puts the tasks under the library, if the prolog has made an instance.
int enter_instance(spank_t spank, const std::string &state)
{
    std::uint32_t job = 0;
    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
        return failed;
    const std::string file = state + "/" + node_name(spank) + "/" +
                             std::to_string(job) + ".environment";
    const auto set = emuv_slurm::read_environment(file);
    if (!set) {
        if (!asks(spank))
            return ESPANK_SUCCESS;
        slurm_error("--emuv-vram: the job has no instance on this node: no %s. "
                    "Give the option to the job, not to a step of it; the "
                    "administrator finds more in Slurm's prolog",
                    file.c_str());
        return failed;
    }
    for (const auto &[name, value] : *set) {
        const std::string joined =
            emuv_slurm::joined_value(name, value, variable(spank, name));
        const auto problem =
            spank_setenv(spank, name.c_str(), joined.c_str(), 1);
        if (problem != ESPANK_SUCCESS) {
            slurm_error("emuv: %s cannot be set: %s", name.c_str(),
                        spank_strerror(problem));
            return failed;
        }
    }
    return ESPANK_SUCCESS;
}

} // namespace

#pragma GCC visibility push(default)

int slurm_spank_init(spank_t spank, int /*count*/, char ** /*arguments*/)
{
    const auto context = spank_context();
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR &&
        context != S_CTX_REMOTE)
        return ESPANK_SUCCESS;
    return spank_option_register(spank, &vram_option()) == ESPANK_SUCCESS
               ? ESPANK_SUCCESS
               : failed;
}

// job_submit.lua finds the number among the job's control variables, and asks
// for that many gres/emuv_vram.
int slurm_spank_init_post_opt(spank_t spank, int /*count*/,
                              char ** /*arguments*/)
{
    if (spank_context() == S_CTX_REMOTE || asked_gib == 0)
        return ESPANK_SUCCESS;
    const auto problem =
        spank_job_control_setenv(spank, emuv_slurm::request_variable,
                                 std::to_string(asked_gib).c_str(), 1);
    if (problem == ESPANK_SUCCESS)
        return ESPANK_SUCCESS;
    slurm_error("--emuv-vram: %s", spank_strerror(problem));
    return failed;
}

// Earlier hooks do not know yet which node they are on.
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
    try {
        return enter_instance(spank, state_folder(count, arguments));
    } catch (const std::exception &problem) {
        slurm_error("emuv: %s", problem.what());
        return failed;
    }
}

#pragma GCC visibility pop

// SPDX-License-Identifier: GPL-2.0-or-later
// Modules of host functions in the place of kernels.
#pragma once

#include "context.hpp"
#include "sim.h"

#include <string>

namespace sim {

struct module;

struct function
{
    module *owner = nullptr;
    emuv_sim_kernel kernel{};
    int max_dynamic_shared = 49152;
    std::size_t param_bytes() const;
};

struct module
{
    context *owner = nullptr; // null: a library, of every context
    std::vector<std::shared_ptr<function>> functions;
    struct variable
    {
        emuv_sim_global is{};
        context *where = nullptr; // the owner of its memory
        std::uintptr_t base = 0;
    };
    std::vector<variable> variables;

    ~module();
};

struct launch_shape
{
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
};

// The parameters of a kernel node, kept to be read back.
struct kernel_request
{
    std::shared_ptr<function> what;
    launch_shape shape{};
    std::shared_ptr<void> values; // the parameters, copied
    std::vector<void *> pointers; // to each
};

CUresult make_launch(context &where, const void *function_handle,
                     const launch_shape &shape, void **params, void **extra,
                     operation &out);
CUresult from_api(context &where, const CUDA_KERNEL_NODE_PARAMS *in,
                  operation &out);

} // namespace sim

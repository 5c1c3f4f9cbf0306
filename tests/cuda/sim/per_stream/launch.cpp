// SPDX-License-Identifier: GPL-2.0-or-later
// Kernel launches.
#include "../module.hpp"
#include "per_stream.hpp"

using namespace sim;

namespace {

CUresult launch(call &entered, CUfunction f, const launch_shape &shape,
                CUstream hStream, void **kernelParams, void **extra)
{
    auto on = resolve(*entered.current, hStream, per_thread);
    if (!on)
        return CUDA_ERROR_INVALID_HANDLE;
    operation op;
    if (CUresult r = make_launch(*on->owner, f, shape, kernelParams, extra, op))
        return r;
    return submit(*on, std::move(op));
}

} // namespace

CUresult cuLaunchKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY,
                        unsigned gridDimZ, unsigned blockDimX,
                        unsigned blockDimY, unsigned blockDimZ,
                        unsigned sharedMemBytes, CUstream hStream,
                        void **kernelParams, void **extra)
{
    SIM_ENTER(context);
    return launch(entered, f,
                  {{gridDimX, gridDimY, gridDimZ},
                   {blockDimX, blockDimY, blockDimZ},
                   sharedMemBytes},
                  hStream, kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f,
                          void **kernelParams, void **extra)
{
    SIM_ENTER(context);
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    return launch(entered, f,
                  {{config->gridDimX, config->gridDimY, config->gridDimZ},
                   {config->blockDimX, config->blockDimY, config->blockDimZ},
                   config->sharedMemBytes},
                  config->hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gridDimX,
                                   unsigned gridDimY, unsigned gridDimZ,
                                   unsigned blockDimX, unsigned blockDimY,
                                   unsigned blockDimZ, unsigned sharedMemBytes,
                                   CUstream hStream, void **kernelParams)
{
    SIM_ENTER(context);
    return launch(entered, f,
                  {{gridDimX, gridDimY, gridDimZ},
                   {blockDimX, blockDimY, blockDimZ},
                   sharedMemBytes},
                  hStream, kernelParams, nullptr);
}

// SPDX-License-Identifier: LGPL-2.1-or-later
// Launches of kernels: each is announced to the mover before it runs.
#include "hooks/session.hpp"

using namespace emuv::cuda;

namespace {

template <typename Call>
CUresult launch(CUfunction function, CUstream stream, void **parameters,
                void **extra, Call real)
{
    const entry ours;
    mover *const moves = ours ? ours.moving() : nullptr;
    if (moves == nullptr)
        return real();
    return moves->run(
        stream,
        [&](work &out) {
            ours->kernels->scan(ours->calls, function, parameters, extra, out);
        },
        real);
}

} // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    return launch(function, legacy(stream), parameters, extra, [&] {
        return EMUV_REAL(cuLaunchKernel)(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            shared_bytes, stream, parameters, extra);
    });
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x,
                             unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, CUstream stream,
                             void **parameters, void **extra)
{
    return launch(function, per_thread(stream), parameters, extra, [&] {
        return EMUV_REAL(cuLaunchKernel_ptsz)(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            shared_bytes, stream, parameters, extra);
    });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                          void **parameters, void **extra)
{
    const auto real = [&] {
        return EMUV_REAL(cuLaunchKernelEx)(config, function, parameters, extra);
    };
    return config == nullptr ? real()
                             : launch(function, legacy(config->hStream),
                                      parameters, extra, real);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config,
                               CUfunction function, void **parameters,
                               void **extra)
{
    const auto real = [&] {
        return EMUV_REAL(cuLaunchKernelEx_ptsz)(config, function, parameters,
                                                extra);
    };
    return config == nullptr ? real()
                             : launch(function, per_thread(config->hStream),
                                      parameters, extra, real);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x,
                                   unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes,
                                   CUstream stream, void **parameters)
{
    return launch(function, legacy(stream), parameters, nullptr, [&] {
        return EMUV_REAL(cuLaunchCooperativeKernel)(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            shared_bytes, stream, parameters);
    });
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x,
                                        unsigned grid_y, unsigned grid_z,
                                        unsigned block_x, unsigned block_y,
                                        unsigned block_z, unsigned shared_bytes,
                                        CUstream stream, void **parameters)
{
    return launch(function, per_thread(stream), parameters, nullptr, [&] {
        return EMUV_REAL(cuLaunchCooperativeKernel_ptsz)(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            shared_bytes, stream, parameters);
    });
}

// SPDX-License-Identifier: GPL-2.0-or-later
// The source of two.cubin: nvcc -cubin -arch=sm_90.
extern "C" __global__ void scale(float *to, const float *from, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = 2 * from[i];
}

extern "C" __global__ void fill_those(float **tables, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        tables[blockIdx.x][i] = 1;
}

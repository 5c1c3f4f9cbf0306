// SPDX-License-Identifier: GPL-2.0-or-later
// Products of cuBLAS with so many MiB of weights, each used twice: what
// inference does with weights beyond the share. Prints lines of "name value";
// `result` is a sum over every bit of what came out.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace
{

constexpr int side = 8192;
constexpr int rows = 256;
constexpr std::size_t weight_words = std::size_t{side} * side;

void check(bool good, const char *what)
{
    if (good)
        return;
    std::printf("failed %s\n", what);
    std::exit(1);
}
#define CHECK(call) check((call) == 0, #call)

__device__ std::uint32_t mix(std::uint32_t value)
{
    value ^= value >> 16;
    value *= 0x7feb352du;
    value ^= value >> 15;
    value *= 0x846ca68bu;
    return value ^ value >> 16;
}

// Numbers between -1/52 and 1/52: a product keeps the size of its input.
__global__ void fill(__nv_bfloat16 *to, std::size_t count, std::uint32_t seed)
{
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
         i < count; i += std::size_t{gridDim.x} * blockDim.x)
    {
        const std::uint32_t random =
            mix(seed * 0x9e3779b9u + static_cast<std::uint32_t>(i));
        to[i] = __float2bfloat16(static_cast<float>(random) /
                                     4294967296.0f / 26.0f -
                                 1.0f / 52.0f);
    }
}

__global__ void sum(const std::uint16_t *from, std::size_t count,
                    unsigned long long *result)
{
    unsigned long long mine = 0;
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
         i < count; i += std::size_t{gridDim.x} * blockDim.x)
        mine += from[i] * (2 * i + 1);
    atomicAdd(result, mine);
}

} // namespace

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    const std::size_t weight_bytes = weight_words * sizeof(__nv_bfloat16);
    const std::size_t total =
        std::strtoull(arguments[1], nullptr, 10) * (std::size_t{1} << 20);
    std::vector<__nv_bfloat16 *> weights(total / weight_bytes);
    for (std::size_t i = 0; i < weights.size(); i++)
    {
        CHECK(cudaMalloc(&weights[i], weight_bytes));
        fill<<<1024, 256>>>(weights[i], weight_words,
                            static_cast<std::uint32_t>(i));
    }
    __nv_bfloat16 *in = nullptr;
    __nv_bfloat16 *out = nullptr;
    unsigned long long *result = nullptr;
    CHECK(cudaMalloc(&in, std::size_t{side} * rows * sizeof *in));
    CHECK(cudaMalloc(&out, std::size_t{side} * rows * sizeof *out));
    CHECK(cudaMalloc(&result, sizeof *result));
    CHECK(cudaMemset(result, 0, sizeof *result));
    fill<<<1024, 256>>>(in, std::size_t{side} * rows, 12345);
    cublasHandle_t handle = nullptr;
    CHECK(cublasCreate(&handle));
    // A workspace of our own: cuBLAS's choice must not depend on what is free.
    void *workspace = nullptr;
    const std::size_t workspace_bytes = std::size_t{32} << 20;
    CHECK(cudaMalloc(&workspace, workspace_bytes));
    CHECK(cublasSetWorkspace(handle, workspace, workspace_bytes));
    CHECK(cudaDeviceSynchronize());

    const auto start = std::chrono::steady_clock::now();
    const float one = 1;
    const float zero = 0;
    for (int round = 0; round < 2; round++)
        for (const __nv_bfloat16 *weight : weights)
        {
            CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, side, rows,
                               side, &one, weight, CUDA_R_16BF, side, in,
                               CUDA_R_16BF, side, &zero, out, CUDA_R_16BF,
                               side, CUBLAS_COMPUTE_32F,
                               CUBLAS_GEMM_DEFAULT));
            std::swap(in, out);
            sum<<<256, 256>>>(reinterpret_cast<std::uint16_t *>(in),
                              std::size_t{side} * rows, result);
        }
    unsigned long long bits = 0;
    CHECK(cudaMemcpy(&bits, result, sizeof bits, cudaMemcpyDeviceToHost));
    const std::chrono::duration<double> taken =
        std::chrono::steady_clock::now() - start;
    std::printf("allocated_mib %zu\nseconds %.2f\nresult %llu\n",
                weights.size() * (weight_bytes >> 20), taken.count(), bits);
    CHECK(cublasDestroy(handle));
    return 0;
}

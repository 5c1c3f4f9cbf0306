// SPDX-License-Identifier: GPL-2.0-or-later
// Times a chain of matrix products over weights that need not fit, by a program
// that knows nothing of emuV, and hashes all results.
//
//   chain WEIGHTS_GIB [M...]
//
// Prints, for each number of rows M: M, milliseconds a pass over all weights
// (the median of ten passes after thirty others), and the hash.
#include "check.hpp"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void fill(uint32_t *at, size_t count, uint32_t seed)
{
    const size_t step = gridDim.x * size_t{blockDim.x};
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
         i += step) {
        uint32_t x = (static_cast<uint32_t>(i) ^ seed) * 2654435761u;
        x ^= x >> 15;
        // Two bf16 numbers of either sign between 2^-8 and 2^-7.
        at[i] = 0x3b803b80u | (x & 0x807f807fu);
    }
}

__global__ void hash(const uint32_t *at, size_t count, unsigned long long *out)
{
    unsigned long long sum = 0;
    const size_t step = gridDim.x * size_t{blockDim.x};
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
         i += step)
        sum += (at[i] + 1ull) * (2 * i + 1) * 0x9e3779b97f4a7c15ull;
    atomicAdd(out, sum);
}

int main(int argc, char **argv)
{
    constexpr int k = 8192;
    constexpr int n = 8192 * 3;
    constexpr size_t layer_bytes = size_t{k} * n * 2;
    const double gib = argc > 1 ? std::atof(argv[1]) : 9;
    const auto layers =
        static_cast<size_t>(gib * 1073741824.0 / layer_bytes + 0.5);
    std::vector<int> rows;
    for (int i = 2; i < argc; i++)
        rows.push_back(std::atoi(argv[i]));
    if (rows.empty())
        rows = {1, 64, 2048, 8192};
    const int most = *std::max_element(rows.begin(), rows.end());

    void *x = nullptr;
    void *y = nullptr;
    unsigned long long *sum = nullptr;
    CHECK(cudaMalloc(&x, size_t{k} * most * 2));
    CHECK(cudaMalloc(&y, size_t{n} * most * 2));
    CHECK(cudaMalloc(&sum, 8));
    cublasHandle_t blas;
    CHECK(cublasCreate(&blas));
    std::vector<void *> weights(layers);
    for (size_t i = 0; i < layers; i++) {
        CHECK(cudaMalloc(&weights[i], layer_bytes));
        fill<<<1024, 256>>>(static_cast<uint32_t *>(weights[i]),
                            layer_bytes / 4, static_cast<uint32_t>(i));
    }
    fill<<<1024, 256>>>(static_cast<uint32_t *>(x), size_t{k} * most / 2, 99);
    CHECK(cudaDeviceSynchronize());

    for (const int m : rows) {
        const float one = 1;
        const float zero = 0;
        const auto product = [&](size_t i) {
            CHECK(cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one,
                               weights[i], CUDA_R_16BF, k, x, CUDA_R_16BF, k,
                               &zero, y, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F,
                               CUBLAS_GEMM_DEFAULT));
        };
        std::vector<double> passes;
        for (int pass = 0; pass < 40; pass++) {
            const auto start = std::chrono::steady_clock::now();
            for (size_t i = 0; i < layers; i++)
                product(i);
            CHECK(cudaStreamSynchronize(nullptr));
            const std::chrono::duration<double, std::milli> took =
                std::chrono::steady_clock::now() - start;
            if (std::getenv("CHAIN_VERBOSE"))
                std::fprintf(stderr, "m %d pass %d: %.2f ms\n", m, pass,
                             took.count());
            if (pass > 29)
                passes.push_back(took.count());
        }
        std::sort(passes.begin(), passes.end());
        CHECK(cudaMemset(sum, 0, 8));
        for (size_t i = 0; i < layers; i++) {
            product(i);
            hash<<<256, 256>>>(static_cast<uint32_t *>(y), size_t{n} * m / 2,
                               sum);
        }
        unsigned long long result = 0;
        CHECK(cudaMemcpy(&result, sum, 8, cudaMemcpyDeviceToHost));
        std::printf("%d %.3f %016llx\n", m, passes[passes.size() / 2], result);
        std::fflush(stdout);
    }
    return 0;
}

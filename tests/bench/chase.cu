// SPDX-License-Identifier: GPL-2.0-or-later
// Work that nobody can foresee, over memory that need not fit: timed, with a
// hash of the bytes read. It follows lists, picks lines at random, and reads
// and writes blocks in an order that never repeats.
//
//   chase GIB [HOST_PART]
//
// GIB: a power of two. With HOST_PART so much of it, from the end, is pinned
// memory of the host that kernels reach over the link: plain zero-copy.
// Prints, for each kind of work: its name, milliseconds (the median of seven
// passes after three others), and the hash.
#include "check.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

constexpr size_t block_bytes = size_t{64} << 20;
constexpr size_t node_bytes = 4096;
constexpr size_t nodes_each = block_bytes / node_bytes;
constexpr unsigned max_blocks = 256;

struct node
{
    const node *next;
    unsigned long long value;
};

// Addresses packed into a parameter.
struct table
{
    unsigned char *blocks[max_blocks];
};

// A circle through all nodes. The multiplier is 1 modulo 4 and the increment is
// odd, so it has the full period of a power of two.
__host__ __device__ static unsigned long long after(unsigned long long i,
                                                    unsigned long long count)
{
    return (i * 1664525 + 1013904223) & (count - 1);
}

static __device__ node *node_at(const table &all, unsigned long long i)
{
    return reinterpret_cast<node *>(all.blocks[i / nodes_each] +
                                    i % nodes_each * node_bytes);
}

__global__ void fill(unsigned *at, size_t count, unsigned seed)
{
    const size_t step = gridDim.x * size_t{blockDim.x};
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
         i += step)
        at[i] = (static_cast<unsigned>(i) ^ seed) * 2654435761u;
}

__global__ void link(table all, unsigned long long count)
{
    const auto step = gridDim.x * static_cast<unsigned long long>(blockDim.x);
    for (auto i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) +
                  threadIdx.x;
         i < count; i += step)
        *node_at(all, i) = {node_at(all, after(i, count)), i * 77 + 5};
}

// Given the first node of each list, and no other address.
__global__ void follow(const node *const *heads, int steps,
                       unsigned long long *out)
{
    const node *at = heads[blockIdx.x * blockDim.x + threadIdx.x];
    unsigned long long sum = 0;
    for (int i = 0; i < steps; i++) {
        sum += at->value * (2 * i + 1);
        at = at->next;
    }
    atomicAdd(out, sum);
}

__global__ void heads_of(table all, unsigned long long count,
                         const node **heads)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    heads[i] = node_at(all, (i * 2654435761ull) & (count - 1));
}

// Lines of 128 bytes, a warp each.
__global__ void gather(table all, unsigned count, int lines, unsigned seed,
                       unsigned long long *out)
{
    const unsigned lane = threadIdx.x % 32;
    unsigned random = (blockIdx.x * blockDim.x + threadIdx.x) / 32 + seed;
    unsigned long long sum = 0;
    for (int i = 0; i < lines; i++) {
        random = random * 747796405u + 2891336453u;
        const unsigned word = (random >> (random >> 28) % 8) ^ random;
        const unsigned char *block = all.blocks[(word >> 20) % count];
        const size_t line = word % (block_bytes / 128);
        sum += reinterpret_cast<const unsigned *>(block + line * 128)[lane];
    }
    atomicAdd(out, sum);
}

__global__ void read_one(const uint4 *at, size_t count, unsigned long long *out)
{
    unsigned long long sum = 0;
    const size_t step = gridDim.x * size_t{blockDim.x};
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
         i += step)
        sum += at[i].x + 3ull * at[i].y + 5ull * at[i].z + 7ull * at[i].w;
    atomicAdd(out, sum);
}

__global__ void change_one(uint4 *at, size_t count)
{
    const size_t step = gridDim.x * size_t{blockDim.x};
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
         i += step)
        at[i].y += 3;
}

int main(int argc, char **argv)
{
    const auto count =
        static_cast<unsigned>((argc > 1 ? std::atof(argv[1]) : 8) * 16);
    const double host_part = argc > 2 ? std::atof(argv[2]) : 0;
    if (count == 0 || count > max_blocks || (count & (count - 1)) != 0) {
        std::fprintf(stderr, "chase: GIB is a power of two, at most 16\n");
        return 2;
    }
    const auto first_host =
        count - static_cast<unsigned>(host_part * count + 0.5);
    const unsigned long long nodes = nodes_each * count;
    constexpr unsigned lists = 128 * 256;

    unsigned long long *sum = nullptr;
    const node **heads = nullptr;
    CHECK(cudaMalloc(&sum, 8));
    CHECK(cudaMalloc(&heads, lists * sizeof *heads));
    table all{};
    for (unsigned i = 0; i < count; i++) {
        void *made = nullptr;
        if (i < first_host)
            CHECK(cudaMalloc(&made, block_bytes));
        else
            CHECK(cudaHostAlloc(&made, block_bytes, cudaHostAllocMapped));
        all.blocks[i] = static_cast<unsigned char *>(made);
    }
    const auto fill_all = [&] {
        for (unsigned i = 0; i < count; i++)
            fill<<<1024, 256>>>(reinterpret_cast<unsigned *>(all.blocks[i]),
                                block_bytes / 4, i);
    };
    fill_all();
    link<<<1024, 256>>>(all, nodes);
    heads_of<<<lists / 256, 256>>>(all, nodes, heads);
    CHECK(cudaMemset(sum, 0, 8));
    CHECK(cudaDeviceSynchronize());

    std::mt19937 random(1);
    unsigned seed = 0;
    const auto measure = [&](const char *name, auto &&work) {
        std::vector<double> passes;
        for (int pass = 0; pass < 10; pass++) {
            const auto start = std::chrono::steady_clock::now();
            work();
            CHECK(cudaStreamSynchronize(nullptr));
            const std::chrono::duration<double, std::milli> took =
                std::chrono::steady_clock::now() - start;
            if (pass > 2)
                passes.push_back(took.count());
        }
        std::sort(passes.begin(), passes.end());
        unsigned long long result = 0;
        CHECK(cudaMemcpy(&result, sum, 8, cudaMemcpyDeviceToHost));
        std::printf("%s %.3f %016llx\n", name, passes[passes.size() / 2],
                    result);
        std::fflush(stdout);
    };
    measure("chase", [&] { follow<<<lists / 256, 256>>>(heads, 64, sum); });
    // The lists hold addresses, which differ from run to run.
    fill_all();
    CHECK(cudaMemset(sum, 0, 8));
    measure("gather", [&] {
        gather<<<1024, 256>>>(all, count, 256, seed += 100003, sum);
    });
    measure("sequence", [&] {
        for (int i = 0; i < 64; i++) {
            auto *at = reinterpret_cast<uint4 *>(all.blocks[random() % count]);
            if (random() % 4 == 0)
                change_one<<<1024, 256>>>(at, block_bytes / 16);
            else
                read_one<<<1024, 256>>>(at, block_bytes / 16, sum);
        }
    });
    return 0;
}

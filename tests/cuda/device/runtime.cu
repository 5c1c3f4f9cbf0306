// SPDX-License-Identifier: GPL-2.0-or-later
// A program of CUDA's static runtime, which ./run runs on a card, with and
// without the library. Prints lines of "name value".
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace
{

constexpr std::size_t MiB = std::size_t{1} << 20;

double seconds()
{
    using clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(clock::now().time_since_epoch())
        .count();
}

void check(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return;
    std::printf("failed %s: %s\n", what, cudaGetErrorName(result));
    std::exit(1);
}
#define CHECK(call) check(call, #call)

__global__ void nothing() {}

__device__ std::uint64_t mix(std::uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 29;
    return value;
}

__global__ void fill(std::uint64_t *words, std::size_t count,
                     std::uint64_t seed)
{
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
         i < count; i += std::size_t{gridDim.x} * blockDim.x)
        words[i] = mix(i + seed);
}

__global__ void verify(const std::uint64_t *words, std::size_t count,
                       std::uint64_t seed, unsigned long long *wrong)
{
    unsigned long long mine = 0;
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
         i < count; i += std::size_t{gridDim.x} * blockDim.x)
        mine += words[i] != mix(i + seed);
    if (mine != 0)
        atomicAdd(wrong, mine);
}

void info()
{
    std::size_t free = 0;
    std::size_t total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    std::printf("total_mib %zu\nfree_mib %zu\nproperties_mib %zu\n",
                total / MiB, free / MiB, properties.totalGlobalMem / MiB);
}

void times()
{
    const struct
    {
        const char *name;
        std::size_t bytes;
        int rounds;
    } sizes[] = {{"256KiB", MiB / 4, 50},
                 {"2MiB", 2 * MiB, 50},
                 {"20MiB", 20 * MiB, 20},
                 {"256MiB", 256 * MiB, 10},
                 {"1GiB", 1024 * MiB, 5}};
    void *warm = nullptr;
    CHECK(cudaMalloc(&warm, MiB));
    for (const auto &size : sizes)
    {
        std::vector<void *> pointers(size.rounds);
        double start = seconds();
        for (void *&pointer : pointers)
            CHECK(cudaMalloc(&pointer, size.bytes));
        std::printf("malloc_%s_us %.1f\n", size.name,
                    (seconds() - start) / size.rounds * 1e6);
        start = seconds();
        for (void *pointer : pointers)
            CHECK(cudaFree(pointer));
        std::printf("free_%s_us %.1f\n", size.name,
                    (seconds() - start) / size.rounds * 1e6);
    }
    constexpr int launches = 200000;
    double best = 1e9;
    for (int round = 0; round < 3; round++)
    {
        nothing<<<1, 1>>>();
        CHECK(cudaDeviceSynchronize());
        const double start = seconds();
        for (int i = 0; i < launches; i++)
            nothing<<<1, 1>>>();
        CHECK(cudaDeviceSynchronize());
        const double mean = (seconds() - start) / launches * 1e6;
        best = mean < best ? mean : best;
    }
    std::printf("launch_us %.3f\n", best);
    CHECK(cudaFree(warm));
}

// Holds `mib` in allocations of 3 sizes, writes and reads every word by
// kernels and by copies that begin and end at odd places.
void hold(std::size_t mib)
{
    struct Buffer
    {
        std::uint64_t *words;
        std::size_t bytes;
    };
    const std::size_t sizes[] = {700 * MiB, 33 * MiB, MiB};
    std::vector<Buffer> buffers;
    std::size_t held = 0;
    for (int i = 0; held < mib * MiB; i++)
    {
        Buffer buffer = {nullptr, sizes[i % 3]};
        CHECK(cudaMalloc(&buffer.words, buffer.bytes));
        buffers.push_back(buffer);
        held += buffer.bytes;
    }
    unsigned long long *wrong = nullptr;
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    const double start = seconds();
    for (std::size_t i = 0; i < buffers.size(); i++)
        fill<<<1024, 256>>>(buffers[i].words, buffers[i].bytes / 8, i << 40);
    CHECK(cudaDeviceSynchronize());
    for (std::size_t i = 0; i < buffers.size(); i++)
        verify<<<1024, 256>>>(buffers[i].words, buffers[i].bytes / 8, i << 40,
                              wrong);
    unsigned long long bad = 0;
    CHECK(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost));
    std::printf("held_mib %zu\nkernel_wrong %llu\nfill_verify_s %.2f\n",
                held / MiB, bad, seconds() - start);

    // Each buffer goes to the host in odd steps and back reversed in order:
    // across every seam, in one dimension and in two.
    std::vector<unsigned char> host(64 * MiB + 4096);
    const std::size_t step = 61 * MiB + 1237;
    for (const Buffer &buffer : buffers)
    {
        auto *at = reinterpret_cast<unsigned char *>(buffer.words);
        for (std::size_t from = 0; from < buffer.bytes; from += step)
        {
            const std::size_t bytes =
                step < buffer.bytes - from ? step : buffer.bytes - from;
            CHECK(cudaMemcpy(host.data(), at + from, bytes,
                             cudaMemcpyDeviceToHost));
            CHECK(cudaMemset(at + from, 0xa5, bytes));
            CHECK(cudaMemcpy(at + from, host.data(), bytes,
                             cudaMemcpyHostToDevice));
        }
        if (buffer.bytes < 33 * MiB)
            continue;
        const std::size_t width = 1000003;
        const std::size_t rows = 32;
        CHECK(cudaMemcpy2D(host.data(), width, at + 12345, width + 77, width,
                           rows, cudaMemcpyDeviceToHost));
        CHECK(cudaMemset2D(at + 12345, width + 77, 0x11, width, rows));
        CHECK(cudaMemcpy2D(at + 12345, width + 77, host.data(), width, width,
                           rows, cudaMemcpyHostToDevice));
    }
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    for (std::size_t i = 0; i < buffers.size(); i++)
        verify<<<1024, 256>>>(buffers[i].words, buffers[i].bytes / 8, i << 40,
                              wrong);
    CHECK(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost));
    std::printf("copy_wrong %llu\n", bad);
    cudaPointerAttributes attributes;
    for (const Buffer &buffer : buffers)
    {
        CHECK(cudaPointerGetAttributes(
            &attributes, reinterpret_cast<char *>(buffer.words) + buffer.bytes -
                             1));
        if (attributes.type != cudaMemoryTypeDevice)
            std::printf("attribute_wrong type %d\n", attributes.type);
    }
    for (const Buffer &buffer : buffers)
        CHECK(cudaFree(buffer.words));
    CHECK(cudaFree(wrong));
    std::printf("done 1\n");
}

// Without the library: is the driver's own answer to each name and version of
// the table the symbol that the table says?
void procedures(const char *table)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    std::ifstream lines(table);
    std::string line;
    unsigned same = 0;
    unsigned other = 0;
    while (std::getline(lines, line))
    {
        std::istringstream words(line.substr(0, line.find('#')));
        std::string kind;
        std::string symbol;
        std::string name;
        int version = 0;
        std::string thread;
        if (!(words >> kind >> symbol >> name >> version))
            continue;
        words >> thread;
        void *found = nullptr;
        CUdriverProcAddressQueryResult status;
        const CUresult result = cuGetProcAddress(
            name.c_str(), &found, version,
            thread == "ptsz" ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                             : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
            &status);
        if (result == CUDA_SUCCESS && found == dlsym(driver, symbol.c_str()))
            same++;
        else
        {
            other++;
            std::printf("procedure_differs_%s %d_%d\n", symbol.c_str(),
                        static_cast<int>(result), static_cast<int>(status));
        }
    }
    std::printf("procedures_same %u\nprocedures_other %u\n", same, other);
}

} // namespace

int main(int count, char **arguments)
{
    const std::string what = count > 1 ? arguments[1] : "";
    if (what == "info")
        info();
    else if (what == "times")
        times();
    else if (what == "hold" && count > 2)
        hold(std::strtoull(arguments[2], nullptr, 10));
    else if (what == "procedures" && count > 2)
        procedures(arguments[2]);
    else
        return 2;
    return 0;
}

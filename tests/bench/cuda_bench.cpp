// SPDX-License-Identifier: GPL-2.0-or-later
// Measures the costs of CUDA to a program whose memory all fits. These are a
// launch, an allocation of each size, kernels that do nothing but read and
// write, and host memory. Or it measures the costs of system RAM to a program
// whose memory does not fit. Prints lines of "name value". tests/bench/run-cuda
// runs it with and without the library, and with each store.
#include "../cuda/harness/driver.hpp"
#include "../cuda/harness/kernels.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

using harness::cuda;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    std::fprintf(stderr, "cuda_bench: %s: %d\n", what, result);
    std::exit(1);
}
#define MUST(call) must(call, #call)

double microseconds()
{
    using clock = std::chrono::steady_clock;
    return std::chrono::duration<double, std::micro>(
               clock::now().time_since_epoch())
        .count();
}

double median(std::vector<double> of)
{
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

void launch(CUfunction what, CUdeviceptr at, std::uint64_t words)
{
    std::uint32_t value = 1;
    void *params[] = {&at, &words, &value};
    const auto blocks = static_cast<unsigned>(
        std::max<std::uint64_t>(words / harness::block_threads, 1));
    MUST(cuda().cuLaunchKernel(what, blocks, 1, 1, harness::block_threads, 1, 1,
                               0, nullptr, params, nullptr));
}

// Few enough at a time that none waits for a place in the queue.
void launches(CUfunction add, CUdeviceptr at)
{
    constexpr int in_a_row = 200;
    std::vector<double> each;
    for (int round = 0; round < 500; ++round) {
        const double start = microseconds();
        for (int i = 0; i < in_a_row; ++i)
            launch(add, at, 0);
        each.push_back((microseconds() - start) / in_a_row);
        MUST(cuda().cuCtxSynchronize());
    }
    std::printf("launch_us %.3f\n", median(each));
}

void allocations()
{
    const struct
    {
        const char *name;
        std::size_t bytes;
        std::size_t count;
    } sizes[] = {{"4KiB", 4 * KiB, 64},    {"256KiB", 256 * KiB, 64},
                 {"2MiB", 2 * MiB, 16},    {"20MiB", 20 * MiB, 8},
                 {"128MiB", 128 * MiB, 2}, {"512MiB", 512 * MiB, 1}};
    for (const auto &size : sizes) {
        std::vector<double> taken;
        std::vector<double> given;
        std::vector<CUdeviceptr> at(size.count);
        for (int round = 0; round < 10; ++round) {
            for (CUdeviceptr &one : at) {
                const double start = microseconds();
                MUST(cuda().cuMemAlloc(&one, size.bytes));
                taken.push_back(microseconds() - start);
            }
            for (CUdeviceptr one : at) {
                const double start = microseconds();
                MUST(cuda().cuMemFree(one));
                given.push_back(microseconds() - start);
            }
        }
        std::printf("alloc_%s_us %.2f\nfree_%s_us %.2f\n", size.name,
                    median(taken), size.name, median(given));
    }
}

// A pass reads and writes each byte once; ten to a measurement, launched one
// behind the other.
void bandwidth(CUfunction add, std::size_t bytes)
{
    CUdeviceptr at = 0;
    MUST(cuda().cuMemAlloc(&at, bytes));
    MUST(cuda().cuMemsetD8(at, 0, bytes));
    MUST(cuda().cuCtxSynchronize());
    std::vector<double> each;
    for (int round = 0; round < 20; ++round) {
        const double start = microseconds();
        for (int i = 0; i < 10; ++i)
            launch(add, at, bytes / 4);
        MUST(cuda().cuCtxSynchronize());
        each.push_back((microseconds() - start) / 10);
    }
    std::printf("pass_us %.1f\n", median(each));
    MUST(cuda().cuMemFree(at));
}

template <typename Work>
double seconds(Work work)
{
    std::vector<double> each;
    for (int round = 0; round < 5; ++round) {
        const double start = microseconds();
        work();
        each.push_back((microseconds() - start) / 1e6);
    }
    return median(each);
}

// The first allocation takes all of the share, so the second is system RAM.
void beyond(CUfunction fill, CUfunction add, std::size_t bytes)
{
    CUdeviceptr vram = 0;
    CUdeviceptr ram = 0;
    MUST(cuda().cuMemAlloc(&vram, bytes));
    // Once before, since the first spill costs more.
    MUST(cuda().cuMemAlloc(&ram, bytes));
    MUST(cuda().cuMemFree(ram));
    std::vector<double> taken;
    std::vector<double> given;
    for (int round = 0; round < 5; ++round) {
        double start = microseconds();
        MUST(cuda().cuMemAlloc(&ram, bytes));
        taken.push_back(microseconds() - start);
        start = microseconds();
        MUST(cuda().cuMemFree(ram));
        given.push_back(microseconds() - start);
    }
    MUST(cuda().cuMemAlloc(&ram, bytes));
    MUST(cuda().cuMemsetD8(vram, 1, bytes));
    MUST(cuda().cuMemsetD8(ram, 1, bytes));
    MUST(cuda().cuCtxSynchronize());
    const auto copy = [&](CUdeviceptr to, CUdeviceptr from) {
        return seconds([&] {
            MUST(cuda().cuMemcpyDtoDAsync(to, from, bytes, nullptr));
            MUST(cuda().cuCtxSynchronize());
        });
    };
    const auto run = [&](CUfunction what) {
        return seconds([&] {
            launch(what, ram, bytes / 4);
            MUST(cuda().cuCtxSynchronize());
        });
    };
    const double size = static_cast<double>(bytes);
    const double gib = size / static_cast<double>(1024 * MiB);
    std::printf("alloc_ms_a_gib %.2f\nfree_ms_a_gib %.2f\n",
                median(taken) / 1e3 / gib, median(given) / 1e3 / gib);
    std::printf("copy_to_vram_gbps %.2f\n", size / copy(vram, ram) / 1e9);
    std::printf("copy_to_ram_gbps %.2f\n", size / copy(ram, vram) / 1e9);
    std::printf("kernel_writes_gbps %.2f\n", size / run(fill) / 1e9);
    // As many bytes each way.
    std::printf("kernel_adds_gbps %.2f\n", size / run(add) / 1e9);
    MUST(cuda().cuMemFree(ram));
    MUST(cuda().cuMemFree(vram));
}

void host_memory()
{
    std::ifstream status("/proc/self/status");
    std::string word;
    std::uint64_t kib = 0;
    while (status >> word)
        if (word == "VmHWM:" && status >> kib)
            break;
    std::printf("host_memory_mib %.1f\n", static_cast<double>(kib) / 1024);
}

} // namespace

int main(int argc, char **argv)
{
    const std::size_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const bool spills = argc == 3 && std::string(argv[2]) == "beyond";
    if (mib == 0 || (argc != 2 && !spills)) {
        std::fputs("usage: cuda_bench MIB [beyond]\n"
                   "MIB is what the kernels work on; with `beyond`, the share "
                   "as well.\n",
                   stderr);
        return 2;
    }
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction add = nullptr;
    CUfunction fill = nullptr;
    CUdeviceptr word = 0;
    MUST(cuda().cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuda().cuCtxSetCurrent(context));
    MUST(cuda().cuModuleLoadData(&module,
                                 harness::kernel_image(cuda().simulated)));
    MUST(cuda().cuModuleGetFunction(&add, module, "add"));
    MUST(cuda().cuModuleGetFunction(&fill, module, "fill"));
    if (spills) {
        beyond(fill, add, mib * MiB);
        return 0;
    }
    MUST(cuda().cuMemAlloc(&word, 4));
    launches(add, word);
    allocations();
    bandwidth(add, mib * MiB);
    host_memory();
    return 0;
}

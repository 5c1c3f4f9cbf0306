// SPDX-License-Identifier: GPL-2.0-or-later
// Holds so many MiB of a card's memory, has kernels write to all of it, and
// checks every byte. Then it waits for the end of its standard input. This is
// an ordinary CUDA program, which knows nothing of emuV. Used by the demo;
// prints what it does.
#include "harness/driver.hpp"
#include "harness/kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <unistd.h>

namespace {

using harness::cuda;

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t buffer_bytes = 24 * MiB;

void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *name = nullptr;
    cuda().cuGetErrorName(result, &name);
    std::fprintf(stderr, "cuda_press: %s: %s\n", what, name ? name : "?");
    std::exit(1);
}
#define MUST(call) must(call, #call)

struct buffer
{
    CUdeviceptr at = 0;
    std::uint64_t words = 0;
    std::uint32_t seed = 0;
};

void launch(CUfunction what, const buffer &p, std::uint32_t value)
{
    CUdeviceptr at = p.at;
    std::uint64_t words = p.words;
    void *params[] = {&at, &words, &value};
    const auto blocks = static_cast<unsigned>(
        (words + harness::block_threads - 1) / harness::block_threads);
    MUST(cuda().cuLaunchKernel(what, blocks, 1, 1, harness::block_threads, 1, 1,
                               0, nullptr, params, nullptr));
}

std::uint64_t wrong_words(const buffer &p, std::uint32_t added)
{
    std::vector<std::uint32_t> got(p.words);
    MUST(cuda().cuMemcpyDtoH(got.data(), p.at, p.words * 4));
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
        wrong += got[i] != harness::pattern(p.seed, i) + added;
    return wrong;
}

} // namespace

int main(int argc, char **argv)
{
    const std::size_t mib = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
    if (mib == 0) {
        std::fputs("usage: cuda_press MIB\n", stderr);
        return 2;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction fill = nullptr, add = nullptr;
    char name[100] = {};
    std::size_t free = 0, total = 0;
    MUST(cuda().cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuda().cuCtxSetCurrent(context));
    MUST(cuda().cuModuleLoadData(&module,
                                 harness::kernel_image(cuda().simulated)));
    MUST(cuda().cuModuleGetFunction(&fill, module, "fill"));
    MUST(cuda().cuModuleGetFunction(&add, module, "add"));
    MUST(cuda().cuDeviceGetName(name, sizeof name, 0));
    MUST(cuda().cuMemGetInfo(&free, &total));
    std::printf("cuda_press: %s, with %zu MiB of memory\n", name, total / MiB);

    std::vector<buffer> buffers;
    for (std::size_t held = 0; held < mib * MiB;) {
        const std::size_t bytes = std::min(buffer_bytes, mib * MiB - held);
        buffer p;
        p.words = bytes / 4;
        p.seed = static_cast<std::uint32_t>(held);
        MUST(cuda().cuMemAlloc(&p.at, bytes));
        buffers.push_back(p);
        held += bytes;
    }
    std::printf("cuda_press: holds %zu MiB in %zu allocations\n", mib,
                buffers.size());
    for (const buffer &p : buffers)
        launch(fill, p, p.seed);
    for (const buffer &p : buffers)
        launch(add, p, 1);
    std::uint64_t wrong = 0;
    for (const buffer &p : buffers)
        wrong += wrong_words(p, 1);
    if (wrong != 0) {
        std::fprintf(stderr, "cuda_press: %llu words are wrong\n",
                     static_cast<unsigned long long>(wrong));
        return 1;
    }
    std::printf("cuda_press: kernels wrote all of it, and all %zu bytes are "
                "right\n",
                mib * MiB);

    char byte = 0;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    for (const buffer &p : buffers)
        MUST(cuda().cuMemFree(p.at));
    return 0;
}

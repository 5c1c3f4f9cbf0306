// SPDX-License-Identifier: GPL-2.0-or-later
// A program that is recorded: what it does is what recording_test.cpp expects
// of its tape. Usage: emuv_cuda_recorded WAY. It ends in this way: exit, _exit,
// kill, fork, parts. With "late_" before the second and third it goes on first,
// until there is a file with the name of its tape and ".enough".
#include "../harness/driver.hpp"
#include "../harness/kernels.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using harness::cuda;

constexpr std::size_t MiB = std::size_t{1} << 20;

void check(CUresult answer, const char *what)
{
    if (answer == CUDA_SUCCESS)
        return;
    std::fprintf(stderr, "recorded: %s: error %d\n", what, answer);
    std::exit(1);
}
#define NEED(call) check(cuda().call, #call)

void add(CUfunction function, CUdeviceptr at, std::uint64_t count,
         CUstream stream)
{
    std::uint32_t value = 1;
    void *parameters[] = {&at, &count, &value};
    NEED(cuLaunchKernel(
        function, static_cast<unsigned>(count / harness::block_threads), 1, 1,
        harness::block_threads, 1, 1, 0, stream, parameters, nullptr));
}

// Uses an allocation as PyTorch's allocator does, which reports its parts.
void divide(CUdeviceptr at, CUfunction function)
{
    void *const there = dlopen(EMUV_CACHING_ALLOCATOR, RTLD_NOW | RTLD_LOCAL);
    using call = std::int64_t(unsigned long long, std::int64_t, bool);
    auto *const report = there != nullptr
                             ? reinterpret_cast<call *>(dlsym(there, "report"))
                             : nullptr;
    if (report == nullptr) {
        std::fprintf(stderr, "recorded: %s\n", dlerror());
        std::exit(1);
    }
    report(at, MiB, false);
    report(at + 2 * MiB, MiB, true);
    add(function, at + 2 * MiB + 4096, 1024, nullptr);
    report(at, -static_cast<std::int64_t>(MiB), false);
}

CUgraph capture_add(CUfunction function, CUdeviceptr at, CUstream stream)
{
    CUgraph out = nullptr;
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    add(function, at, 1024, stream);
    NEED(cuStreamEndCapture(stream, &out));
    return out;
}

// A graph with another in it, and a fill. Both change before the second launch,
// and that one is made twice.
void change_nodes(CUcontext context, CUfunction function, CUdeviceptr first,
                  CUdeviceptr second, CUstream stream)
{
    const CUgraph inner = capture_add(function, first, stream);
    const CUgraph other = capture_add(function, second + 4096, stream);
    CUgraph outer = nullptr;
    CUgraphNode child = nullptr;
    CUgraphNode fill = nullptr;
    CUgraphExec ready = nullptr;
    CUDA_MEMSET_NODE_PARAMS bytes{first + MiB, 0, 1, 1, MiB, 1};
    NEED(cuGraphCreate(&outer, 0));
    NEED(cuGraphAddMemsetNode(&fill, outer, nullptr, 0, &bytes, context));
    NEED(cuGraphAddChildGraphNode(&child, outer, &fill, 1, inner));
    NEED(cuGraphInstantiate(&ready, outer, 0));
    NEED(cuGraphLaunch(ready, stream));
    bytes.dst = second + MiB;
    NEED(cuGraphExecMemsetNodeSetParams(ready, fill, &bytes, context));
    NEED(cuGraphExecChildGraphNodeSetParams(ready, child, other));
    for (int i = 0; i < 2; i++)
        NEED(cuGraphLaunch(ready, stream));
    NEED(cuCtxSynchronize());
}

} // namespace

int main(int count, char **words)
{
    const std::string_view way = count > 1 ? words[1] : "exit";
    CUcontext context = nullptr;
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    NEED(cuModuleLoadData(&module, harness::kernel_image(cuda().simulated)));
    NEED(cuModuleGetFunction(&function, module, "add"));
    // Allocations 0 and 1.
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    NEED(cuMemAlloc(&first, 8 * MiB));
    NEED(cuMemAlloc(&second, 4 * MiB));
    std::vector<unsigned char> bytes(MiB);
    NEED(cuMemcpyHtoD(first, bytes.data(), MiB));
    NEED(cuMemsetD8(second, 0, 4 * MiB));
    add(function, first + 4096, 1024, nullptr);
    CUstream stream = nullptr;
    CUevent event = nullptr;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventRecord(event, nullptr));
    NEED(cuStreamWaitEvent(stream, event, 0));
    add(function, second, 2048, stream);
    NEED(cuStreamSynchronize(stream));
    // Allocation 2, in stream order.
    CUdeviceptr third = 0;
    NEED(cuMemAllocAsync(&third, 2 * MiB, stream));
    add(function, third, 1024, stream);
    NEED(cuMemFreeAsync(third, stream));
    // Captured work is a graph's, and does not run by itself.
    CUgraph graph = nullptr;
    CUgraphExec ready = nullptr;
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    add(function, first, 1024, stream);
    NEED(cuMemsetD8Async(second + MiB, 1, MiB, stream));
    NEED(cuStreamEndCapture(stream, &graph));
    NEED(cuGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 2; i++)
        NEED(cuGraphLaunch(ready, stream));
    NEED(cuCtxSynchronize());
    NEED(cuGraphExecDestroy(ready));
    NEED(cuMemcpyDtoH(bytes.data(), first, MiB));
    if (way == "threads") {
        std::vector<std::thread> all;
        for (int i = 0; i < 4; i++)
            all.emplace_back([&] {
                NEED(cuCtxSetCurrent(context));
                for (int j = 0; j < 500; j++)
                    add(function, first, 1024, nullptr);
            });
        for (std::thread &each : all)
            each.join();
        NEED(cuCtxSynchronize());
    }
    if (way == "parts")
        divide(second, function);
    if (way == "changes")
        change_nodes(context, function, first, second, stream);
    NEED(cuMemFree(second));
    if (way == "fork") {
        const pid_t child = fork();
        if (child == 0)
            _exit(0);
        int status = 0;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    if (way.substr(0, 4) == "late") {
        const std::string enough =
            std::string(std::getenv("EMUV_RECORD")) + ".enough";
        struct stat about = {};
        while (stat(enough.c_str(), &about) != 0) {
            add(function, first, 1024, nullptr);
            NEED(cuCtxSynchronize());
            usleep(1000);
        }
    }
    if (way == "_exit" || way == "late_exit")
        _exit(0);
    if (way == "kill" || way == "late_kill")
        std::raise(SIGKILL);
    return 0;
}

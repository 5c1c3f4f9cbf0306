// SPDX-License-Identifier: GPL-2.0-or-later
// Times the driver's map and unmap calls while the copy engines rest, bring
// bytes to the card, take them away, or do both. In one more case the copies
// that take bytes away come in pieces, which wait for another stream
// (tools/cuda/movement/lanes.hpp).
//
//   nvcc -O2 -std=c++17 -o mapping tests/bench/mapping.cu -lcuda && ./mapping
//
// Prints medians in microseconds, and the copies' rates meanwhile.
#include "check.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

constexpr size_t mib = size_t{1} << 20;
constexpr size_t copy_bytes = 64 * mib;
constexpr size_t piece_bytes = 8 * mib;

static double now_us()
{
    return std::chrono::duration<double, std::micro>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Copies one way, over and over, while it is asked to.
class traffic
{
public:
    traffic(CUcontext context, bool down) : context_(context), down_(down)
    {
        CHECK(cudaMallocHost(&host_, copy_bytes));
        CHECK(cudaMalloc(&device_, copy_bytes));
        CHECK(cudaMalloc(&words_, 512));
        CHECK(cudaMemset(words_, 0, 512));
        thread_ = std::thread([this] { run(); });
    }
    ~traffic()
    {
        ends_ = true;
        thread_.join();
    }
    std::atomic<bool> on{false};
    std::atomic<bool> in_turns{false};
    std::atomic<size_t> moved{0};

private:
    void run()
    {
        CHECK(cuCtxSetCurrent(context_));
        cudaStream_t stream;
        cudaStream_t answers;
        cudaEvent_t done[2];
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&answers, cudaStreamNonBlocking));
        for (cudaEvent_t &each : done)
            CHECK(cudaEventCreateWithFlags(&each, cudaEventDisableTiming));
        for (unsigned i = 0; !ends_; i++) {
            if (!on) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                continue;
            }
            const size_t piece = in_turns ? piece_bytes : copy_bytes;
            for (size_t at = 0; at < copy_bytes; at += piece) {
                CHECK(cudaMemcpyAsync((down_ ? host_ : device_) + at,
                                      (down_ ? device_ : host_) + at, piece,
                                      down_ ? cudaMemcpyDeviceToHost
                                            : cudaMemcpyHostToDevice,
                                      stream));
                if (in_turns)
                    give_turn(stream, answers);
            }
            CHECK(cudaEventRecord(done[i % 2], stream));
            // Two under way, so that there is no pause between them.
            while (i > 0 && cudaEventQuery(done[(i + 1) % 2]) != cudaSuccess)
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            moved += copy_bytes;
        }
        CHECK(cudaStreamSynchronize(stream));
    }

    // The stream waits until the other one has heard of it and has answered.
    void give_turn(cudaStream_t stream, cudaStream_t answers)
    {
        turn_++;
        const auto question = reinterpret_cast<CUdeviceptr>(words_);
        const CUdeviceptr answer = question + 256;
        CHECK(cuStreamWriteValue32(stream, question, turn_, 0));
        CHECK(cuStreamWaitValue32(answers, question, turn_,
                                  CU_STREAM_WAIT_VALUE_GEQ));
        CHECK(cuStreamWriteValue32(answers, answer, turn_, 0));
        CHECK(cuStreamWaitValue32(stream, answer, turn_,
                                  CU_STREAM_WAIT_VALUE_GEQ));
    }

    CUcontext context_;
    bool down_;
    char *host_ = nullptr;
    char *device_ = nullptr;
    char *words_ = nullptr;
    unsigned turn_ = 0;
    std::atomic<bool> ends_{false};
    std::thread thread_;
};

static double median(std::vector<double> all)
{
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

int main()
{
    CHECK(cudaFree(nullptr));
    CUcontext context;
    CHECK(cuCtxGetCurrent(&context));
    traffic up(context, false);
    traffic down(context, true);
    CUdeviceptr at = 0;
    CHECK(cuMemAddressReserve(&at, 512 * mib, 0, 0, 0));
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

    const struct
    {
        const char *name;
        bool up;
        bool down;
        bool in_turns;
    } ways[] = {
        {"rest", false, false, false},   {"to the card", true, false, false},
        {"from it", false, true, false}, {"  in turns", false, true, true},
        {"both", true, true, false},     {"  in turns", true, true, true}};
    // Pauses between the mappings, so that none begins with the last one's end.
    std::mt19937 random(1);
    const struct
    {
        const char *name;
        CUmemLocationType where;
        size_t bytes;
    } kinds[] = {{"VRAM", CU_MEM_LOCATION_TYPE_DEVICE, 64 * mib},
                 {"VRAM", CU_MEM_LOCATION_TYPE_DEVICE, 2 * mib},
                 {"system RAM", CU_MEM_LOCATION_TYPE_HOST_NUMA, 64 * mib},
                 {"system RAM", CU_MEM_LOCATION_TYPE_HOST_NUMA, 2 * mib}};
    std::printf("%-12s %-11s %4s %9s %9s %9s %9s\n", "copies", "memory", "MiB",
                "map, us", "unmap, us", "up, GB/s", "down");
    for (const auto &way : ways)
        for (const auto &kind : kinds) {
            CUmemAllocationProp what{};
            what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
            what.location.type = kind.where;
            CUmemGenericAllocationHandle handle;
            CHECK(cuMemCreate(&handle, kind.bytes, &what, 0));
            up.on = way.up;
            down.on = way.down;
            down.in_turns = way.in_turns;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            up.moved = down.moved = 0;
            std::vector<double> map;
            std::vector<double> unmap;
            const double start = now_us();
            for (int i = 0; i < 41; i++) {
                const double first = now_us();
                CHECK(cuMemMap(at, kind.bytes, 0, handle, 0));
                CHECK(cuMemSetAccess(at, kind.bytes, &access, 1));
                const double second = now_us();
                CHECK(cuMemUnmap(at, kind.bytes));
                map.push_back(second - first);
                const double third = now_us();
                unmap.push_back(third - second);
                const double pause = 150 + random() % 400;
                while (now_us() - third < pause) {
                }
            }
            const double took = now_us() - start;
            up.on = down.on = false;
            std::printf("%-12s %-11s %4zu %9.0f %9.0f %9.1f %9.1f\n", way.name,
                        kind.name, kind.bytes / mib, median(map), median(unmap),
                        static_cast<double>(up.moved) / took / 1e3,
                        static_cast<double>(down.moved) / took / 1e3);
            CHECK(cuMemRelease(handle));
        }
    return 0;
}

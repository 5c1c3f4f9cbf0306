// SPDX-License-Identifier: GPL-2.0-or-later
// Codes memory and decodes it by the library's own kernels
// (tools/cuda/movement/packing.cu): how fast, to how many bytes, and whether
// every bit comes back. Then the same over the link, beside a plain copy.
// tests/bench/run-packing builds it, and tells what its rows mean.
#include "check.hpp"
#include "movement/packing_ptx.hpp"
#include "packing_reference.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include <cuda.h>

using emuv::cuda::packing;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
// So many buffers by turns that no cache holds them.
constexpr std::size_t all_bytes = 512 * mib;
constexpr std::size_t most_bytes = 64 * mib;
constexpr unsigned passes = 5;

CUfunction pack_kernel;
CUfunction unpack_kernel;
CUdeviceptr outcome_at;

void start()
{
    CHECK(cuInit(0));
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, emuv::cuda::packing_ptx));
    CHECK(cuModuleGetFunction(&pack_kernel, module, "emuv_pack"));
    CHECK(cuModuleGetFunction(&unpack_kernel, module, "emuv_unpack"));
    CHECK(cuMemAlloc(&outcome_at, sizeof(packing::outcome)));
}

unsigned blocks_for(std::uint64_t groups, unsigned most)
{
    constexpr unsigned warps = packing::threads / packing::lanes;
    return static_cast<unsigned>(
        std::min<std::uint64_t>((groups + warps - 1) / warps, most));
}

void pack(CUdeviceptr at, std::uint64_t bytes, CUdeviceptr to, CUstream stream)
{
    std::uint64_t groups = packing::groups_of(bytes);
    std::uint64_t most = packing::most_escapes_of(bytes);
    void *parameters[] = {&at, &groups, &to, &most, &outcome_at};
    CHECK(cuLaunchKernel(pack_kernel, blocks_for(groups, 1024), 1, 1,
                         packing::threads, 1, 1, 0, stream, parameters,
                         nullptr));
}

// @param out  0: decodes; else compares
void unpack(CUdeviceptr from, std::uint64_t bytes, CUdeviceptr at,
            CUdeviceptr out, CUstream stream, unsigned most_blocks = 1024)
{
    std::uint64_t groups = packing::groups_of(bytes);
    std::uint64_t most = bytes; // all that can be
    void *parameters[] = {&from, &groups, &at, &most, &out};
    CHECK(cuLaunchKernel(unpack_kernel, blocks_for(groups, most_blocks), 1, 1,
                         packing::threads, 1, 1, 0, stream, parameters,
                         nullptr));
}

// @return coded bytes; 0 where they are not worth it
std::uint64_t coded_bytes(CUdeviceptr at, std::uint64_t bytes, CUdeviceptr to)
{
    CHECK(cuMemsetD8(outcome_at, 0, sizeof(packing::outcome)));
    pack(at, bytes, to, nullptr);
    packing::outcome found;
    CHECK(cuMemcpyDtoH(&found, outcome_at, sizeof found));
    return packing::bytes_of(bytes, found.escapes);
}

// @return GB/s of @p bytes for each call
template <typename Call>
double rate(std::uint64_t bytes, unsigned calls, Call call)
{
    CUevent begin;
    CUevent end;
    CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    double best = 0;
    for (unsigned pass = 0; pass < passes; pass++) {
        CHECK(cuCtxSynchronize());
        CHECK(cuEventRecord(begin, nullptr));
        for (unsigned i = 0; i < calls; i++)
            call(i);
        CHECK(cuEventRecord(end, nullptr)); // the default stream: after all
        CHECK(cuEventSynchronize(end));
        float ms = 0;
        CHECK(cuEventElapsedTime(&ms, begin, end));
        best = std::max(best, static_cast<double>(bytes) * calls / ms / 1e6);
    }
    CHECK(cuEventDestroy(begin));
    CHECK(cuEventDestroy(end));
    return best;
}

// @param as  makes a number of one that is normally distributed
template <typename As>
std::vector<unsigned char> normal(std::size_t bytes, float deviation, As as)
{
    std::mt19937 random(7);
    std::normal_distribution<float> next(0, deviation);
    std::vector<unsigned char> out(bytes);
    for (std::size_t i = 0; i < bytes;) {
        const auto number = as(next(random));
        std::memcpy(&out[i], &number, sizeof number);
        i += sizeof number;
    }
    return out;
}

std::vector<unsigned char> normal_bf16(std::size_t bytes, float deviation)
{
    return normal(bytes, deviation, packing_reference::bf16);
}

std::vector<unsigned char> random_bytes(std::size_t bytes)
{
    std::mt19937_64 random(10);
    std::vector<unsigned char> out(bytes);
    for (std::size_t i = 0; i < bytes; i += 8) {
        const std::uint64_t word = random();
        std::memcpy(&out[i], &word, 8);
    }
    return out;
}

// Every way from these bytes to coded ones and back.
// @return whether all bits are the same
bool keeps_bits(const std::vector<unsigned char> &raw, double &ratio)
{
    const std::uint64_t bytes = raw.size();
    const std::uint64_t groups = packing::groups_of(bytes);
    CUdeviceptr at;
    CUdeviceptr to;
    CUdeviceptr back;
    CHECK(cuMemAlloc(&at, bytes));
    CHECK(cuMemAlloc(&to, 2 * bytes));
    CHECK(cuMemAlloc(&back, bytes));
    CHECK(cuMemcpyHtoD(at, raw.data(), bytes));
    CHECK(cuMemsetD8(back, 0x5a, bytes));
    // With room for all escapes, whatever it gains.
    CHECK(cuMemsetD8(outcome_at, 0, sizeof(packing::outcome)));
    std::uint64_t count = groups;
    std::uint64_t most = 2 * bytes - groups * packing::group_bytes;
    void *parameters[] = {&at, &count, &to, &most, &outcome_at};
    CHECK(cuLaunchKernel(pack_kernel, blocks_for(groups, 1024), 1, 1,
                         packing::threads, 1, 1, 0, nullptr, parameters,
                         nullptr));
    unpack(to, bytes, back, 0, nullptr);
    unpack(to, bytes, at, outcome_at, nullptr);
    packing::outcome found;
    CHECK(cuMemcpyDtoH(&found, outcome_at, sizeof found));
    const std::uint64_t coded = packing::bytes_of(bytes, found.escapes);
    ratio = static_cast<double>(coded) / static_cast<double>(bytes);
    std::vector<unsigned char> out(bytes);
    CHECK(cuMemcpyDtoH(out.data(), back, bytes));
    bool same = found.differing == 0 && out == raw;
    // A card's codes are the host's, too, and the other way round.
    std::vector<unsigned char> codes(coded);
    CHECK(cuMemcpyDtoH(codes.data(), to, coded));
    std::fill(out.begin(), out.end(), 0);
    packing_reference::unpack(codes.data(), groups, out.data(), most, nullptr);
    same = same && out == raw;
    packing::outcome by_host;
    codes.assign(2 * bytes, 0);
    packing_reference::pack(raw.data(), groups, codes.data(), most, &by_host);
    same = same && by_host.escapes == found.escapes;
    CHECK(cuMemcpyHtoD(to, codes.data(), codes.size()));
    CHECK(cuMemsetD8(back, 0, bytes));
    unpack(to, bytes, back, 0, nullptr);
    CHECK(cuMemcpyDtoH(out.data(), back, bytes));
    same = same && out == raw;
    // One bit that is another one is found.
    CHECK(cuMemcpyDtoH(codes.data(), at, 1));
    codes[0] ^= 0x10;
    CHECK(cuMemcpyHtoD(at, codes.data(), 1));
    CHECK(cuMemsetD8(outcome_at, 0, sizeof(packing::outcome)));
    unpack(to, bytes, at, outcome_at, nullptr);
    CHECK(cuMemcpyDtoH(&found, outcome_at, sizeof found));
    same = same && found.differing == 1;
    for (const CUdeviceptr each : {at, to, back})
        CHECK(cuMemFree(each));
    return same;
}

bool check_contents()
{
    const std::size_t bytes = 8 * mib;
    auto special = normal_bf16(bytes, 0.02F);
    std::mt19937 random(3);
    for (std::size_t i = 0; i < bytes; i += 2 * (1 + random() % 64)) {
        constexpr std::uint16_t values[] = {0x7f80, 0xff80, 0x7fc1, 0xffff,
                                            0x0001, 0x807f, 0x8000, 0x0000};
        std::memcpy(&special[i], &values[random() % 8], 2);
    }
    const struct
    {
        const char *name;
        std::vector<unsigned char> raw;
    } all[] = {
        {"bf16-normal", normal_bf16(bytes, 0.02F)},
        {"bf16-special", special},
        {"fp16-normal", normal(bytes, 0.02F, packing_reference::fp16)},
        {"fp32-normal", normal(bytes, 0.02F, [](float value) { return value; })},
        {"random-bytes", random_bytes(bytes)},
        {"zeros", std::vector<unsigned char>(bytes)},
        {"one-group", normal_bf16(packing::raw_group_bytes, 1)},
        {"odd-groups", normal_bf16(37 * packing::raw_group_bytes, 1)},
    };
    bool good = true;
    for (const auto &each : all) {
        double ratio = 0;
        const bool same = keeps_bits(each.raw, ratio);
        std::printf("content %-13s %7.4f %4s %s\n", each.name, ratio,
                    ratio <= 0.8 ? "yes" : "no", same ? "same" : "DIFFERENT");
        good = good && same;
    }
    return good;
}

// The kernels alone, in VRAM.
void measure_kernels(std::uint64_t bytes, CUdeviceptr raw, CUdeviceptr coded,
                     CUdeviceptr back, double ratio)
{
    const auto count = static_cast<unsigned>(all_bytes / bytes);
    const auto apart = packing::most_bytes_of(bytes);
    const double packs = rate(bytes, count, [&](unsigned i) {
        CHECK(
            cuMemsetD8Async(outcome_at, 0, sizeof(packing::outcome), nullptr));
        pack(raw + i * bytes, bytes, coded + i * apart, nullptr);
    });
    const double compares = rate(bytes, count, [&](unsigned i) {
        unpack(coded + i * apart, bytes, raw + i * bytes, outcome_at, nullptr);
    });
    const double unpacks = rate(bytes, count, [&](unsigned i) {
        unpack(coded + i * apart, bytes, back + i % 4 * bytes, 0, nullptr);
    });
    std::printf("kernels %4zu %7.4f %9.1f %9.1f %9.1f\n",
                static_cast<std::size_t>(bytes / mib), ratio, packs, compares,
                unpacks);
}

// From pinned memory, as the mover fetches: a copy on one stream, decoded on
// another one out of one of two buffers.
double fetch_rate(std::uint64_t bytes, std::uint64_t coded_size,
                  CUdeviceptr host, CUdeviceptr scratch, CUdeviceptr back)
{
    CUstream copies;
    CUstream kernels;
    CUevent copied[2];
    CUevent decoded[2];
    CHECK(cuStreamCreate(&copies, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreateWithPriority(&kernels, CU_STREAM_DEFAULT, -5));
    for (unsigned i = 0; i < 2; i++) {
        CHECK(cuEventCreate(&copied[i], CU_EVENT_DISABLE_TIMING));
        CHECK(cuEventCreate(&decoded[i], CU_EVENT_DISABLE_TIMING));
    }
    const auto count = static_cast<unsigned>(all_bytes / bytes);
    const auto apart = packing::most_bytes_of(bytes);
    const double found = rate(bytes, count, [&](unsigned i) {
        const CUdeviceptr into = scratch + i % 2 * most_bytes;
        CHECK(cuStreamWaitEvent(copies, decoded[i % 2], 0));
        CHECK(cuMemcpyAsync(into, host + i * apart, coded_size, copies));
        CHECK(cuEventRecord(copied[i % 2], copies));
        CHECK(cuStreamWaitEvent(kernels, copied[i % 2], 0));
        unpack(into, bytes, back + i % 4 * bytes, 0, kernels);
        CHECK(cuEventRecord(decoded[i % 2], kernels));
    });
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < 2; i++) {
        CHECK(cuEventDestroy(copied[i]));
        CHECK(cuEventDestroy(decoded[i]));
    }
    CHECK(cuStreamDestroy(copies));
    CHECK(cuStreamDestroy(kernels));
    return found;
}

void measure_link(std::uint64_t bytes, std::uint64_t coded_size,
                  CUdeviceptr coded, CUdeviceptr scratch, CUdeviceptr back)
{
    const auto count = static_cast<unsigned>(all_bytes / bytes);
    const auto apart = packing::most_bytes_of(bytes);
    void *pinned = nullptr;
    CHECK(cuMemHostAlloc(&pinned, all_bytes, 0));
    const auto host = reinterpret_cast<CUdeviceptr>(pinned);
    CHECK(cuMemcpy(host, coded, count * apart));
    const double plain = rate(bytes, count, [&](unsigned i) {
        CHECK(cuMemcpyAsync(back + i % 4 * bytes, host + i * bytes, bytes,
                            nullptr));
    });
    const double fetches = fetch_rate(bytes, coded_size, host, scratch, back);
    std::printf("link %4zu copy %6.1f fetch %6.1f gain %5.3f",
                static_cast<std::size_t>(bytes / mib), plain, fetches,
                fetches / plain);
    for (const unsigned most : {16U, 32U, 64U, 128U}) {
        const double in_place = rate(bytes, count, [&](unsigned i) {
            unpack(host + i * apart, bytes, back + i % 4 * bytes, 0, nullptr,
                   most);
        });
        std::printf(" in-place-%u %6.1f", most, in_place);
    }
    std::printf("\n");
    CHECK(cuMemFreeHost(pinned));
}

void measure()
{
    CUdeviceptr raw;
    CUdeviceptr coded;
    CUdeviceptr back;
    CUdeviceptr scratch;
    CHECK(cuMemAlloc(&raw, all_bytes));
    CHECK(cuMemAlloc(&coded, all_bytes));
    CHECK(cuMemAlloc(&back, 4 * most_bytes));
    CHECK(cuMemAlloc(&scratch, 2 * most_bytes));
    const auto weights = normal_bf16(all_bytes, 0.02F);
    CHECK(cuMemcpyHtoD(raw, weights.data(), weights.size()));
    for (const std::uint64_t bytes :
         {2 * mib, 4 * mib, 8 * mib, 16 * mib, 32 * mib, 64 * mib}) {
        const auto apart = packing::most_bytes_of(bytes);
        std::uint64_t size = 0;
        for (std::uint64_t i = 0; i < all_bytes / bytes; i++)
            size = std::max(
                size, coded_bytes(raw + i * bytes, bytes, coded + i * apart));
        measure_kernels(bytes, raw, coded, back,
                        static_cast<double>(size) / static_cast<double>(bytes));
        measure_link(bytes, size, coded, scratch, back);
    }
}

} // namespace

int main(int argc, char **argv)
{
    start();
    const bool good = check_contents();
    if (argc < 2 || std::strcmp(argv[1], "check") != 0)
        measure();
    return good ? 0 : 1;
}

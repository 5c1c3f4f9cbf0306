// SPDX-License-Identifier: LGPL-2.1-or-later
// Tells whether memory has changed.
#include "movement/digests.hpp"

#include "movement/digest.hpp"

#include <utility>

namespace emuv::cuda {

namespace {

constexpr unsigned blocks = 256;
constexpr std::size_t value_bytes = sizeof(digests::value);
constexpr std::size_t scratch_bytes = 3 * sizeof(std::uint64_t);

} // namespace

bool digests::open(int priority)
{
    for (CUstream &each : streams_)
        if (calls_.cuStreamCreateWithPriority(&each, CU_STREAM_NON_BLOCKING,
                                              priority) != CUDA_SUCCESS)
            return false;
    if (calls_.cuModuleLoadData(&module_, digest_ptx) != CUDA_SUCCESS ||
        calls_.cuModuleGetFunction(&kernel_, module_, "emuv_digest") !=
            CUDA_SUCCESS ||
        calls_.cuMemAlloc_v2(&scratch_, max_under_way * scratch_bytes) !=
            CUDA_SUCCESS ||
        calls_.cuMemHostAlloc(reinterpret_cast<void **>(&results_),
                              max_under_way * value_bytes, 0) != CUDA_SUCCESS)
        return false;
    for (std::size_t i = 0; i < max_under_way; i++) {
        if (calls_.cuMemsetD8Async(scratch_ + i * scratch_bytes, 0,
                                   scratch_bytes, streams_[i]) != CUDA_SUCCESS)
            return false;
        free_.push_back(i);
    }
    return true;
}

void digests::close()
{
    if (scratch_ != 0)
        calls_.cuMemFree_v2(scratch_);
    if (results_ != nullptr)
        calls_.cuMemFreeHost(results_);
    if (module_ != nullptr)
        calls_.cuModuleUnload(module_);
    for (CUstream &each : streams_)
        if (each != nullptr)
            calls_.cuStreamDestroy_v2(std::exchange(each, nullptr));
    scratch_ = 0;
    results_ = nullptr;
    module_ = nullptr;
    free_.clear();
}

std::size_t digests::take()
{
    const std::size_t number = free_.back();
    free_.pop_back();
    return number;
}

bool digests::begin(std::size_t number, CUdeviceptr at, std::uint64_t bytes,
                    CUevent done, CUevent after)
{
    const CUstream stream = streams_[number];
    if (after != nullptr &&
        calls_.cuStreamWaitEvent(stream, after, 0) != CUDA_SUCCESS)
        return false;
    std::uint64_t count = bytes / 16;
    CUdeviceptr scratch = scratch_ + number * scratch_bytes;
    // Pinned memory has the same address for the device.
    auto out = reinterpret_cast<CUdeviceptr>(&results_[number]);
    void *parameters[] = {&at, &count, &scratch, &out};
    if (calls_.cuLaunchKernel(kernel_, blocks, 1, 1, digest_threads, 1, 1, 0,
                              stream, parameters, nullptr) != CUDA_SUCCESS)
        return false;
    if (calls_.cuEventRecord(done, stream) == CUDA_SUCCESS)
        return true;
    // The kernel reads memory that the caller takes for free.
    calls_.cuStreamSynchronize(stream);
    return false;
}

digests::value digests::result(std::size_t number) const
{
    return results_[number];
}

} // namespace emuv::cuda

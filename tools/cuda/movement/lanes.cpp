// SPDX-License-Identifier: LGPL-2.1-or-later
// Copies between VRAM and system RAM, one way and the other.
#include "movement/lanes.hpp"

#include <algorithm>

namespace emuv::cuda {

namespace {

// Apart, so that two streams that poll do not meet.
constexpr CUdeviceptr answer_offset = 256;
constexpr std::size_t words_bytes = 512;

} // namespace

bool lanes::open(int priority)
{
    for (CUstream *each : {&in_, &out_, &answers_})
        if (calls_.cuStreamCreateWithPriority(each, CU_STREAM_NON_BLOCKING,
                                              priority) != CUDA_SUCCESS)
            return false;
    turn_ = 0;
    // Older drivers lack these operations, and copies then take no turns.
    takes_turns_ =
        calls_.cuStreamWriteValue32_v2 != nullptr &&
        calls_.cuStreamWaitValue32_v2 != nullptr &&
        calls_.cuMemAlloc_v2(&words_, words_bytes) == CUDA_SUCCESS &&
        calls_.cuMemsetD8Async(words_, 0, words_bytes, out_) == CUDA_SUCCESS &&
        calls_.cuStreamSynchronize(out_) == CUDA_SUCCESS;
    return true;
}

void lanes::close()
{
    for (CUstream *each : {&in_, &out_, &answers_}) {
        if (*each != nullptr) {
            calls_.cuStreamSynchronize(*each);
            calls_.cuStreamDestroy_v2(*each);
        }
        *each = nullptr;
    }
    if (words_ != 0)
        calls_.cuMemFree_v2(words_);
    words_ = 0;
    takes_turns_ = false;
}

bool lanes::fetch(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes,
                  CUevent done)
{
    return (calls_.cuMemcpyAsync(to, from, bytes, in_) == CUDA_SUCCESS &&
            calls_.cuEventRecord(done, in_) == CUDA_SUCCESS) ||
           ended(in_);
}

// Waits for the part of a copy that was begun.
bool lanes::ended(CUstream on)
{
    calls_.cuStreamSynchronize(on);
    return false;
}

bool lanes::write_back(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes,
                       CUevent done)
{
    for (std::uint64_t at = 0; at < bytes;) {
        const std::uint64_t next =
            takes_turns_ ? std::min(bytes - at, turn_bytes) : bytes - at;
        if (calls_.cuMemcpyAsync(to + at, from + at, next, out_) !=
            CUDA_SUCCESS)
            return ended(out_);
        at += next;
        if (at == bytes && calls_.cuEventRecord(done, out_) != CUDA_SUCCESS)
            return ended(out_);
        // Also behind the last turn: the next copy may be waiting already.
        give_turn();
    }
    return true;
}

// Each operation waits only for an earlier one. If all streams share one queue
// to the device (CUDA_DEVICE_MAX_CONNECTIONS=1), any other wait never ends.
void lanes::give_turn()
{
    if (!takes_turns_)
        return;
    const cuuint32_t turn = ++turn_;
    const CUdeviceptr answer = words_ + answer_offset;
    takes_turns_ =
        calls_.cuStreamWriteValue32_v2(out_, words_, turn, 0) == CUDA_SUCCESS &&
        calls_.cuStreamWaitValue32_v2(
            answers_, words_, turn, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS &&
        calls_.cuStreamWriteValue32_v2(answers_, answer, turn, 0) ==
            CUDA_SUCCESS &&
        calls_.cuStreamWaitValue32_v2(out_, answer, turn,
                                      CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS;
}

} // namespace emuv::cuda

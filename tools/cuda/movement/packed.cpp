// SPDX-License-Identifier: LGPL-2.1-or-later
// Coded copies of units in system RAM, which take fewer bytes over the link.
#include "movement/packed.hpp"

#include "base/thread.hpp"
#include "movement/packing_ptx.hpp"
#include "store/mapping.hpp"
#include "store/store.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

namespace {

// Enough to fill any card. A warp goes on with further groups.
constexpr std::uint64_t most_blocks = 1024;
// System RAM that stays free for rooms.
constexpr std::uint64_t spared_bytes = 2 * max_moving_bytes;

unsigned blocks_for(std::uint64_t groups)
{
    constexpr std::uint64_t warps = packing::threads / packing::lanes;
    return static_cast<unsigned>(
        std::min((groups + warps - 1) / warps, most_blocks));
}

} // namespace

bool packed::open(int priority)
{
    failed_ = codes_ = false;
    if (most_bytes_ == 0)
        return false;
    for (CUstream *each : {&coding_, &decoding_})
        if (calls_.cuStreamCreateWithPriority(each, CU_STREAM_NON_BLOCKING,
                                              priority) != CUDA_SUCCESS)
            return false;
    for (buffer &each : ring_)
        for (CUevent *event : {&each.copied, &each.decoded})
            if (calls_.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) !=
                CUDA_SUCCESS)
                return false;
    open_ = sums_.open(priority) &&
            calls_.cuModuleLoadData(&module_, packing_ptx) == CUDA_SUCCESS &&
            calls_.cuModuleGetFunction(&pack_, module_, "emuv_pack") ==
                CUDA_SUCCESS &&
            calls_.cuModuleGetFunction(&unpack_, module_, "emuv_unpack") ==
                CUDA_SUCCESS &&
            calls_.cuMemAlloc_v2(&outcome_, sizeof(packing::outcome)) ==
                CUDA_SUCCESS &&
            calls_.cuMemHostAlloc(reinterpret_cast<void **>(&found_),
                                  sizeof(packing::outcome), 0) == CUDA_SUCCESS;
    return open_;
}

void packed::close()
{
    open_ = false;
    sums_.close();
    if (outcome_ != 0)
        calls_.cuMemFree_v2(outcome_);
    if (found_ != nullptr)
        calls_.cuMemFreeHost(found_);
    if (module_ != nullptr)
        calls_.cuModuleUnload(module_);
    for (buffer &each : ring_)
        for (CUevent *event : {&each.copied, &each.decoded})
            if (*event != nullptr)
                calls_.cuEventDestroy_v2(std::exchange(*event, nullptr));
    for (CUstream *each : {&coding_, &decoding_})
        if (*each != nullptr)
            calls_.cuStreamDestroy_v2(std::exchange(*each, nullptr));
    outcome_ = 0;
    found_ = nullptr;
    module_ = nullptr;
}

void packed::add_buffer(const frame &one)
{
    if (out_.handle == 0)
        out_ = one;
    else
        ring_[ring_count_++].of = one;
    buffers_++;
}

void packed::want_buffers(std::uint64_t bytes)
{
    wanted_buffer_bytes_ = bytes;
    wanted_buffers_ns_ = now_ns();
}

std::uint64_t packed::wanted_buffer_bytes() const
{
    return wanted_buffer_bytes_ != 0 &&
                   now_ns() - wanted_buffers_ns_ < ask_again_ns
               ? wanted_buffer_bytes_
               : 0;
}

std::vector<frame> packed::take_buffers()
{
    std::vector<frame> all;
    if (out_.handle != 0)
        all.push_back(std::exchange(out_, {}));
    for (std::size_t i = 0; i < ring_count_; i++)
        all.push_back(std::exchange(ring_[i].of, {}));
    buffers_ = ring_count_ = 0;
    return all;
}

bool packed::may_code(std::uint64_t bytes, const digests::value &contents,
                      const coded_copy &has)
{
    if (!is_on() || codes_ || !packing::fits(bytes) ||
        bytes > max_moving_bytes ||
        (has.of == contents && (has.refused || this->has(has))))
        return false;
    // The copy may take so much.
    const std::uint64_t most = packing::most_bytes_of(bytes);
    for (part_of_ram &each : slabs_)
        if (each.parts.has_gap(most))
            return true;
    const std::uint64_t left = most_bytes_ - std::min(most_bytes_, held_bytes_);
    const std::uint64_t next =
        std::min(left, most_slab_bytes) / chunk_bytes * chunk_bytes;
    const bool refused =
        refused_ns_ != 0 && now_ns() - refused_ns_ < ask_again_ns;
    wanted_bytes_ = next >= most && !refused ? next : 0;
    return false;
}

bool packed::decode(CUdeviceptr from, std::uint64_t bytes, CUdeviceptr at,
                    CUdeviceptr out, CUstream stream)
{
    std::uint64_t groups = packing::groups_of(bytes);
    std::uint64_t most = packing::most_escapes_of(bytes);
    void *parameters[] = {&from, &groups, &at, &most, &out};
    return calls_.cuLaunchKernel(unpack_, blocks_for(groups), 1, 1,
                                 packing::threads, 1, 1, 0, stream, parameters,
                                 nullptr) == CUDA_SUCCESS;
}

bool packed::encode(CUdeviceptr from, std::uint64_t bytes, CUevent done)
{
    std::uint64_t groups = packing::groups_of(bytes);
    std::uint64_t most = packing::most_escapes_of(bytes);
    CUdeviceptr to = out_.alias;
    CUdeviceptr out = outcome_;
    void *parameters[] = {&from, &groups, &to, &most, &out};
    if (calls_.cuMemsetD8Async(outcome_, 0, sizeof(packing::outcome),
                               coding_) == CUDA_SUCCESS &&
        calls_.cuLaunchKernel(pack_, blocks_for(groups), 1, 1, packing::threads,
                              1, 1, 0, coding_, parameters,
                              nullptr) == CUDA_SUCCESS &&
        decode(to, bytes, from, outcome_, coding_) &&
        calls_.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(found_), outcome_,
                             sizeof(packing::outcome),
                             coding_) == CUDA_SUCCESS &&
        calls_.cuEventRecord(done, coding_) == CUDA_SUCCESS)
        return true;
    // It may read memory that the caller takes for free.
    calls_.cuStreamSynchronize(coding_);
    return false;
}

bool packed::fetch(lanes &by, const fetch_options &what)
{
    const buffer &next = ring_[turn_++ % ring_count_];
    if (!by.wait_for(next.decoded) ||
        !by.fetch(next.of.alias, what.from.at, what.from.bytes, next.copied))
        return false;
    if (calls_.cuStreamWaitEvent(decoding_, next.copied, 0) == CUDA_SUCCESS &&
        decode(next.of.alias, what.bytes, what.to, 0, decoding_) &&
        calls_.cuEventRecord(next.decoded, decoding_) == CUDA_SUCCESS &&
        sums_.begin(what.sum, what.to, what.bytes, what.done, next.decoded))
        return true;
    // The copy that was begun reads system RAM that the caller may give up.
    calls_.cuEventSynchronize(next.copied);
    calls_.cuStreamSynchronize(decoding_);
    return false;
}

const packed::part_of_ram *packed::slab_of(const coded_copy &one) const
{
    const auto found = std::find_if(
        slabs_.begin(), slabs_.end(),
        [&](const part_of_ram &each) { return each.number == one.slab; });
    return found != slabs_.end() ? &*found : nullptr;
}

packed::part_of_ram *packed::slab_of(const coded_copy &one)
{
    return const_cast<part_of_ram *>(std::as_const(*this).slab_of(one));
}

bool packed::take(coded_copy &made)
{
    for (part_of_ram &each : slabs_)
        if (std::uint64_t offset = 0; each.parts.take(made.bytes, offset)) {
            made.at = each.of.alias + offset;
            made.slab = each.number;
            each.users++;
            return true;
        }
    return false;
}

void packed::give(coded_copy &gone)
{
    if (has(gone)) {
        part_of_ram &from = *slab_of(gone);
        from.parts.give(gone.at - from.of.alias, gone.bytes);
    }
    gone = {};
}

room packed::make(std::uint64_t bytes)
{
    room made;
    // Rooms come first.
    const usage now = budget_.ledger_of(device_).read();
    if (now.memory_free_bytes() < bytes + spared_bytes)
        return made;
    const auto taken = budget_.charge_ram_alone(device_, bytes);
    if (!taken)
        return made;
    const auto properties = beyond_share(calls_, device_, taken->token);
    if (calls_.cuMemCreate(&made.handle, bytes, &properties, 0) ==
        CUDA_SUCCESS) {
        made.token = taken->token;
        made.charged = true;
        made.alias = map_alias(calls_, made.handle, bytes, device_);
        if (made.alias != 0)
            return made;
        calls_.cuMemRelease(made.handle);
    }
    budget_.uncharge_ram(device_, *taken);
    return {};
}

void packed::add_slab(std::uint64_t bytes, const room &made)
{
    wanted_bytes_ = 0;
    if (made.handle == 0) {
        refused_ns_ = now_ns();
        return;
    }
    held_bytes_ += bytes;
    slabs_.push_back({.of = made,
                      .bytes = bytes,
                      .parts = slab(bytes),
                      .number = ++last_number_});
}

std::uint64_t packed::drop(std::uint64_t bytes)
{
    const std::uint64_t before = held_bytes_;
    std::erase_if(slabs_, [&](const part_of_ram &each) {
        if (each.users > 0 || bytes == 0)
            return false;
        unmap_alias(calls_, each.of.alias, each.bytes);
        calls_.cuMemRelease(each.of.handle);
        budget_.uncharge_ram(device_, {each.bytes, each.of.token});
        held_bytes_ -= each.bytes;
        bytes -= std::min(bytes, each.bytes);
        refused_ns_ = now_ns(); // others want it now
        return true;
    });
    return before - held_bytes_;
}

} // namespace emuv::cuda

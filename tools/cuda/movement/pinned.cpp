// SPDX-License-Identifier: LGPL-2.1-or-later
// Pinned and managed memory, which kernels can read.
#include "movement/pinned.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include <sys/uio.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

// The memory may be the device's, or nobody's. To read it directly would end
// the program.
reading read_windows(const iovec *windows, std::size_t count,
                     std::vector<CUdeviceptr> &words)
{
    const std::size_t whole = words.size() * sizeof words[0];
    const iovec to{words.data(), whole};
    const ssize_t got = process_vm_readv(getpid(), &to, 1, windows, count, 0);
    words.resize(got > 0 ? static_cast<std::size_t>(got) / sizeof words[0] : 0);
    if (got == static_cast<ssize_t>(whole))
        return reading::done;
    return got >= 0 || errno == EFAULT ? reading::absent : reading::denied;
}

} // namespace

reading read_table(const void *from, std::size_t bytes,
                   std::vector<CUdeviceptr> &words)
{
    words.resize(bytes / sizeof words[0]);
    if (words.empty())
        return reading::done;
    const iovec all{const_cast<void *>(from), words.size() * sizeof words[0]};
    const reading result =
        from != nullptr ? read_windows(&all, 1, words) : reading::absent;
    if (result != reading::done)
        words.clear();
    return result;
}

reading sample_table(const void *from, std::size_t bytes,
                     std::vector<CUdeviceptr> &words)
{
    constexpr std::size_t samples = 64;
    constexpr std::size_t sample_bytes = 64;
    static_assert(table_window_bytes >= samples * sample_bytes);
    if (bytes <= table_window_bytes)
        return read_table(from, bytes, words);
    if (from == nullptr) {
        words.clear();
        return reading::absent;
    }
    const std::size_t apart =
        bytes / samples / sizeof words[0] * sizeof words[0];
    iovec windows[samples];
    for (std::size_t i = 0; i < samples; i++)
        windows[i] = {static_cast<char *>(const_cast<void *>(from)) + i * apart,
                      sample_bytes};
    words.resize(samples * sample_bytes / sizeof words[0]);
    return read_windows(windows, samples, words);
}

void pinned::add(const void *at, std::size_t bytes, bool managed,
                 CUcontext context)
{
    const std::lock_guard guard(lock_);
    by_base_[reinterpret_cast<std::uintptr_t>(at)] = {bytes, managed, context,
                                                      next_++};
    any_.store(true);
}

std::uint64_t pinned::next() const
{
    const std::lock_guard guard(lock_);
    return next_;
}

void pinned::gone(CUcontext context, std::uint64_t before)
{
    const std::lock_guard guard(lock_);
    std::erase_if(by_base_, [=](const auto &each) {
        return each.second.context == context && each.second.number < before;
    });
    any_.store(!by_base_.empty());
}

pinned::area pinned::remove(const void *at)
{
    const std::lock_guard guard(lock_);
    const auto gone = by_base_.extract(reinterpret_cast<std::uintptr_t>(at));
    any_.store(!by_base_.empty());
    return gone ? gone.mapped() : area{};
}

pinned::area pinned::from(CUdeviceptr address) const
{
    if (!any_.load())
        return {};
    const std::lock_guard guard(lock_);
    const auto after = by_base_.upper_bound(address);
    if (after == by_base_.begin())
        return {};
    const auto &[base, whole] = *std::prev(after);
    const std::size_t offset = address - base;
    area rest = whole;
    rest.bytes -= std::min(offset, whole.bytes);
    return rest.bytes > 0 ? rest : area{};
}

} // namespace emuv::cuda

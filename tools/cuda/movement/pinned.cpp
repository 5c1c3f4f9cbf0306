// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory of the host's that kernels can read.
#include "movement/pinned.hpp"

#include <iterator>

#include <sys/uio.h>
#include <unistd.h>

namespace emuv::cuda {

std::vector<CUdeviceptr> read_table(const void *from, std::size_t bytes)
{
    std::vector<CUdeviceptr> words(bytes / sizeof(CUdeviceptr));
    if (from == nullptr || words.empty())
        return {};
    // It may be the device's, or nobody's: a look at it would end the program.
    const std::size_t whole = words.size() * sizeof words[0];
    const iovec to{words.data(), whole};
    const iovec source{const_cast<void *>(from), whole};
    if (process_vm_readv(getpid(), &to, 1, &source, 1, 0) !=
        static_cast<ssize_t>(whole))
        return {};
    return words;
}

void pinned::add(const void *at, std::size_t bytes)
{
    const std::lock_guard guard(lock_);
    by_base_[reinterpret_cast<std::uintptr_t>(at)] = bytes;
    any_.store(true);
}

std::size_t pinned::remove(const void *at)
{
    const std::lock_guard guard(lock_);
    const auto gone = by_base_.extract(reinterpret_cast<std::uintptr_t>(at));
    any_.store(!by_base_.empty());
    return gone ? gone.mapped() : 0;
}

std::size_t pinned::bytes_from(CUdeviceptr address) const
{
    if (!any_.load())
        return 0;
    const std::lock_guard guard(lock_);
    const auto after = by_base_.upper_bound(address);
    if (after == by_base_.begin())
        return 0;
    const auto &[base, bytes] = *std::prev(after);
    const std::size_t offset = address - base;
    return offset < bytes ? bytes - offset : 0;
}

} // namespace emuv::cuda

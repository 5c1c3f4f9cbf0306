// SPDX-License-Identifier: LGPL-2.1-or-later
// Measures and charges the VRAM that CUDA itself takes for a program.
#include "account/footprint.hpp"

namespace emuv::cuda {

footprint::footprint(const options &asked)
    : limits_(asked.limits), ask_(asked.ask), first_device_(asked.first_device),
      devices_(asked.devices), told_(asked.told)
{}

void footprint::shrink()
{
    const std::lock_guard guard(lock_);
    measure(true);
    charge();
}

std::uint64_t footprint::charged_bytes()
{
    const std::lock_guard guard(lock_);
    return charged_bytes_;
}

// Measures what is taken and not in the ledger.
// @param anew  it may have become less
void footprint::measure(bool anew)
{
    // A charge comes before its memory and goes after it, so the ledger may
    // have more than is there. It hardly ever has less: a pool's, for a moment.
    // The answer may hold memory that comes or goes meanwhile.
    const std::uint64_t before = limits_.ever_physical_bytes();
    const std::uint64_t own = limits_.own_physical_bytes();
    std::uint64_t in_vram = 0;
    unsigned in_use = 0;
    for (int device = first_device_; device < first_device_ + devices_;
         device++) {
        const std::uint64_t bytes = ask_(device);
        in_vram += bytes;
        in_use += bytes != 0;
    }
    // It is said after the charge and taken back before the end of it. Read
    // before the sum of charges, it holds none that the sum lacks.
    const auto beside = static_cast<std::uint64_t>(
        std::max<std::int64_t>(0, beside_bytes_.load()));
    const std::uint64_t come = limits_.ever_physical_bytes() - before;
    const std::uint64_t in_ledger = own + come - charged_bytes_;
    const std::uint64_t counted = in_ledger - std::min(in_ledger, beside);
    const std::uint64_t taken = in_vram > counted ? in_vram - counted : 0;
    taken_bytes_ = anew ? taken : std::max(taken_bytes_, taken);
    if (in_use > in_use_)
        first_bytes_ = taken_bytes_;
    else if (anew)
        first_bytes_ = std::min(first_bytes_, taken_bytes_);
    if (in_use > in_use_ || anew)
        in_use_ = in_use;
}

// Charges the measured bytes, and those kept for code, as far as there is room.
// @return how many of the measured bytes are missing
std::uint64_t footprint::charge()
{
    const usage now = limits_.read();
    const std::uint64_t code =
        in_use_ * std::min(code_bytes, now.physical_bytes / 16);
    const std::uint64_t due =
        in_use_ == 0 ? 0 : std::max(taken_bytes_, first_bytes_ + code);
    if (due < charged_bytes_) {
        limits_.uncharge_physical(charged_bytes_ - due);
        charged_bytes_ = due;
    } else if (due > charged_bytes_) {
        const std::uint64_t more =
            std::min(due - charged_bytes_, now.physical_free_bytes());
        if (more != 0 && limits_.charge_physical(more))
            charged_bytes_ += more;
    }
    return taken_bytes_ - std::min(taken_bytes_, charged_bytes_);
}

// Says once that a share is too small.
void footprint::tell()
{
    if (charged_bytes_ >= taken_bytes_ || said_ || told_ == nullptr ||
        limits_.read().physical_bytes == 0)
        return;
    said_ = true;
    told_(taken_bytes_, taken_bytes_ - charged_bytes_);
}

} // namespace emuv::cuda

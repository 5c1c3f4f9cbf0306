// SPDX-License-Identifier: LGPL-2.1-or-later
// When memory is used again, foretold by the work that used it last.
#include "policy/reuse.hpp"

#include "policy/mix.hpp"

namespace emuv::cuda {

namespace {

constexpr std::uint64_t factor = 0x9e3779b97f4a7c15u;

// How many uses count as late ones, roughly.
constexpr std::uint32_t late_uses = 64;

std::uint64_t power(std::uint64_t base, std::uint32_t exponent)
{
    std::uint64_t out = 1;
    for (std::uint32_t i = 0; i < exponent; i++)
        out *= base;
    return out;
}

} // namespace

// The hash of a context is a polynomial in the factor, so that the oldest work
// can be taken out of it.
void reuse::begin(std::uint64_t kind)
{
    if (tables_.empty()) {
        tables_.resize(lengths.size() * entries);
        for (std::size_t i = 0; i < lengths.size(); i++)
            leaving_[i] = power(factor, lengths[i]);
    }
    kind = kind * factor + 1;
    for (std::size_t i = 0; i < lengths.size(); i++) {
        const std::uint64_t gone =
            works_ >= lengths[i] ? kinds_[(works_ - lengths[i]) % kinds_.size()]
                                 : 0;
        hashes_[i] = hashes_[i] * factor + kind - gone * leaving_[i];
    }
    kinds_[works_ % kinds_.size()] = kind;
    works_++;
}

// The memory is used again: so long it was idle, in these contexts.
void reuse::learn(const memory &of)
{
    const std::uint64_t distance = works_ - of.used;
    const bool right = of.due != never && alike(distance, of.due - of.used);
    doubt_ -= doubt_ / late_uses;
    doubt_ += right ? 0 : max_doubt / late_uses;
    for (std::size_t i = 0; i < lengths.size(); i++) {
        entry &known = at(i, of.contexts[i]);
        if (known.tag == of.contexts[i] && alike(known.distance, distance)) {
            known.trust += known.trust < most_trust ? 1 : 0;
            known.distance = static_cast<std::uint32_t>(distance);
        } else if (known.trust > 0) {
            known.trust--;
        } else {
            known = {of.contexts[i], static_cast<std::uint32_t>(distance), 1};
        }
    }
}

// Of the longest context whose distance is trusted.
void reuse::foretell(std::uint32_t which)
{
    which_ = which;
    told_ = {works_, never, {}};
    for (std::size_t i = lengths.size(); i-- > 0;) {
        told_.contexts[i] =
            static_cast<std::uint32_t>(mix(hashes_[i] + which) >> 32);
        const entry &known = at(i, told_.contexts[i]);
        if (told_.due == never && known.tag == told_.contexts[i] &&
            known.trust >= enough_trust)
            told_.due = works_ + known.distance;
    }
}

void reuse::use(memory &of, std::uint32_t which)
{
    if (of.used == works_)
        return;
    if (of.used != 0 && !(learned_by_ == works_ && of == learned_)) {
        learn(of);
        learned_ = of;
        learned_by_ = works_;
    }
    if (told_.used != works_ || which != which_)
        foretell(which);
    of = told_;
}

bool reuse::tells() const
{
    return doubt_ <= max_doubt / 4;
}

std::uint64_t reuse::next_use(const memory &of) const
{
    if (of.due == never)
        return never;
    if (of.due > works_)
        return of.due - works_;
    // It is late: at any moment, or not as foretold.
    return works_ - of.due <= (of.due - of.used) / 16 + 1 ? 1 : never;
}

} // namespace emuv::cuda

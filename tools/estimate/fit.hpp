// SPDX-License-Identifier: GPL-2.0-or-later
// A job against a card: what spills, and how large it can be.
#pragma once

#include "machine.hpp"
#include "memory.hpp"
#include "time.hpp"

#include <optional>
#include <string_view>

namespace emuv::estimate {

enum class verdict
{
    fits,      ///< even the high answer does
    may_spill, ///< the likely answer fits, the high one does not
    spills,
    too_large, ///< RAM has no room for the rest, or what is used at once
};

/// The verdict in a word: "fits".
[[nodiscard]] std::string_view word(verdict is);

struct fit
{
    estimate::verdict verdict = verdict::fits;
    range spilled;            ///< bytes
    double largest_batch = 0; ///< that likely fits VRAM; 0: none does
    double sure_batch = 0;    ///< that fits by the high answer
    double longest = 0;       ///< tokens of a sample that likely fit; 0: none
    double sure_longest = 0;
    pass whole;
    std::optional<pass> token = {};
    double cpu_token = 0; ///< seconds where the CPU computes what spills; or 0
    double physical = 0;  ///< bytes of VRAM for the smallest instance
    double virtual_ = 0;  ///< bytes of its virtual VRAM
};

/// Holds a job against a machine.
[[nodiscard]] fit hold(const model &of, const job &as, const needs &has,
                       const machine &on);

} // namespace emuv::estimate

// SPDX-License-Identifier: GPL-2.0-or-later
// The time that a pass takes on a card, and what holds it up.
#pragma once

#include "machine.hpp"
#include "memory.hpp"

#include <string_view>

namespace emuv::estimate {

/// The time of one pass, and of its parts. They overlap, so the longest counts.
struct pass
{
    std::string_view name; ///< "step", "prompt", "token", "image"
    range seconds;
    double compute = 0;  ///< seconds; 0: the card's rate is not known
    double memory = 0;   ///< seconds of VRAM's bandwidth
    double link = 0;     ///< seconds of the link
    double launches = 0; ///< seconds in which Python starts kernels
    double operations = 0;
    double crosses = 0; ///< bytes over the link, in the busier direction
};

/// The whole job once: a training step, or a pass forward over all tokens.
/// @param spilled  bytes that are not in VRAM
[[nodiscard]] pass whole_pass(const model &of, const job &as, const needs &has,
                              const machine &on, const range &spilled);

/// One token of a text that is written, behind all the others.
/// @pre the model writes text, and the job is inference
[[nodiscard]] pass one_token(const model &of, const job &as, const needs &has,
                             const machine &on, const range &spilled);

/// True if the model writes text.
[[nodiscard]] bool writes(const model &of);

/// Seconds of a token where the layers that have no room in VRAM are computed
/// by the CPU, in its own memory. @param spilled  bytes of these that it reads
[[nodiscard]] double token_with_cpu(const pass &token, const machine &on,
                                    double read, double spilled);

/// Bytes that one token of each sample reads: the weights that any of them
/// uses, and the cache.
[[nodiscard]] double read_by_token(const model &of, const job &as,
                                   const needs &has);

} // namespace emuv::estimate

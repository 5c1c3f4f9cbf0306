// SPDX-License-Identifier: GPL-2.0-or-later
// The bytes that a job takes on the card. docs/reference/estimate.md has the
// formulas and their sources.
#pragma once

#include "model.hpp"
#include "range.hpp"

#include <optional>

namespace emuv::estimate {

enum class mode
{
    inference,
    train,
    lora,  ///< adapters alone are trained
    qlora, ///< likewise, over weights of 4 bits (NF4)
};

enum class dtype
{
    fp32,
    fp16,
    bf16,
    int8, ///< of the layers' matrices; what is beside has 16 bits
    int4, ///< likewise
};

/// The types that training keeps its weights in.
enum class mixture_of_precisions
{
    none,     ///< weights, gradients, states: all in the dtype
    autocast, ///< all in 32 bits; computed in the dtype (torch.autocast)
    master,   ///< weights in the dtype, a copy and the states in 32 bits
};

enum class optimizer
{
    sgd,
    momentum,
    adam, ///< and AdamW, whose states are the same
    adafactor,
    adam8bit,
};

/// A job on one card.
struct job
{
    estimate::mode mode = mode::inference;
    std::optional<estimate::dtype> dtype = {}; ///< none: as the file has them
    mixture_of_precisions mixed = mixture_of_precisions::none;
    estimate::optimizer optimizer = optimizer::adam;
    double batch = 1;
    double sequence = 0;           ///< tokens of text. 0: see tokens()
    double images = 0;             ///< of a sample, where the model sees
    std::uint64_t image_width = 0; ///< pixels; 0: the model's own
    std::uint64_t image_height = 0;
    bool flash = true; ///< attention that keeps no scores
    bool checkpointing = false;
    bool accumulates = false; ///< gradients outlive a batch
    bool freeze_eyes = false;
    bool freeze_text = false;
    std::uint64_t rank = 16;       ///< of adapters
    bool adapt_all_linear = false; ///< else queries and values, PEFT's default
    double activation_factor = 0;  ///< activations per byte of weights; 0: none
    double cache_bytes = 0;        ///< of an element of the KV cache; 0: dtype
};

/// Bytes that a job takes. The peak is less than the sum: gradients come
/// while activations go.
struct needs
{
    range weights;
    range gradients;
    range states; ///< the optimizer's
    range activations;
    range cache; ///< keys and values
    range step;  ///< what the optimizer's step takes for a moment
    range workspace;
    range context;
    range peak;
    double trained = 0; ///< parameters
    double tokens = 0;  ///< of a sample, with its images'
};

/// Tokens of one sample: text and images. Text that is not said is 2048 tokens
/// long, 512 beside images, and never more than the model is made for.
[[nodiscard]] double tokens(const model &of, const job &as);

/// Bytes of an activation's element.
[[nodiscard]] double element_bytes(const model &of, const job &as);

/// @pre the batch is at least 1
[[nodiscard]] needs compute(const model &of, const job &as);

} // namespace emuv::estimate

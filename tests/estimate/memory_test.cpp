// SPDX-License-Identifier: GPL-2.0-or-later
// The bytes of a job: published arithmetic, and how the parts relate.
#include <cmath>

#include <gmock/gmock.h>

#include <memory.hpp>

namespace emuv::estimate {
namespace {

constexpr double gib = 1 << 30;

model built_in(const char *name)
{
    return *find_builtin(name);
}

double tenths_of_gb(const range &of)
{
    return std::round(of.likely / 1e8) / 10;
}

job training(dtype as)
{
    job out;
    out.mode = mode::train;
    out.dtype = as;
    return out;
}

// LLaVA-1.5-13B at fp16, as it is published.
TEST(llava_13b, takes_the_published_gigabytes)
{
    job is = training(dtype::fp16);
    is.activation_factor = 2.5;
    const needs has = compute(built_in("llava-1.5-13b"), is);
    EXPECT_EQ(tenths_of_gb(has.weights), 26.7);
    EXPECT_EQ(tenths_of_gb(has.gradients), 26.7);
    EXPECT_EQ(tenths_of_gb(has.states), 53.4);
    EXPECT_EQ(tenths_of_gb(has.activations), 66.8);
}

// Korthikanti et al. 2022, equation 1 and table 2: sbh (34 + 5 as/h) bytes a
// layer; 34 sbh without the scores; 2 sbh with all computed again.
class gpt_shape : public testing::Test
{
protected:
    gpt_shape()
    {
        of_.text.layers = 96;
        of_.text.hidden = 12288;
        of_.text.heads = of_.text.kv_heads = 96;
        of_.text.head_width = 128;
        of_.text.intermediate = 4 * 12288;
        of_.text.longest = 2048;
        of_.text.layer_norm = of_.text.biases = of_.text.dropout = true;
        of_.text.composed_activation = true;
        of_.text.gated = false;
        of_.counted = count(of_.text);
        as_ = training(dtype::fp16);
        as_.batch = 4;
    }

    // The transients of one layer are not in the paper.
    [[nodiscard]] double by_layer() const
    {
        model half = of_;
        half.text.layers = 48;
        return (compute(of_, as_).activations.low -
                compute(half, as_).activations.low) /
               48;
    }

    static constexpr double sbh = 2048.0 * 4 * 12288;
    model of_;
    job as_;
};

TEST_F(gpt_shape, keeps_34_bytes_for_each_width_with_flash_attention)
{
    // Less the logarithm of each softmax's sum, 4 bytes a head.
    EXPECT_EQ(by_layer() - 4.0 * 96 * 2048 * 4, 34 * sbh);
}

TEST_F(gpt_shape, keeps_five_bytes_a_score_with_standard_attention)
{
    const double flash = by_layer();
    as_.flash = false;
    EXPECT_EQ(by_layer() - flash, 5.0 * 96 * 2048 * 2048 * 4);
}

TEST_F(gpt_shape, keeps_two_bytes_for_each_width_with_checkpointing)
{
    as_.checkpointing = true;
    EXPECT_EQ(by_layer(), 2 * sbh);
}

TEST_F(gpt_shape, keeps_32_bits_between_layers_with_autocast)
{
    const double plain = by_layer();
    as_.mixed = mixture_of_precisions::autocast;
    EXPECT_EQ(by_layer() - plain, 4 * sbh);
    as_.checkpointing = true;
    EXPECT_EQ(by_layer(), 4 * sbh);
}

TEST(mixed_precision, takes_16_bytes_a_parameter_with_master_weights)
{
    job is = training(dtype::bf16);
    is.mixed = mixture_of_precisions::master;
    const model of = built_in("llama-2-7b");
    const needs has = compute(of, is);
    EXPECT_EQ(has.weights.likely + has.gradients.likely + has.states.likely,
              16 * of.counted.all);
    is.mixed = mixture_of_precisions::autocast;
    const needs other = compute(of, is);
    EXPECT_EQ(other.weights.likely + other.gradients.likely +
                  other.states.likely,
              16 * of.counted.all);
}

TEST(optimizers, take_their_states)
{
    const model of = built_in("gpt2");
    const auto a_parameter = [&](optimizer by) {
        job is = training(dtype::fp32);
        is.optimizer = by;
        return compute(of, is).states.likely / of.counted.all;
    };
    EXPECT_EQ(a_parameter(optimizer::sgd), 0);
    EXPECT_EQ(a_parameter(optimizer::momentum), 4);
    EXPECT_EQ(a_parameter(optimizer::adam), 8);
    EXPECT_NEAR(a_parameter(optimizer::adam8bit), 2, 0.1);
    EXPECT_LT(a_parameter(optimizer::adafactor), 0.1);
}

TEST(optimizers, that_go_tensor_by_tensor_take_no_copy_of_all)
{
    const model of = built_in("gpt2");
    job is = training(dtype::fp32);
    EXPECT_EQ(compute(of, is).step.likely, 4 * of.counted.all);
    for (const auto by : {optimizer::adam8bit, optimizer::adafactor}) {
        is.optimizer = by;
        EXPECT_EQ(compute(of, is).step.likely, 0);
    }
}

TEST(lora, keeps_more_with_adapters_in_all_layers)
{
    const model of = built_in("llama-2-7b");
    job is;
    is.mode = mode::lora;
    const range few = compute(of, is).activations;
    is.adapt_all_linear = true;
    const range all = compute(of, is).activations;
    // The inputs of the MLP's matrices, in 16 bits.
    const double inputs = 32.0 * 2048 * 2 * (4096 + 11008);
    EXPECT_EQ(all.low - few.low, inputs);
    EXPECT_GT(all.likely - few.likely, inputs);
}

TEST(kv_cache, takes_what_the_heads_that_share_keep)
{
    job is;
    is.dtype = dtype::fp16;
    is.sequence = 4096;
    // 2 x 32 layers x 32 heads x 128 x 2 bytes: half a MiB a token.
    EXPECT_EQ(compute(built_in("llama-2-7b"), is).cache.likely, 2 * gib);
    // 8 heads of 32.
    EXPECT_EQ(compute(built_in("llama-3-8b"), is).cache.likely, gib / 2);
    is.cache_bytes = 1;
    EXPECT_EQ(compute(built_in("llama-3-8b"), is).cache.likely, gib / 4);
    is.mode = mode::train;
    EXPECT_EQ(compute(built_in("llama-3-8b"), is).cache.likely, 0);
}

TEST(kv_cache, ends_at_a_sliding_window)
{
    model of = built_in("llama-3-8b");
    of.text.window = 1024;
    of.text.windowed_layers = 16;
    job is;
    is.dtype = dtype::fp16;
    is.sequence = 4096;
    const range has = compute(of, is).cache;
    EXPECT_EQ(has.likely, gib / 4 + gib / 16);
    EXPECT_EQ(has.high, gib / 2); // by a cache that ignores it
}

TEST(kv_cache, of_latent_attention_is_expanded_unless_who_runs_it_keeps_it)
{
    model of = built_in("llama-3-8b");
    of.text.latent = latent_attention{0, 512, 64, 128, 128};
    job is;
    is.dtype = dtype::bf16;
    is.sequence = 1000;
    constexpr double narrow = 32.0 * 1000 * (512 + 64) * 2;
    constexpr double wide = 32.0 * 1000 * 32 * (192 + 128) * 2;
    EXPECT_EQ(compute(of, is).cache, (range{narrow, wide, wide}));
    of.text.latent->stays_narrow = true; // llama.cpp
    EXPECT_EQ(compute(of, is).cache, (range{narrow, narrow, wide}));
}

TEST(lora, trains_little_and_qlora_keeps_four_bits)
{
    const model of = built_in("llama-2-7b");
    job is;
    is.mode = mode::lora;
    is.rank = 8;
    const needs lora = compute(of, is);
    // 32 layers x 2 matrices x 8 x (4096 + 4096), as peft prints it.
    EXPECT_EQ(lora.trained, 4194304);
    EXPECT_LT(lora.gradients.likely + lora.states.likely, 60e6);
    is.mode = mode::qlora;
    EXPECT_NEAR(compute(of, is).weights.likely / 1e9, 3.86, 0.1);
}

TEST(frozen_parts, have_no_gradients)
{
    const model of = built_in("llava-1.5-7b");
    job is = training(dtype::bf16);
    is.images = 1;
    const needs all = compute(of, is);
    is.freeze_eyes = true;
    const needs less = compute(of, is);
    EXPECT_EQ(all.trained - less.trained, of.eyes->parameters);
    EXPECT_LT(less.activations.likely, all.activations.likely);
    EXPECT_EQ(less.weights, all.weights);
}

TEST(images, become_tokens)
{
    job is;
    is.images = 2;
    is.sequence = 100;
    EXPECT_EQ(compute(built_in("llava-1.5-7b"), is).tokens, 100 + 2 * 576);
}

// Measured on an H200, 2026-11-20: batch 256, 20.9 GiB allocated at the peak.
TEST(resnet50, trains_in_what_was_measured)
{
    job is = training(dtype::fp32);
    is.batch = 256;
    is.optimizer = optimizer::momentum;
    const needs has = compute(built_in("resnet-50"), is);
    const double allocated =
        has.weights.likely + has.states.likely +
        std::max(has.activations.likely, has.gradients.likely);
    EXPECT_NEAR(allocated / gib, 20.9, 20.9 * 0.15);
}

class every_job : public testing::TestWithParam<mode>
{};

TEST_P(every_job, is_answered_low_to_high_and_grows_with_the_batch)
{
    for (const auto name : builtin_names())
        for (const bool flash : {true, false})
            for (const auto mixed :
                 {mixture_of_precisions::none, mixture_of_precisions::autocast,
                  mixture_of_precisions::master}) {
                const model of = *find_builtin(name);
                job is;
                is.mode = GetParam();
                is.flash = flash;
                is.mixed = mixed;
                is.images = of.eyes ? 1 : 0;
                range before;
                for (const double batch : {1.0, 2.0, 64.0}) {
                    is.batch = batch;
                    const needs has = compute(of, is);
                    for (const range &each :
                         {has.weights, has.gradients, has.states,
                          has.activations, has.cache, has.step, has.workspace,
                          has.context, has.peak}) {
                        EXPECT_LE(each.low, each.likely) << name;
                        EXPECT_LE(each.likely, each.high) << name;
                        EXPECT_GE(each.low, 0) << name;
                    }
                    EXPECT_GE(has.peak.likely, before.likely) << name;
                    before = has.peak;
                }
            }
}

INSTANTIATE_TEST_SUITE_P(modes, every_job,
                         testing::Values(mode::inference, mode::train,
                                         mode::lora, mode::qlora));

} // namespace
} // namespace emuv::estimate

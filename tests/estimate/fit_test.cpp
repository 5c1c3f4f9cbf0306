// SPDX-License-Identifier: GPL-2.0-or-later
// A job against a card.
#include <gmock/gmock.h>

#include <fit.hpp>

namespace emuv::estimate {
namespace {

constexpr double gib = 1 << 30;

machine of_card(const char *name)
{
    return whole_card(*find_gpu_models(name).front());
}

fit hold(const char *name, const job &is, const machine &on)
{
    const model of = *find_builtin(name);
    return hold(of, is, compute(of, is), on);
}

TEST(link_rate, is_what_was_measured)
{
    EXPECT_NEAR(link_rate(5, 16) / 1e9, 55.4, 0.5);
    EXPECT_NEAR(link_rate(4, 16) / 1e9, 27.7, 0.5);
}

TEST(tensor_rate, is_that_of_the_card_and_of_no_other_with_its_name_before)
{
    const auto of = [](const char *name) {
        return tensor_rate(*find_gpu_models(name).front()) / 1e12;
    };
    EXPECT_EQ(of("A100 SXM4 80GB"), 312);
    EXPECT_EQ(of("A10"), 125);
    EXPECT_EQ(of("L40S"), 362);
    EXPECT_EQ(of("L4"), 121);
    EXPECT_EQ(of("4070 Ti SUPER"), 88.2);
    EXPECT_EQ(of("4070"), 58.3);
    EXPECT_EQ(of("2060 6GB"), 0);
}

TEST(a_small_job, fits_and_spills_nothing)
{
    const fit is = hold("gpt2", {}, of_card("4070"));
    EXPECT_EQ(is.verdict, verdict::fits);
    EXPECT_EQ(is.spilled, range{});
    EXPECT_EQ(is.virtual_, 0);
    EXPECT_GT(is.largest_batch, 8);
    EXPECT_LE(is.sure_batch, is.largest_batch);
    EXPECT_EQ(is.cpu_token, 0);
}

TEST(largest_batch, is_the_last_that_fits)
{
    job is;
    const machine on = of_card("3090");
    const model of = *find_builtin("llama-3-8b");
    const fit held = hold(of, is, compute(of, is), on);
    ASSERT_GT(held.largest_batch, 0);
    is.batch = held.largest_batch;
    EXPECT_LE(compute(of, is).peak.likely, on.vram);
    is.batch++;
    EXPECT_GT(compute(of, is).peak.likely, on.vram);
}

TEST(longest_sample, is_the_last_that_fits)
{
    job is;
    const machine on = of_card("3090");
    const model of = *find_builtin("llama-3-8b");
    const fit held = hold(of, is, compute(of, is), on);
    ASSERT_GT(held.longest, 0);
    is.sequence = held.longest;
    EXPECT_LE(compute(of, is).peak.likely, on.vram);
    is.sequence++;
    EXPECT_GT(compute(of, is).peak.likely, on.vram);
}

TEST(longest_sample, ends_at_the_positions_that_a_model_has_learned)
{
    EXPECT_EQ(hold("gpt2", {}, of_card("H200 SXM")).longest, 1024);
}

// 24 GB of weights, and a card with 12 GB for them. A link of 25 GB/s allows
// about 2 tokens a second. A CPU of 80 GB/s that has half allows about 6.
TEST(decoding, is_faster_with_layers_on_a_cpu_that_reads_faster_than_the_link)
{
    machine on = of_card("4070");
    on.link = 25e9;
    on.cpu_bandwidth = 80e9;
    pass token;
    EXPECT_NEAR(1 / token_with_cpu(token, on, 24e9, 12e9), 6, 0.5);
    model of = from_size(12e9, 40, 5120);
    job is;
    is.sequence = 1;
    needs has = compute(of, is);
    has.cache = {};
    const pass by_link = one_token(of, is, has, on, range::exactly(12e9));
    EXPECT_NEAR(1 / by_link.seconds.low, 25.0 / 12, 0.05);
    EXPECT_NEAR(1 / by_link.seconds.likely, 2, 0.2);
}

// A token uses 2 experts of 8. Those of 32 samples use all of them.
TEST(mixture, reads_more_experts_for_more_samples)
{
    const model of = *find_builtin("mixtral-8x7b");
    job is;
    const auto weights = [&](double batch) {
        is.batch = batch;
        const needs has = compute(of, is);
        return (read_by_token(of, is, has) - has.cache.likely) /
               has.weights.likely;
    };
    EXPECT_NEAR(weights(1), of.counted.active / of.counted.all, 1e-9);
    EXPECT_NEAR(weights(2), 1 - 0.75 * (1 - weights(1)), 1e-9);
    EXPECT_GT(weights(32), 0.99);
}

TEST(longest_sample, has_its_images_whether_the_text_is_said_or_not)
{
    job is;
    is.images = 1;
    const fit unsaid = hold("llava-1.5-7b", is, of_card("3090"));
    is.sequence = 512;
    EXPECT_EQ(hold("llava-1.5-7b", is, of_card("3090")).longest,
              unsaid.longest);
}

TEST(a_job_past_the_card, spills_and_gets_an_instance_that_holds_it)
{
    job is;
    is.mode = mode::train;
    const model of = *find_builtin("gpt2-xl");
    const machine on = of_card("4070");
    const needs has = compute(of, is);
    const fit held = hold(of, is, has, on);
    EXPECT_EQ(held.verdict, verdict::spills);
    EXPECT_EQ(held.spilled.likely, has.peak.likely - on.vram);
    EXPECT_GE(held.physical + held.virtual_, has.peak.high);
    EXPECT_LE(held.physical, on.vram);
    EXPECT_GT(held.whole.link, 0);
}

TEST(an_instance, without_room_in_ram_is_too_small)
{
    machine on = of_card("4070");
    on.ram = 2 * gib;
    EXPECT_EQ(hold("llama-2-13b", {}, on).verdict, verdict::too_large);
    on.ram = 64 * gib;
    EXPECT_EQ(hold("llama-2-13b", {}, on).verdict, verdict::spills);
    on.ram = 0;
    on.spills_to_none = true;
    EXPECT_EQ(hold("llama-2-13b", {}, on).verdict, verdict::too_large);
}

} // namespace
} // namespace emuv::estimate

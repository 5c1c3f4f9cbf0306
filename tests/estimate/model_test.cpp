// SPDX-License-Identifier: GPL-2.0-or-later
// Built-in models: the parameters that their makers publish.
#include <gmock/gmock.h>

#include <model.hpp>

namespace emuv::estimate {
namespace {

struct published
{
    const char *name;
    double parameters;
};

class builtin : public testing::TestWithParam<published>
{};

TEST_P(builtin, has_the_published_number_of_parameters)
{
    const auto is = find_builtin(GetParam().name);
    ASSERT_TRUE(is);
    EXPECT_EQ(is->counted.all, GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    models, builtin,
    testing::Values(
        published{"gpt2", 124439808}, published{"gpt2-medium", 354823168},
        published{"gpt2-large", 774030080}, published{"gpt2-xl", 1557611200},
        published{"llama-2-7b", 6738415616},
        published{"llama-2-13b", 13015864320},
        published{"llama-2-70b", 68976648192},
        published{"llama-3-8b", 8030261248},
        published{"llama-3-70b", 70553706496},
        published{"mixtral-8x7b", 46702792704},
        published{"llava-1.5-7b", 7063427072},
        published{"llava-1.5-13b", 13351494656}, published{"sd-1.5", 859520964},
        published{"sdxl", 2567463684}, published{"resnet-50", 25557032},
        published{"vit-l", 304326632}));

TEST(builtin_names, are_all_found_in_any_spelling)
{
    for (const auto name : builtin_names())
        EXPECT_TRUE(find_builtin(name)) << name;
    EXPECT_EQ(find_builtin("Llama 2 7B")->counted.all, 6738415616);
    EXPECT_EQ(find_builtin("GPT2_XL")->name, "GPT-2 XL");
    EXPECT_FALSE(find_builtin("llama-9-7b"));
    EXPECT_FALSE(find_builtin(""));
}

TEST(mixtral, uses_two_of_eight_experts_for_a_token)
{
    const auto is = find_builtin("mixtral-8x7b");
    // 12.9 billion are published, with the embedding.
    EXPECT_NEAR(is->counted.active, 12.75e9, 0.15e9);
}

TEST(image_tokens, of_llava_are_a_square_of_patches)
{
    EXPECT_EQ(find_builtin("llava-1.5-7b")->image_tokens(0, 0), 576);
    // It scales each image to its own size.
    EXPECT_EQ(find_builtin("llava-1.5-7b")->image_tokens(1000, 500), 576);
    EXPECT_EQ(find_builtin("gpt2")->image_tokens(0, 0), 0);
}

TEST(resnet50, takes_four_billion_multiply_adds)
{
    EXPECT_NEAR(find_builtin("resnet-50")->net->operations / 2, 4.09e9, 0.05e9);
}

TEST(from_size, keeps_the_parameters_and_guesses_a_shape)
{
    const model is = from_size(7e9, 0, 0);
    EXPECT_EQ(is.counted.all, 7e9);
    EXPECT_NEAR(static_cast<double>(is.text.layers), 32, 6);
    EXPECT_NEAR(static_cast<double>(is.text.hidden), 4096, 600);
    EXPECT_FALSE(is.assumed.empty());
    for (const double size : {1.0, 1e3, 1e14})
        EXPECT_EQ(from_size(size, 0, 0).counted.all, size);
}

TEST(from_size, says_that_a_shape_is_not_of_that_size)
{
    EXPECT_EQ(from_size(7e9, 32, 4096).assumed.size(), 1U);
    const model is = from_size(7e9, 80, 8192);
    ASSERT_EQ(is.assumed.size(), 2U);
    EXPECT_EQ(is.assumed.front(),
              "activations as of 80 layers of width 8192, which would have "
              "about 65 billion parameters");
}

} // namespace
} // namespace emuv::estimate

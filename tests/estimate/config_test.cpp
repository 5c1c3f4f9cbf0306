// SPDX-License-Identifier: GPL-2.0-or-later
// config.json of the architectures that are known, and what is no such file.
#include "memory.hpp"
#include "reading.hpp"
#include "time.hpp"

#include <gmock/gmock.h>

namespace emuv::estimate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

model read(std::string_view text)
{
    return read_config(*as_file(text));
}

std::string why_not(std::string_view text)
{
    return refusal([&] { return read(text); });
}

constexpr const char *mllama_11b = R"({"model_type":"mllama","text_config":{
    "model_type":"mllama_text_model","num_hidden_layers":40,
    "cross_attention_layers":[3,8,13,18,23,28,33,38],"hidden_size":4096,
    "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,
    "intermediate_size":14336,"max_position_embeddings":131072,
    "tie_word_embeddings":false},"vision_config":{
    "model_type":"mllama_vision_model","num_hidden_layers":32,
    "num_global_layers":8,"hidden_size":1280,"attention_heads":16,
    "intermediate_size":5120,"image_size":560,"patch_size":14,
    "max_num_tiles":4,"vision_output_dim":7680,"supported_aspect_ratios":
    [[1,1],[1,2],[1,3],[1,4],[2,1],[2,2],[3,1],[4,1]]}})";

struct known
{
    const char *name;
    const char *config;
    double parameters;
};

class config : public testing::TestWithParam<known>
{};

TEST_P(config, gives_the_published_number_of_parameters)
{
    EXPECT_EQ(read(GetParam().config).counted.all, GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    architectures, config,
    testing::Values(
        known{"gpt2", R"({"model_type":"gpt2","n_layer":12,"n_embd":768,
            "n_head":12,"n_positions":1024,"vocab_size":50257})",
              124439808},
        known{"llama", R"({"model_type":"llama","num_hidden_layers":32,
            "hidden_size":4096,"num_attention_heads":32,
            "num_key_value_heads":8,"intermediate_size":14336,
            "vocab_size":128256,"tie_word_embeddings":false})",
              8030261248},
        known{"mistral", R"({"model_type":"mistral","num_hidden_layers":32,
            "hidden_size":4096,"num_attention_heads":32,
            "num_key_value_heads":8,"intermediate_size":14336,
            "vocab_size":32000,"sliding_window":4096})",
              7241732096},
        known{"mixtral", R"({"model_type":"mixtral","num_hidden_layers":32,
            "hidden_size":4096,"num_attention_heads":32,
            "num_key_value_heads":8,"intermediate_size":14336,
            "vocab_size":32000,"sliding_window":null,"num_local_experts":8,
            "num_experts_per_tok":2})",
              46702792704},
        known{"qwen2", R"({"model_type":"qwen2","num_hidden_layers":28,
            "hidden_size":3584,"num_attention_heads":28,
            "num_key_value_heads":4,"intermediate_size":18944,
            "vocab_size":152064,"sliding_window":131072,
            "use_sliding_window":false})",
              7615616512},
        known{"qwen2_tied", R"({"model_type":"qwen2","num_hidden_layers":24,
            "hidden_size":896,"num_attention_heads":14,
            "num_key_value_heads":2,"intermediate_size":4864,
            "vocab_size":151936,"tie_word_embeddings":true})",
              494032768},
        known{"qwen3", R"({"model_type":"qwen3","num_hidden_layers":36,
            "hidden_size":4096,"num_attention_heads":32,"head_dim":128,
            "num_key_value_heads":8,"intermediate_size":12288,
            "vocab_size":151936})",
              8190735360},
        known{"qwen3_moe", R"({"model_type":"qwen3_moe",
            "num_hidden_layers":48,"hidden_size":2048,
            "num_attention_heads":32,"head_dim":128,"num_key_value_heads":4,
            "intermediate_size":6144,"moe_intermediate_size":768,
            "num_experts":128,"num_experts_per_tok":8,"mlp_only_layers":[],
            "decoder_sparse_step":1,"vocab_size":151936})",
              30532122624},
        known{"gemma", R"({"model_type":"gemma","num_hidden_layers":28,
            "hidden_size":3072,"num_attention_heads":16,"head_dim":256,
            "num_key_value_heads":16,"intermediate_size":24576,
            "vocab_size":256000})",
              8537680896},
        known{"gemma2", R"({"model_type":"gemma2","num_hidden_layers":42,
            "hidden_size":3584,"num_attention_heads":16,"head_dim":256,
            "num_key_value_heads":8,"intermediate_size":14336,
            "vocab_size":256000,"sliding_window":4096})",
              9241705984},
        known{"phi3", R"({"model_type":"phi3","num_hidden_layers":32,
            "hidden_size":3072,"num_attention_heads":32,
            "num_key_value_heads":32,"intermediate_size":8192,
            "vocab_size":32064,"sliding_window":2047})",
              3821079552},
        known{"gpt_neox", R"({"model_type":"gpt_neox","num_hidden_layers":32,
            "hidden_size":4096,"num_attention_heads":32,
            "intermediate_size":16384,"vocab_size":50432})",
              6857302016},
        known{"deepseek_v2", R"({"model_type":"deepseek_v2",
            "num_hidden_layers":27,"hidden_size":2048,
            "num_attention_heads":16,"num_key_value_heads":16,
            "intermediate_size":10944,"moe_intermediate_size":1408,
            "n_routed_experts":64,"n_shared_experts":2,
            "num_experts_per_tok":6,"first_k_dense_replace":1,
            "moe_layer_freq":1,"kv_lora_rank":512,"q_lora_rank":null,
            "qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,
            "vocab_size":102400})",
              15706484224},
        known{"llava", R"({"model_type":"llava","text_config":{
            "model_type":"llama","vocab_size":32064},"vision_config":{
            "model_type":"clip_vision_model","hidden_size":1024,
            "intermediate_size":4096,"num_hidden_layers":24,
            "num_attention_heads":16,"image_size":336,"patch_size":14}})",
              7063427072},
        known{"qwen2_vl", R"({"model_type":"qwen2_vl","num_hidden_layers":28,
            "hidden_size":3584,"num_attention_heads":28,
            "num_key_value_heads":4,"intermediate_size":18944,
            "vocab_size":152064,"vision_config":{"depth":32,"embed_dim":1280,
            "num_heads":16,"mlp_ratio":4,"patch_size":14,
            "spatial_merge_size":2,"temporal_patch_size":2}})",
              8291375616},
        known{"mllama", mllama_11b, 10670220835},
        known{"vit", R"({"model_type":"vit","num_hidden_layers":12,
            "hidden_size":768,"num_attention_heads":12,
            "intermediate_size":3072,"image_size":224,"patch_size":16,
            "id2label":{"0":"a","1":"b"}})",
              85800194}),
    [](const auto &which) { return std::string(which.param.name); });

TEST(qwen2_vl, has_tokens_by_the_images_size)
{
    const model is = read(R"({"model_type":"qwen2_vl","num_hidden_layers":2,
        "hidden_size":64,"num_attention_heads":2,"intermediate_size":64,
        "vocab_size":100,"vision_config":{"depth":2,"embed_dim":64,
        "num_heads":2,"mlp_ratio":4,"patch_size":14,"spatial_merge_size":2}})");
    EXPECT_EQ(is.image_tokens(1280, 720), 46 * 26);
    EXPECT_EQ(is.image_tokens(28, 28), 1);
}

TEST(mllama, has_images_that_are_no_tokens_of_the_text)
{
    const model is = read(mllama_11b);
    EXPECT_EQ(is.image_tokens(0, 0), 4 * (40 * 40 + 1));
    EXPECT_EQ(is.tokens_in_text(0, 0), 0);
    job as;
    as.sequence = 1000;
    as.images = 0;
    EXPECT_EQ(tokens(is, as), 1000);
    const double blind = compute(is, as).cache.likely;
    EXPECT_EQ(blind, 32 * 2 * 1024 * 2 * 1000.0);
    as.images = 2;
    EXPECT_EQ(tokens(is, as), 1000);
    // Eight layers keep keys and values of each image.
    EXPECT_EQ(compute(is, as).cache.likely - blind,
              8 * 2 * 1024 * 2 * 2 * 6404.0);
}

TEST(mllama, takes_as_long_for_each_image)
{
    const model is = read(mllama_11b);
    machine on;
    on.tensor = 1e14;
    const auto computing = [&](double images) {
        job as;
        as.sequence = 1000;
        as.images = images;
        return whole_pass(is, as, compute(is, as), on, {}).compute;
    };
    const double first = computing(1) - computing(0);
    EXPECT_GT(first, 0);
    EXPECT_NEAR(computing(4) - computing(0), 4 * first, 1e-9);
}

TEST(mllama, without_its_layers_that_look_at_images_is_refused)
{
    for (const char *const layers : {"", R"(,"cross_attention_layers":[])",
                                     R"(,"cross_attention_layers":[1,1,1])"})
        EXPECT_THAT(
            why_not(std::string(R"({"model_type":"mllama","text_config":{
                "num_hidden_layers":2,"hidden_size":64,
                "num_attention_heads":2,"intermediate_size":64,
                "vocab_size":100)") +
                    layers + R"(},"vision_config":{}})"),
            HasSubstr("text_config.cross_attention_layers: is no list"));
}

TEST(config, of_an_unknown_architecture_is_refused_by_its_name)
{
    EXPECT_THAT(why_not(R"({"model_type":"rwkv"})"),
                AllOf(StartsWith("file: model_type: 'rwkv' is not known"),
                      HasSubstr("llama")));
    EXPECT_THAT(why_not(R"({"_class_name":"UNet2DConditionModel"})"),
                HasSubstr("'UNet2DConditionModel' is not known"));
    EXPECT_THAT(why_not(R"({"model_type":"llava","text_config":{},
        "vision_config":{"model_type":"siglip_vision_model"}})"),
                HasSubstr("vision_config.model_type: 'siglip_vision_model'"));
}

// transformers leaves out what is Mistral's own: 8 heads' keys, an MLP of
// 14336.
TEST(llava, with_mistrals_text_has_mistrals_own_shape)
{
    const std::string text =
        R"({"model_type":"llava","text_config":{"model_type":"mistral"},
        "vision_config":{"num_hidden_layers":2,"hidden_size":64,
        "num_attention_heads":2,"intermediate_size":64,"patch_size":14,
        "image_size":28}})";
    const model is = read_config(*as_file(text));
    EXPECT_EQ(is.text.kv_heads, 8U);
    EXPECT_EQ(is.text.intermediate, 14336U);
}

TEST(config, of_quantised_weights_says_that_it_counts_16_bits)
{
    const std::string shape = R"({"model_type":"llama","num_hidden_layers":2,
        "hidden_size":64,"num_attention_heads":2,"intermediate_size":64,
        "vocab_size":100)";
    EXPECT_TRUE(read_config(*as_file(shape + "}")).assumed.empty());
    EXPECT_THAT(
        read_config(*as_file(shape + R"(,"quantization_config":{}})")).assumed,
        testing::ElementsAre(HasSubstr("weights of 16 bits")));
}

TEST(config, that_is_none_is_refused_with_its_place)
{
    EXPECT_EQ(why_not(""), "file: byte 1: no JSON");
    EXPECT_EQ(why_not("{\"model_type\": \"llama\","), "file: byte 24: no JSON");
    EXPECT_EQ(why_not("[]"), "file: no JSON object");
    EXPECT_THAT(why_not("{}"), HasSubstr("model_type: is missing"));
    EXPECT_THAT(why_not(R"({"model_type":7})"),
                HasSubstr("model_type: is no text"));
    EXPECT_THAT(why_not(R"({"model_type":"llama"})"),
                HasSubstr("num_hidden_layers: is missing"));
}

TEST(config, with_impossible_figures_is_refused_by_the_members_name)
{
    const auto with = [](const char *layers, const char *heads) {
        return why_not(std::string(R"({"model_type":"llama",
            "num_hidden_layers":)") +
                       layers + R"(,"hidden_size":64,"num_attention_heads":)" +
                       heads + R"(,"intermediate_size":64,"vocab_size":100})");
    };
    EXPECT_EQ(with("2", "2"), "");
    for (const char *const bad :
         {"-1", "0", "1.5", "1e99", "99999999999999999999999", "\"2\"", "[[2]]",
          "true"})
        EXPECT_THAT(with(bad, "2"), HasSubstr("num_hidden_layers: ")) << bad;
    EXPECT_THAT(with("2", "65"), HasSubstr("num_attention_heads: "));
}

TEST(config, that_nests_deep_is_refused)
{
    const std::string deep = "{\"a\":" + std::string(100000, '[');
    EXPECT_THAT(why_not(deep), HasSubstr("nest more than 32 deep"));
    std::string objects;
    for (int i = 0; i < 100000; i++)
        objects += "{\"a\":";
    EXPECT_THAT(why_not(objects), HasSubstr("nest more than 32 deep"));
}

TEST(config, that_is_huge_is_not_read)
{
    EXPECT_THAT(why_not(std::string(5U << 20U, ' ')),
                HasSubstr("bytes are too many"));
}

} // namespace
TEST(config, of_gpt2_tells_dropout_and_the_activation)
{
    const auto text = [](const std::string &more) {
        return read(R"({"model_type":"gpt2","n_layer":12,"n_embd":768,
            "n_head":12,"n_positions":1024,"vocab_size":256)" +
                    more + "}")
            .text;
    };
    EXPECT_TRUE(text("").dropout);
    EXPECT_TRUE(text("").composed_activation);
    const std::string none =
        R"(,"resid_pdrop":0,"attn_pdrop":0.0,"embd_pdrop":0)";
    EXPECT_FALSE(text(none).dropout);
    EXPECT_TRUE(text(none + R"(,"resid_pdrop":0.1)").dropout);
    EXPECT_FALSE(text(R"(,"activation_function":"gelu")").composed_activation);
    EXPECT_TRUE(
        text(R"(,"activation_function":"gelu_new")").composed_activation);
    EXPECT_THROW(text(R"(,"resid_pdrop":"none")"), unreadable);
    EXPECT_THROW(text(R"(,"attn_pdrop":1)"), unreadable);
}

} // namespace emuv::estimate

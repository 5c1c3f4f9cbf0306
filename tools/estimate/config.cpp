// SPDX-License-Identifier: GPL-2.0-or-later
// Reads Hugging Face's config.json, for architectures that it knows.
#include "json_text.hpp"
#include "model.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace emuv::estimate {

namespace {

constexpr std::uint64_t most_text = 4U << 20U;
constexpr std::uint64_t most_heads = 1U << 16U;
constexpr std::uint64_t most_experts = 1U << 14U;
constexpr std::uint64_t most_pixels = 1U << 16U;

double d(std::uint64_t value)
{
    return static_cast<double>(value);
}

// The members that most decoders have.
transformer decoder(const members &from)
{
    transformer is;
    is.layers = from.number("num_hidden_layers", 1, most_layers);
    is.hidden = from.number("hidden_size", 1, most_width);
    is.heads = from.number("num_attention_heads", 1, most_heads);
    is.kv_heads = from.number_or("num_key_value_heads", is.heads, most_heads);
    is.head_width =
        from.number_or("head_dim", is.hidden / is.heads, most_width);
    is.intermediate = from.number("intermediate_size", 1, most_width);
    is.vocabulary = from.number("vocab_size", 1, most_vocabulary);
    is.longest = from.number_or("max_position_embeddings", 0, most_tokens);
    is.tied = from.flag_or("tie_word_embeddings", false);
    if (is.head_width == 0)
        from.refuse("num_attention_heads", "is more than hidden_size");
    if (is.kv_heads == 0 || is.kv_heads > is.heads)
        from.refuse("num_key_value_heads",
                    "is not within 1 and num_attention_heads");
    return is;
}

// A window in all layers, unless @p every: in one of so many not.
void slide(transformer &is, const members &from, std::uint64_t every)
{
    is.window = from.number_or("sliding_window", 0, most_tokens);
    if (is.window == 0 || !from.flag_or("use_sliding_window", true)) {
        is.window = 0;
        return;
    }
    is.windowed_layers = every == 0 ? is.layers : is.layers - is.layers / every;
}

transformer llama(const members &from)
{
    transformer is = decoder(from);
    is.biases = false;
    is.qkv_bias = from.flag_or("attention_bias", false);
    if (from.flag_or("mlp_bias", false))
        from.refuse("mlp_bias", "is not known");
    return is;
}

transformer mistral(const members &from)
{
    transformer is = decoder(from);
    slide(is, from, 0);
    return is;
}

transformer mixtral(const members &from)
{
    transformer is = mistral(from);
    mixture by;
    by.experts = from.number("num_local_experts", 1, most_experts);
    by.used = from.number("num_experts_per_tok", 1, by.experts);
    by.intermediate = is.intermediate;
    is.experts = by;
    return is;
}

transformer qwen2(const members &from)
{
    transformer is = decoder(from);
    is.qkv_bias = true;
    if (from.flag_or("use_sliding_window", false)) {
        slide(is, from, 0);
        const auto full = from.number_or("max_window_layers", 0, is.layers);
        is.windowed_layers = is.layers - full;
    }
    return is;
}

transformer qwen3(const members &from)
{
    transformer is = decoder(from);
    is.qk_norm = true;
    is.qkv_bias = from.flag_or("attention_bias", false);
    if (from.flag_or("use_sliding_window", false))
        slide(is, from, 0);
    return is;
}

transformer qwen3_moe(const members &from)
{
    transformer is = qwen3(from);
    const auto *const without = from.find("mlp_only_layers");
    if (without != nullptr && (!without->is_array() || !without->empty()))
        from.refuse("mlp_only_layers", "is not known");
    if (from.number_or("decoder_sparse_step", 1, most_layers) != 1)
        from.refuse("decoder_sparse_step", "is known as 1 only");
    mixture by;
    by.experts = from.number("num_experts", 1, most_experts);
    by.used = from.number("num_experts_per_tok", 1, by.experts);
    by.intermediate = from.number("moe_intermediate_size", 1, most_width);
    is.experts = by;
    return is;
}

transformer gemma(const members &from)
{
    transformer is = decoder(from);
    is.tied = from.flag_or("tie_word_embeddings", true);
    return is;
}

transformer gemma2(const members &from)
{
    transformer is = gemma(from);
    is.norms = 4;
    slide(is, from, 2);
    return is;
}

transformer phi3(const members &from)
{
    transformer is = decoder(from);
    slide(is, from, 0);
    return is;
}

transformer gpt_neox(const members &from)
{
    transformer is = decoder(from);
    is.layer_norm = true;
    is.biases = true;
    is.gated = false;
    if (!from.flag_or("attention_bias", true))
        from.refuse("attention_bias", "is known as true only");
    return is;
}

// True unless the share of activations that is left out is said to be 0.
bool drops(const members &from, const char *key)
{
    const nlohmann::json *const found = from.find(key);
    if (found == nullptr || found->is_null())
        return true;
    if (!found->is_number() || *found < 0 || *found >= 1)
        from.refuse(key, "is at least 0 and below 1");
    return *found > 0;
}

transformer gpt2(const members &from)
{
    transformer is;
    is.layers = from.number("n_layer", 1, most_layers);
    is.hidden = from.number("n_embd", 1, most_width);
    is.heads = is.kv_heads = from.number("n_head", 1, is.hidden);
    is.head_width = is.hidden / is.heads;
    is.intermediate = from.number_or("n_inner", 4 * is.hidden, most_width);
    is.vocabulary = from.number("vocab_size", 1, most_vocabulary);
    const char *const key = from.has("n_positions") ? "n_positions" : "n_ctx";
    is.positions = is.longest = from.number(key, 1, most_tokens);
    is.tied = from.flag_or("tie_word_embeddings", true);
    is.layer_norm = is.biases = true;
    // The defaults of transformers' GPT2Config.
    for (const char *const which : {"resid_pdrop", "attn_pdrop", "embd_pdrop"})
        is.dropout = drops(from, which) || is.dropout;
    is.composed_activation =
        from.text_or("activation_function", "gelu_new") == "gelu_new";
    is.gated = false;
    return is;
}

transformer deepseek(const members &from, bool third)
{
    transformer is = decoder(from);
    latent_attention by;
    by.query_rank = from.number_or("q_lora_rank", 0, most_width);
    by.rank = from.number("kv_lora_rank", 1, most_width);
    by.rope = from.number("qk_rope_head_dim", 0, most_width);
    by.nope = from.number("qk_nope_head_dim", 1, most_width);
    by.value = from.number("v_head_dim", 1, most_width);
    is.latent = by;
    if (from.number_or("moe_layer_freq", 1, most_layers) != 1)
        from.refuse("moe_layer_freq", "is known as 1 only");
    if (!from.has("n_routed_experts"))
        return is;
    mixture picks;
    picks.experts = from.number("n_routed_experts", 1, most_experts);
    picks.used = from.number("num_experts_per_tok", 1, picks.experts);
    picks.shared = from.number_or("n_shared_experts", 0, most_experts);
    picks.intermediate = from.number("moe_intermediate_size", 1, most_width);
    picks.dense_layers =
        from.number_or("first_k_dense_replace", 0, most_layers);
    picks.router_bias = third;
    is.experts = picks;
    return is;
}

transformer deepseek2(const members &from)
{
    return deepseek(from, false);
}

transformer deepseek3(const members &from)
{
    return deepseek(from, true);
}

struct architecture
{
    std::string_view name; // model_type
    transformer (*read)(const members &);
};

constexpr std::array<architecture, 13> decoders = {{
    {"deepseek_v2", deepseek2},
    {"deepseek_v3", deepseek3},
    {"gemma", gemma},
    {"gemma2", gemma2},
    {"gpt2", gpt2},
    {"gpt_neox", gpt_neox},
    {"llama", llama},
    {"mistral", mistral},
    {"mixtral", mixtral},
    {"phi3", phi3},
    {"qwen2", qwen2},
    {"qwen3", qwen3},
    {"qwen3_moe", qwen3_moe},
}};

[[noreturn]] void unknown(const members &from, const char *key,
                          const std::string &kind)
{
    std::string known;
    for (const architecture &each : decoders)
        known.append(each.name).append(", ");
    from.refuse(key, fmt::format("'{}' is not known; known are {}llava, "
                                 "mllama, qwen2_vl, vit",
                                 kind, known));
}

transformer read_decoder(const members &from, const std::string &kind)
{
    for (const architecture &each : decoders)
        if (each.name == kind)
            return each.read(from);
    unknown(from, "model_type", kind);
}

// The layers of CLIP's and ViT's configurations.
transformer seeing(const members &from)
{
    transformer is;
    is.layers = from.number("num_hidden_layers", 1, most_layers);
    is.hidden = from.number("hidden_size", 1, most_width);
    is.heads = is.kv_heads = from.number("num_attention_heads", 1, is.hidden);
    is.head_width = is.hidden / is.heads;
    is.intermediate = from.number("intermediate_size", 1, most_width);
    is.layer_norm = is.biases = true;
    is.gated = false;
    return is;
}

struct patches
{
    std::uint64_t image;
    std::uint64_t edge;

    [[nodiscard]] double count() const
    {
        return d(image / edge) * d(image / edge);
    }
};

patches read_patches(const members &from)
{
    patches out{};
    out.edge = from.number("patch_size", 1, most_pixels);
    out.image = from.number("image_size", out.edge, most_pixels);
    return out;
}

// transformers writes only members that differ from Llama's or Mistral's own.
nlohmann::json with_own(const members &from, bool mistral)
{
    nlohmann::json all = {
        {"num_hidden_layers", 32U},   {"hidden_size", 4096U},
        {"num_attention_heads", 32U}, {"intermediate_size", 11008U},
        {"vocab_size", 32000U},       {"max_position_embeddings", 2048U}};
    if (mistral) {
        all["num_key_value_heads"] = 8U;
        all["intermediate_size"] = 14336U;
        all["max_position_embeddings"] = 131072U;
        all["sliding_window"] = 4096U;
    }
    for (const char *const key :
         {"num_hidden_layers", "hidden_size", "num_attention_heads",
          "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
          "max_position_embeddings", "tie_word_embeddings", "attention_bias",
          "mlp_bias", "sliding_window"})
        if (from.mentions(key)) // null, too
            all[key] =
                from.find(key) != nullptr ? *from.find(key) : nlohmann::json();
    return all;
}

void read_llava(const members &from, const std::string &file, model &out)
{
    const members text = from.object("text_config");
    const std::string kind = text.text_or("model_type", "llama");
    const nlohmann::json whole = with_own(text, kind == "mistral");
    out.text = kind == "llama" || kind == "mistral"
                   ? read_decoder({file, whole, "text_config."}, kind)
                   : read_decoder(text, kind);
    const members sees = from.object("vision_config");
    const std::string sees_by = sees.text_or("model_type", "clip_vision_model");
    if (sees_by != "clip_vision_model")
        sees.refuse("model_type", fmt::format("'{}' is not known; known is "
                                              "clip_vision_model",
                                              sees_by));
    vision eyes;
    eyes.layers = seeing(sees);
    const patches grid = read_patches(sees);
    eyes.image = grid.image;
    eyes.patch = grid.edge;
    const double h = d(eyes.layers.hidden);
    const double to = d(out.text.hidden);
    // count() has the last norm; class, patches, positions, the first norm.
    eyes.parameters = count(eyes.layers).all + h +
                      3 * d(grid.edge * grid.edge) * h +
                      (grid.count() + 1) * h + 2 * h;
    eyes.parameters += h * to + to + to * to + to; // the projector
    out.eyes = eyes;
}

void read_qwen2_vl(const members &from, model &out)
{
    out.text = qwen2(from);
    const members sees = from.object("vision_config");
    vision eyes;
    transformer &is = eyes.layers;
    is.layers = sees.number("depth", 1, most_layers);
    is.hidden = sees.number("embed_dim", 1, most_width);
    is.heads = is.kv_heads = sees.number("num_heads", 1, is.hidden);
    is.head_width = is.hidden / is.heads;
    is.intermediate = is.hidden * sees.number_or("mlp_ratio", 4, 64);
    is.layer_norm = is.biases = true;
    is.gated = false;
    eyes.patch = sees.number("patch_size", 1, most_pixels);
    eyes.merge = sees.number_or("spatial_merge_size", 2, 64);
    if (eyes.merge == 0)
        sees.refuse("spatial_merge_size", "is 0");
    eyes.image = 1024 / (eyes.patch * eyes.merge) * eyes.patch * eyes.merge;
    eyes.image = std::max(eyes.image, eyes.patch * eyes.merge);
    eyes.any_size = true;
    const double h = d(is.hidden);
    const double merged = h * d(eyes.merge * eyes.merge);
    const double to = d(out.text.hidden);
    const double frames = d(sees.number_or("temporal_patch_size", 2, 64));
    // The merger has a norm of its own, which count() counts as the last.
    eyes.parameters = count(is).all +
                      3 * frames * d(eyes.patch * eyes.patch) * h +
                      merged * merged + merged + merged * to + to;
    out.eyes = eyes;
}

// Llama 3.2 Vision: some layers of text look at images, and not at text. An
// image is cut into tiles, as many for each: fewer are filled up.
void read_mllama(const members &from, model &out)
{
    const members text = from.object("text_config");
    out.text = decoder(text);
    const auto *const crossing = text.find("cross_attention_layers");
    if (crossing == nullptr || !crossing->is_array() || crossing->empty() ||
        crossing->size() > out.text.layers)
        text.refuse("cross_attention_layers", "is no list of layers");
    out.text.crossing_layers = crossing->size();
    const members sees = from.object("vision_config");
    vision eyes;
    transformer &is = eyes.layers;
    is.layers = sees.number("num_hidden_layers", 1, most_layers);
    const auto global = sees.number("num_global_layers", 0, most_layers);
    is.layers += global;
    is.hidden = sees.number("hidden_size", 1, most_width);
    is.heads = is.kv_heads = sees.number("attention_heads", 1, is.hidden);
    is.head_width = is.hidden / is.heads;
    is.intermediate = sees.number("intermediate_size", 1, most_width);
    is.layer_norm = true;
    is.gated = false;
    const patches grid = read_patches(sees);
    eyes.image = grid.image;
    eyes.patch = grid.edge;
    eyes.tiles = sees.number("max_num_tiles", 1, 1024);
    eyes.given = sees.number("vision_output_dim", 1, most_width);
    const auto *const shapes = sees.find("supported_aspect_ratios");
    if (shapes == nullptr || !shapes->is_array())
        sees.refuse("supported_aspect_ratios", "is no list");
    const double h = d(is.hidden);
    const double tiles = d(eyes.tiles);
    const double seen = grid.count() + 1;
    const double ratios = d(shapes->size()) + 1;
    const double to = d(out.text.hidden);
    // MLPs alone have biases. count() has the last norm.
    eyes.parameters = count(is).all + d(is.layers) * (d(is.intermediate) + h) +
                      2 * d(global) + 2 * h;
    // Patches, their class, their places, and those of tiles, before and after
    // the layers; each with a gate.
    eyes.parameters += 3 * d(grid.edge * grid.edge) * h + h + seen * h + 1 +
                       ratios * tiles * seen * h + 2 * (ratios * tiles * h + 1);
    eyes.parameters += d(eyes.given) * to + to; // the projector
    // Eight tokens for images are embedded, and never written.
    eyes.parameters += 8 * to;
    out.eyes = eyes;
}

void read_vit(const members &from, model &out)
{
    out.text = seeing(from);
    const patches grid = read_patches(from);
    out.text.longest = static_cast<std::uint64_t>(grid.count()) + 1;
    const double h = d(out.text.hidden);
    std::uint64_t classes = 2;
    if (const auto *const labels = from.find("id2label"))
        classes = labels->size();
    out.counted = count(out.text);
    const double more = h + (grid.count() + 1) * h +
                        (3 * d(grid.edge * grid.edge) + 1) * h +
                        d(classes) * h + d(classes);
    out.counted.all += more;
    out.counted.active += more;
}

} // namespace

model read_config(input &from)
{
    const nlohmann::json all =
        parse_json(from.name(), read_text(from, most_text));
    const members top(from.name(), all);
    model out;
    out.kind = top.text_or("model_type", "");
    out.name = top.text_or("_name_or_path", "");
    if (out.kind.empty()) {
        const std::string diffuser = top.text_or("_class_name", "");
        if (!diffuser.empty())
            unknown(top, "_class_name", diffuser);
        top.refuse("model_type", "is missing: no config.json of a model");
    }
    if (out.name.empty() || out.name.size() > 100)
        out.name = out.kind;
    if (top.has("quantization_config"))
        out.assumed.emplace_back(
            "weights of 16 bits, though config.json says that they are "
            "quantised: see --dtype, or name the model's folder");
    if (out.kind == "vit") {
        read_vit(top, out);
        return out;
    }
    if (out.kind == "llava")
        read_llava(top, from.name(), out);
    else if (out.kind == "mllama")
        read_mllama(top, out);
    else if (out.kind == "qwen2_vl")
        read_qwen2_vl(top, out);
    else
        out.text = read_decoder(top, out.kind);
    out.counted = count(out.text);
    if (out.eyes) {
        out.counted.all += out.eyes->parameters;
        // A token of a text that images are no tokens of goes past the eyes.
        if (out.text.crossing_layers == 0)
            out.counted.active += out.eyes->parameters;
    }
    return out;
}

} // namespace emuv::estimate

// SPDX-License-Identifier: GPL-2.0-or-later
// A model as its makers publish it: its shape and the parameters that follow.
#pragma once

#include "range.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emuv::estimate {

class input;

/// Keys and values as one narrow vector for all heads (DeepSeek-V2, section
/// 2.1, arXiv 2405.04434). Widths in elements.
struct latent_attention
{
    std::uint64_t query_rank = 0; ///< 0: queries are projected at once
    std::uint64_t rank = 0;       ///< kv_lora_rank
    std::uint64_t rope = 0;       ///< of a head's query, with its position
    std::uint64_t nope = 0;       ///< of a head's query, without
    std::uint64_t value = 0;      ///< of a head's value
    bool stays_narrow = false;    ///< in the cache of who likely runs it
};

/// Experts of which a router picks some for each token.
struct mixture
{
    std::uint64_t experts = 0;
    std::uint64_t used = 0;         ///< by a token
    std::uint64_t intermediate = 0; ///< of one expert
    std::uint64_t shared = 0;       ///< experts that each token uses
    std::uint64_t dense_layers = 0; ///< the first ones, which have none
    bool router_bias = false;
};

/// A stack of equal layers of attention and MLP. Widths are in elements.
struct transformer
{
    std::uint64_t layers = 0;
    std::uint64_t hidden = 0;
    std::uint64_t heads = 0;
    std::uint64_t kv_heads = 0; ///< fewer than heads: grouped-query
    std::uint64_t head_width = 0;
    std::uint64_t intermediate = 0;
    std::uint64_t vocabulary = 0; ///< 0: it takes no tokens
    std::uint64_t positions = 0;  ///< that are learned; 0: rotary
    std::uint64_t longest = 0;    ///< sequence it is made for; 0: not known
    std::uint64_t norms = 2;      ///< of a layer
    bool tied = false;            ///< the head is the embedding
    bool gated = true;            ///< three matrices in an MLP, not two
    bool layer_norm = false;      ///< with a bias; else RMSNorm
    bool biases = false;          ///< of all linear layers
    bool qkv_bias = false;        ///< of these alone
    bool qk_norm = false;
    bool dropout = false; ///< trained with it, as GPT-2 is
    /// The activation is made of several kernels, and each keeps what it was
    /// given: GPT-2's GELU in transformers ("gelu_new").
    bool composed_activation = false;
    std::uint64_t window = 0;          ///< of sliding attention, in tokens
    std::uint64_t windowed_layers = 0; ///< that have it
    std::uint64_t crossing_layers = 0; ///< that look at images, not at text
    std::optional<latent_attention> latent = {};
    std::optional<mixture> experts = {};

    /// Width of all heads' queries.
    [[nodiscard]] double query_width() const;
    /// Width of all heads' keys and values, as attention uses them.
    [[nodiscard]] double kv_width() const;
    [[nodiscard]] bool is_there() const { return layers != 0; }
};

/// Parameters by what is done with them.
struct parameters
{
    double all = 0;
    double active = 0;  ///< that one token uses
    double linear = 0;  ///< in matrices of layers, which 4 bits quantise
    double largest = 0; ///< in the largest matrix
};

/// Counts them from the shape.
[[nodiscard]] parameters count(const transformer &of);

/// The part of a model that sees.
struct vision
{
    transformer layers;
    std::uint64_t image = 0; ///< edge in pixels, as it is made for
    std::uint64_t patch = 0; ///< edge in pixels
    std::uint64_t merge = 1; ///< patches along an edge that make a token
    bool any_size = false;   ///< tokens go by the image's own size
    std::uint64_t tiles = 0; ///< of an image, each with a token of its own; 0:
                             ///< it is seen as a whole, without
    std::uint64_t given = 0; ///< width that a patch has for the projector; 0:
                             ///< the layers'
    double parameters = 0;   ///< with the projector
};

/// A network of convolutions. Its figures are for one image of `image` pixels
/// an edge, and grow with the area.
struct convolution
{
    std::uint64_t image = 0;
    range saved;           ///< elements that training keeps for the way back
    range passing;         ///< elements at the widest place, while inferring
    double operations = 0; ///< floating-point, of one pass forward
    std::uint64_t batch_factor = 1; ///< passes that one image takes at once
};

/// A model. One of text, eyes alone, or convolutions says what it computes.
struct model
{
    std::string name;
    std::string kind; ///< "llama", "resnet"
    estimate::parameters counted;
    transformer text;                    ///< or any sequence of tokens
    std::optional<vision> eyes = {};     ///< what images become tokens by
    std::optional<convolution> net = {}; ///< in place of text
    double frozen = 0; ///< parameters beside, never trained: text encoders
    double stored = 0; ///< bytes of weights in the file; 0: by the dtype
    std::string stored_as = {};            ///< "Q4_K", "BF16"
    std::vector<std::string> assumed = {}; ///< what the source leaves open

    /// Tokens of one image. Edges in pixels, 0: the model's own.
    [[nodiscard]] double image_tokens(std::uint64_t width,
                                      std::uint64_t height) const;

    /// Those that stand among a text's tokens. None do where layers of their
    /// own look at them.
    [[nodiscard]] double tokens_in_text(std::uint64_t width,
                                        std::uint64_t height) const
    {
        return text.crossing_layers != 0 ? 0 : image_tokens(width, height);
    }
};

// Limits on figures of any source.
inline constexpr std::uint64_t most_layers = 4096;
inline constexpr std::uint64_t most_width = 1U << 22U;
inline constexpr std::uint64_t most_vocabulary = 1U << 26U;
inline constexpr std::uint64_t most_tokens = 1U << 30U;

/// The names of the built-in models.
[[nodiscard]] std::vector<std::string_view> builtin_names();
/// A built-in model. Case, blanks and hyphens do not matter.
[[nodiscard]] std::optional<model> find_builtin(std::string_view name);

/// A transformer of so many parameters, of which little else is known.
/// @param layers, hidden  0: such as models of that size have
[[nodiscard]] model from_size(double parameters, std::uint64_t layers,
                              std::uint64_t hidden);

/// Reads Hugging Face's config.json. @throws unreadable
[[nodiscard]] model read_config(input &from);
/// Reads the header of a safetensors file. @throws unreadable
/// @param config  of the model's config.json where there is one
[[nodiscard]] model read_safetensors(input &from, const model *config);
/// Reads the header of a GGUF file. @throws unreadable
[[nodiscard]] model read_gguf(input &from);

/// Reads any of these files, told apart by their content. They are config.json,
/// safetensors, its index, GGUF, or a folder that holds one. The
/// files that an index names, and the config.json beside, are read too.
/// @throws unreadable
[[nodiscard]] model read_model(const std::filesystem::path &path);

} // namespace emuv::estimate

// SPDX-License-Identifier: GPL-2.0-or-later
// The built-in models, in figures that their makers published.
#include "model.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace emuv::estimate {

namespace {

double d(std::uint64_t value)
{
    return static_cast<double>(value);
}

transformer gpt2(std::uint64_t layers, std::uint64_t hidden,
                 std::uint64_t heads)
{
    transformer is;
    is.layers = layers;
    is.hidden = hidden;
    is.heads = is.kv_heads = heads;
    is.head_width = hidden / heads;
    is.intermediate = 4 * hidden;
    is.vocabulary = 50257;
    is.positions = is.longest = 1024;
    is.tied = is.layer_norm = is.biases = is.dropout = true;
    is.composed_activation = true;
    is.gated = false;
    return is;
}

struct sizes
{
    std::uint64_t layers;
    std::uint64_t hidden;
    std::uint64_t heads;
    std::uint64_t kv_heads;
    std::uint64_t intermediate;
    std::uint64_t vocabulary;
    std::uint64_t longest;
};

transformer llama(const sizes &as)
{
    transformer is;
    is.layers = as.layers;
    is.hidden = as.hidden;
    is.heads = as.heads;
    is.kv_heads = as.kv_heads;
    is.head_width = as.hidden / as.heads;
    is.intermediate = as.intermediate;
    is.vocabulary = as.vocabulary;
    is.longest = as.longest;
    return is;
}

model of(const char *name, const char *kind, const transformer &text)
{
    model out;
    out.name = name;
    out.kind = kind;
    out.text = text;
    out.counted = count(text);
    return out;
}

// The layers of CLIP and ViT (arXiv 2103.00020, 2010.11929).
transformer seeing(std::uint64_t layers, std::uint64_t hidden)
{
    transformer is;
    is.layers = layers;
    is.hidden = hidden;
    is.heads = is.kv_heads = hidden / 64;
    is.head_width = 64;
    is.intermediate = 4 * hidden;
    is.layer_norm = is.biases = true;
    is.gated = false;
    return is;
}

// LLaVA-1.5: CLIP ViT-L/14 at 336 pixels, two layers that project, Vicuna with
// 64 more tokens (arXiv 2310.03744).
model llava(const char *name, const sizes &as)
{
    model out = of(name, "llava", llama(as));
    vision eyes;
    eyes.layers = seeing(24, 1024);
    eyes.image = 336;
    eyes.patch = 14;
    const double h = d(as.hidden);
    eyes.parameters = 303507456 + 1024 * h + h + h * h + h;
    out.eyes = eyes;
    out.counted.all += eyes.parameters;
    out.counted.active += eyes.parameters;
    return out;
}

// ViT-L/16 at 224 pixels with its head for 1000 classes: 196 patches and one
// token for the class.
model vit()
{
    model out;
    out.name = "ViT-L/16";
    out.kind = "vit";
    transformer is = seeing(24, 1024);
    is.longest = 197;
    out.text = is;
    out.counted = count(is);
    // count() has the last norm. Class, positions, patches, head:
    const double more =
        1024 + 197 * 1024 + (3 * 16 * 16 + 1) * 1024 + 1000 * 1024 + 1000;
    out.counted.all += more;
    out.counted.active += more;
    return out;
}

// ResNet-50 (arXiv 1512.03385), the stride in the 3x3 convolution as in
// torchvision. Training keeps what each convolution and each normalisation
// wrote, and what the pooling did.
model resnet50()
{
    double outputs = 112.0 * 112 * 64;
    double operations = 2 * outputs * 3 * 49;
    double edge = 56;
    double in = 64;
    const std::array<int, 4> blocks = {3, 4, 6, 3};
    for (std::size_t stage = 0; stage < blocks.size(); stage++) {
        const double width = 64.0 * static_cast<double>(1U << stage);
        for (int i = 0; i < blocks[stage]; i++) {
            const bool halves = i == 0 && stage != 0;
            const double before = edge * edge;
            if (halves)
                edge /= 2;
            const double area = edge * edge;
            outputs += before * width + area * width + area * 4 * width;
            operations += 2 * (before * width * in + area * width * 9 * width +
                               area * 4 * width * width);
            if (i == 0) {
                outputs += area * 4 * width;
                operations += 2 * area * 4 * width * in;
            }
            in = 4 * width;
        }
    }
    model out;
    out.name = "ResNet-50";
    out.kind = "resnet";
    out.counted = {25557032, 25557032, 25557032, 2359296};
    convolution net;
    net.image = 224;
    // Pooling: its output and the places of the maxima, 8 bytes each.
    const double pooled = 56.0 * 56 * 64;
    net.saved = {1.9 * outputs, 2 * outputs + 3 * pooled,
                 2.3 * outputs + 5 * pooled};
    const double widest = 112.0 * 112 * 64;
    net.passing = {2 * widest, 2.5 * widest, 4 * widest};
    net.operations = operations;
    out.net = net;
    return out;
}

// A level of a diffusion model's U: its convolutional blocks, and the
// transformer blocks behind them, going down and up.
struct level
{
    double edge;
    double channels;
    double blocks;
    double transformers;
};

// A block keeps its two normalisations' and convolutions' inputs, and the
// transformer block its norms, its two attentions and 12 widths of its gated
// MLP. The skip connections make the blocks on the way up wider. That is a
// count of tensors, so the range is wide.
convolution diffusion(std::uint64_t image, std::initializer_list<level> levels)
{
    convolution net;
    net.image = image;
    double elements = 0;
    double widest = 0;
    for (const level &each : levels) {
        const double one = each.edge * each.edge * each.channels;
        elements += one * (8 * each.blocks + 33 * each.transformers);
        widest = std::max(widest, one);
    }
    net.saved = {0.7 * elements, elements, 1.8 * elements};
    net.passing = {10 * widest, 20 * widest, 60 * widest};
    return net;
}

// U-Net of Stable Diffusion 1.5; beside it CLIP's text encoder and the VAE.
model sd15()
{
    model out;
    out.name = "Stable Diffusion 1.5";
    out.kind = "unet";
    out.counted = {859520964, 859520964, 859520964, 2560 * 1280 * 9};
    out.frozen = 123060480 + 83653863;
    convolution net = diffusion(
        512,
        {{64, 320, 5, 5}, {32, 640, 5, 5}, {16, 1280, 5, 5}, {8, 1280, 7, 1}});
    net.operations = 0.68e12; // 339 billion multiply-adds
    net.batch_factor = 2;     // with and without the prompt
    out.net = net;
    return out;
}

// U-Net of SDXL; beside it two text encoders and the VAE (arXiv 2307.01952).
model sdxl()
{
    model out;
    out.name = "SDXL";
    out.kind = "unet";
    out.counted = {2567463684, 2567463684, 2567463684, 2560 * 1280 * 9};
    out.frozen = 123060480 + 694659840 + 83653863;
    convolution net = diffusion(
        1024, {{128, 320, 5, 0}, {64, 640, 5, 10}, {32, 1280, 7, 60}});
    net.operations = 5.98e12; // 2.99 trillion multiply-adds
    net.batch_factor = 2;
    out.net = net;
    return out;
}

model mixtral()
{
    transformer is = llama({32, 4096, 32, 8, 14336, 32000, 32768});
    is.experts = mixture{};
    is.experts->experts = 8;
    is.experts->used = 2;
    is.experts->intermediate = 14336;
    return of("Mixtral 8x7B", "mixtral", is);
}

constexpr std::array<std::string_view, 18> names = {
    "gpt2",         "gpt2-medium",  "gpt2-large",
    "gpt2-xl",      "llama-2-7b",   "llama-2-13b",
    "llama-2-70b",  "llama-3-8b",   "llama-3-70b",
    "mixtral-8x7b", "llava-1.5-7b", "llava-1.5-13b",
    "sd-1.5",       "sdxl",         "resnet-50",
    "vit-l",        "gpt2-small",   "stable-diffusion-1.5"};

// Letters and digits alone, lower case.
std::string plain(std::string_view name)
{
    std::string out;
    for (const char c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) != 0)
            out +=
                static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

model make(std::size_t which)
{
    switch (which) {
    case 0:
    case 16:
        return of("GPT-2", "gpt2", gpt2(12, 768, 12));
    case 1:
        return of("GPT-2 medium", "gpt2", gpt2(24, 1024, 16));
    case 2:
        return of("GPT-2 large", "gpt2", gpt2(36, 1280, 20));
    case 3:
        return of("GPT-2 XL", "gpt2", gpt2(48, 1600, 25));
    case 4:
        return of("Llama-2 7B", "llama",
                  llama({32, 4096, 32, 32, 11008, 32000, 4096}));
    case 5:
        return of("Llama-2 13B", "llama",
                  llama({40, 5120, 40, 40, 13824, 32000, 4096}));
    case 6:
        return of("Llama-2 70B", "llama",
                  llama({80, 8192, 64, 8, 28672, 32000, 4096}));
    case 7:
        return of("Llama-3 8B", "llama",
                  llama({32, 4096, 32, 8, 14336, 128256, 8192}));
    case 8:
        return of("Llama-3 70B", "llama",
                  llama({80, 8192, 64, 8, 28672, 128256, 8192}));
    case 9:
        return mixtral();
    case 10:
        return llava("LLaVA-1.5 7B", {32, 4096, 32, 32, 11008, 32064, 4096});
    case 11:
        return llava("LLaVA-1.5 13B", {40, 5120, 40, 40, 13824, 32064, 4096});
    case 12:
    case 17:
        return sd15();
    case 13:
        return sdxl();
    case 14:
        return resnet50();
    default:
        return vit();
    }
}

} // namespace

std::vector<std::string_view> builtin_names()
{
    // Without the second names.
    return {names.begin(), names.begin() + 16};
}

std::optional<model> find_builtin(std::string_view name)
{
    const std::string asked = plain(name);
    for (std::size_t i = 0; i < names.size(); i++)
        if (plain(names[i]) == asked)
            return make(i);
    return std::nullopt;
}

} // namespace emuv::estimate

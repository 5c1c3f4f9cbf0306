// SPDX-License-Identifier: LGPL-2.1-or-later
// The table of GPU models, and how names are looked up in it.
//
// Memory, bandwidth, PCIe generation and width are those of the reference card,
// from NVIDIA's product pages, data sheets and architecture whitepapers:
// Turing, Ampere GA102 and A100, Ada, Hopper, Blackwell. A width is the card's
// own wiring, not its slot's. The PCI device ids are those under vendor 10de in
// the PCI ID database (https://pci-ids.ucw.cz). If that does not name a model's
// id, the model has none here.
#include <emuv/gpu_model.hpp>

#include <algorithm>
#include <array>
#include <cctype>

namespace emuv {

namespace {

constexpr std::uint64_t gib = 1ULL << 30;

// A constant span over ids that live as long as the program.
template <std::uint16_t... Id>
constexpr std::array<std::uint16_t, sizeof...(Id)> id_storage{Id...};
template <std::uint16_t... Id>
constexpr std::span<const std::uint16_t> ids{id_storage<Id...>};

// clang-format off
constexpr gpu_model table[] = {
    // name, variant, memory, GB/s, PCIe, lanes, PCI device ids
    // Volta
    {"NVIDIA Tesla V100", "PCIe 16GB", 16 * gib, 900, 3, 16, ids<0x1db4>},
    {"NVIDIA Tesla V100", "PCIe 32GB", 32 * gib, 900, 3, 16, ids<0x1db6>},
    {"NVIDIA Tesla V100", "SXM2 16GB", 16 * gib, 900, 3, 16, ids<0x1db1>},
    {"NVIDIA Tesla V100", "SXM2 32GB", 32 * gib, 900, 3, 16, ids<0x1db5>},

    // Turing
    {"NVIDIA GeForce RTX 2060", "6GB", 6 * gib, 336, 3, 16, ids<0x1e89, 0x1f08>},
    {"NVIDIA GeForce RTX 2060", "12GB", 12 * gib, 336, 3, 16, ids<0x1f03>},
    {"NVIDIA GeForce RTX 2060 SUPER", "", 8 * gib, 448, 3, 16, ids<0x1f06, 0x1f42, 0x1f47>},
    {"NVIDIA GeForce RTX 2070", "", 8 * gib, 448, 3, 16, ids<0x1f02, 0x1f07>},
    {"NVIDIA GeForce RTX 2070 SUPER", "", 8 * gib, 448, 3, 16, ids<0x1e84, 0x1ec2, 0x1ec7>},
    {"NVIDIA GeForce RTX 2080", "", 8 * gib, 448, 3, 16, ids<0x1e82, 0x1e87>},
    {"NVIDIA GeForce RTX 2080 SUPER", "", 8 * gib, 496, 3, 16, ids<0x1e81>},
    {"NVIDIA GeForce RTX 2080 Ti", "", 11 * gib, 616, 3, 16, ids<0x1e04, 0x1e07>},
    {"NVIDIA TITAN RTX", "", 24 * gib, 672, 3, 16, ids<0x1e02>},
    {"NVIDIA Quadro RTX 4000", "", 8 * gib, 416, 3, 16, ids<0x1eb1>},
    {"NVIDIA Quadro RTX 5000", "", 16 * gib, 448, 3, 16, ids<0x1eb0>},
    {"NVIDIA Quadro RTX 6000", "", 24 * gib, 672, 3, 16, ids<0x1e30, 0x1e36, 0x1e78>},
    {"NVIDIA Quadro RTX 8000", "", 48 * gib, 672, 3, 16, ids<0x1e30, 0x1e78>},
    {"NVIDIA Tesla T4", "", 16 * gib, 320, 3, 16, ids<0x1eb8>},

    // Ampere
    {"NVIDIA GeForce RTX 3050", "6GB", 6 * gib, 168, 4, 8, ids<0x2584>},
    {"NVIDIA GeForce RTX 3050", "8GB", 8 * gib, 224, 4, 8, ids<0x2507, 0x2582>},
    {"NVIDIA GeForce RTX 3060", "8GB", 8 * gib, 240, 4, 16, {}},
    {"NVIDIA GeForce RTX 3060", "12GB", 12 * gib, 360, 4, 16, ids<0x2487, 0x2503, 0x2504>},
    {"NVIDIA GeForce RTX 3060 Ti", "", 8 * gib, 448, 4, 16, ids<0x2414, 0x2486, 0x2489>},
    {"NVIDIA GeForce RTX 3070", "", 8 * gib, 448, 4, 16, ids<0x2484, 0x2488>},
    {"NVIDIA GeForce RTX 3070 Ti", "", 8 * gib, 608, 4, 16, ids<0x2482>},
    {"NVIDIA GeForce RTX 3080", "10GB", 10 * gib, 760, 4, 16, ids<0x2206, 0x2216>},
    {"NVIDIA GeForce RTX 3080", "12GB", 12 * gib, 912, 4, 16, ids<0x220a>},
    {"NVIDIA GeForce RTX 3080 Ti", "", 12 * gib, 912, 4, 16, ids<0x2208>},
    {"NVIDIA GeForce RTX 3090", "", 24 * gib, 936, 4, 16, ids<0x2204>},
    {"NVIDIA GeForce RTX 3090 Ti", "", 24 * gib, 1008, 4, 16, ids<0x2203>},
    {"NVIDIA RTX A2000", "6GB", 6 * gib, 288, 4, 16, ids<0x2531>},
    {"NVIDIA RTX A2000", "12GB", 12 * gib, 288, 4, 16, ids<0x2571>},
    {"NVIDIA RTX A4000", "", 16 * gib, 448, 4, 16, ids<0x24b0>},
    {"NVIDIA RTX A4500", "", 20 * gib, 640, 4, 16, ids<0x2232>},
    {"NVIDIA RTX A5000", "", 24 * gib, 768, 4, 16, ids<0x2231>},
    {"NVIDIA RTX A5500", "", 24 * gib, 768, 4, 16, ids<0x2233>},
    {"NVIDIA RTX A6000", "", 48 * gib, 768, 4, 16, ids<0x2230>},
    {"NVIDIA A2", "", 16 * gib, 200, 4, 8, ids<0x25b6>},
    {"NVIDIA A10", "", 24 * gib, 600, 4, 16, ids<0x2236>},
    {"NVIDIA A30", "", 24 * gib, 933, 4, 16, ids<0x20b7>},
    {"NVIDIA A40", "", 48 * gib, 696, 4, 16, ids<0x2235>},
    {"NVIDIA A100", "PCIe 40GB", 40 * gib, 1555, 4, 16, ids<0x20b1, 0x20f1>},
    {"NVIDIA A100", "PCIe 80GB", 80 * gib, 1935, 4, 16, ids<0x20b5>},
    {"NVIDIA A100", "SXM4 40GB", 40 * gib, 1555, 4, 16, ids<0x20b0>},
    {"NVIDIA A100", "SXM4 80GB", 80 * gib, 2039, 4, 16, ids<0x20b2>},

    // Ada
    {"NVIDIA GeForce RTX 4060", "", 8 * gib, 272, 4, 8, ids<0x2882>},
    {"NVIDIA GeForce RTX 4060 Ti", "8GB", 8 * gib, 288, 4, 8, ids<0x2803>},
    {"NVIDIA GeForce RTX 4060 Ti", "16GB", 16 * gib, 288, 4, 8, ids<0x2805>},
    {"NVIDIA GeForce RTX 4070", "", 12 * gib, 504, 4, 16, ids<0x2786>},
    {"NVIDIA GeForce RTX 4070 SUPER", "", 12 * gib, 504, 4, 16, ids<0x2783>},
    {"NVIDIA GeForce RTX 4070 Ti", "", 12 * gib, 504, 4, 16, ids<0x2782>},
    {"NVIDIA GeForce RTX 4070 Ti SUPER", "", 16 * gib, 672, 4, 16, ids<0x2705>},
    {"NVIDIA GeForce RTX 4080", "", 16 * gib, 717, 4, 16, ids<0x2704>},
    {"NVIDIA GeForce RTX 4080 SUPER", "", 16 * gib, 736, 4, 16, ids<0x2702>},
    {"NVIDIA GeForce RTX 4090", "", 24 * gib, 1008, 4, 16, ids<0x2684>},
    {"NVIDIA GeForce RTX 4090 D", "", 24 * gib, 1008, 4, 16, ids<0x2685>},
    {"NVIDIA GeForce RTX 4050 Laptop GPU", "", 6 * gib, 192, 4, 8, ids<0x28a1, 0x28e1>},
    {"NVIDIA GeForce RTX 4060 Laptop GPU", "", 8 * gib, 256, 4, 8, ids<0x28a0, 0x28e0>},
    {"NVIDIA GeForce RTX 4070 Laptop GPU", "", 8 * gib, 256, 4, 8, ids<0x2820, 0x2860>},
    {"NVIDIA GeForce RTX 4080 Laptop GPU", "", 12 * gib, 432, 4, 16, ids<0x27a0, 0x27e0>},
    {"NVIDIA GeForce RTX 4090 Laptop GPU", "", 16 * gib, 576, 4, 16, ids<0x2717, 0x2757>},
    {"NVIDIA RTX 2000 Ada Generation", "", 16 * gib, 224, 4, 8, ids<0x28b0>},
    {"NVIDIA RTX 4000 SFF Ada Generation", "", 20 * gib, 280, 4, 16, ids<0x27b0>},
    {"NVIDIA RTX 4000 Ada Generation", "", 20 * gib, 360, 4, 16, ids<0x27b2>},
    {"NVIDIA RTX 4500 Ada Generation", "", 24 * gib, 432, 4, 16, ids<0x27b1>},
    {"NVIDIA RTX 5000 Ada Generation", "", 32 * gib, 576, 4, 16, ids<0x26b2>},
    {"NVIDIA RTX 6000 Ada Generation", "", 48 * gib, 960, 4, 16, ids<0x26b1>},
    {"NVIDIA L4", "", 24 * gib, 300, 4, 16, ids<0x27b8>},
    {"NVIDIA L40", "", 48 * gib, 864, 4, 16, ids<0x26b5>},
    {"NVIDIA L40S", "", 48 * gib, 864, 4, 16, ids<0x26b9>},

    // Hopper
    {"NVIDIA H100", "PCIe 80GB", 80 * gib, 2000, 5, 16, ids<0x2331>},
    {"NVIDIA H100", "SXM5 80GB HBM3", 80 * gib, 3350, 5, 16, ids<0x2330>},
    {"NVIDIA H100", "NVL 94GB", 94 * gib, 3938, 5, 16, ids<0x2321>},
    {"NVIDIA H200", "SXM 141GB", 141 * gib, 4800, 5, 16, ids<0x2335>},
    {"NVIDIA H200", "NVL 141GB", 141 * gib, 4800, 5, 16, ids<0x233b>},

    // Blackwell
    {"NVIDIA GeForce RTX 5050", "", 8 * gib, 320, 5, 8, ids<0x2d83>},
    {"NVIDIA GeForce RTX 5060", "", 8 * gib, 448, 5, 8, ids<0x2d05>},
    {"NVIDIA GeForce RTX 5060 Ti", "8GB", 8 * gib, 448, 5, 8, ids<0x2d04>},
    {"NVIDIA GeForce RTX 5060 Ti", "16GB", 16 * gib, 448, 5, 8, ids<0x2d04>},
    {"NVIDIA GeForce RTX 5070", "", 12 * gib, 672, 5, 16, ids<0x2f04>},
    {"NVIDIA GeForce RTX 5070 Ti", "", 16 * gib, 896, 5, 16, ids<0x2c05>},
    {"NVIDIA GeForce RTX 5080", "", 16 * gib, 960, 5, 16, ids<0x2c02>},
    {"NVIDIA GeForce RTX 5090", "", 32 * gib, 1792, 5, 16, ids<0x2b85>},
    {"NVIDIA GeForce RTX 5090 D", "", 32 * gib, 1792, 5, 16, ids<0x2b87>},
    {"NVIDIA GeForce RTX 5080 Laptop GPU", "", 16 * gib, 896, 5, 16, ids<0x2c19, 0x2c59>},
    {"NVIDIA GeForce RTX 5090 Laptop GPU", "", 24 * gib, 896, 5, 16, ids<0x2c18, 0x2c58>},
    {"NVIDIA RTX PRO 4000 Blackwell", "", 24 * gib, 672, 5, 16, ids<0x2c34>},
    {"NVIDIA RTX PRO 4500 Blackwell", "", 32 * gib, 896, 5, 16, ids<0x2c31>},
    {"NVIDIA RTX PRO 5000 Blackwell", "", 48 * gib, 1344, 5, 16, ids<0x2bb3>},
    {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "", 96 * gib, 1792, 5, 16, ids<0x2bb1>},
    {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "", 96 * gib, 1792, 5, 16, ids<0x2bb4>},
    {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "", 96 * gib, 1597, 5, 16, ids<0x2bb5>},
    {"NVIDIA B200", "", 180 * gib, 8000, 5, 16, ids<0x2901>},
};
// clang-format on

// The words of a name that people leave out.
bool may_be_left_out(std::string_view word)
{
    static constexpr std::array<std::string_view, 11> words = {
        "nvidia", "geforce", "quadro",      "tesla",     "rtx",       "gpu",
        "ada",    "edition", "workstation", "blackwell", "generation"};
    return std::find(words.begin(), words.end(), word) != words.end();
}

using word_list = std::vector<std::string>;

// A name as lower-case words, split wherever letters, digits and other
// characters meet, so that "4070Ti", "4070 ti" and "4070-TI" are the same.
word_list split(std::string_view name)
{
    word_list words;
    char previous = ' ';
    const auto kind = [](char c) {
        const auto u = static_cast<unsigned char>(c);
        return std::isdigit(u) != 0 ? 2 : std::isalpha(u) != 0 ? 1 : 0;
    };
    for (const char c : name) {
        if (kind(c) != 0) {
            if (kind(c) != kind(previous))
                words.emplace_back();
            words.back() +=
                static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        }
        previous = c;
    }
    std::replace(words.begin(), words.end(), std::string("mobile"),
                 std::string("laptop"));
    return words;
}

// Counts the words at @p begin of @p asked that say @p what. They are all its
// words, or its beginning ("40" and "40G" for "40GB", "SXM" for "SXM4"). 0:
// none.
std::size_t said(const word_list &asked, std::size_t begin,
                 std::string_view what)
{
    std::size_t n = 0;
    for (const auto &word : split(what)) {
        if (begin + n == asked.size())
            break;
        const auto &given = asked[begin + n];
        if (given != word && !(word == "gb" && given == "g"))
            break;
        n++;
    }
    return n;
}

// True if @p asked is the card's name and then some words of its variant, in
// any order. The name may lack the words that people leave out.
bool matches(const word_list &asked, const gpu_model &card)
{
    std::size_t next = 0;
    for (const auto &word : split(card.name)) {
        if (next < asked.size() && asked[next] == word)
            next++;
        else if (!may_be_left_out(word))
            return false;
    }
    if (next == 0)
        return false;

    std::vector<std::string_view> variant;
    for (std::string_view rest = card.variant; !rest.empty();) {
        const auto space = rest.find(' ');
        variant.push_back(rest.substr(0, space));
        rest.remove_prefix(std::min(rest.size(), variant.back().size() + 1));
    }
    while (next < asked.size()) {
        const auto word = std::find_if(
            variant.begin(), variant.end(), [&](std::string_view candidate) {
                return said(asked, next, candidate) > 0;
            });
        if (word == variant.end())
            return false;
        next += said(asked, next, *word);
        variant.erase(word);
    }
    return true;
}

} // namespace

std::string gpu_model::full_name() const
{
    std::string full(name);
    if (!variant.empty())
        full.append(" ").append(variant);
    return full;
}

std::span<const gpu_model> gpu_models() noexcept
{
    return table;
}

std::vector<const gpu_model *> find_gpu_models(std::string_view name)
{
    std::vector<const gpu_model *> found;
    const word_list asked = split(name);
    for (const auto &card : table)
        if (matches(asked, card))
            found.push_back(&card);
    return found;
}

bool same_gpu_model(std::string_view a, std::string_view b)
{
    if (a == b)
        return true;
    const auto found = find_gpu_models(a);
    return !found.empty() && found == find_gpu_models(b);
}

std::string gpu_display_name(std::string_view label)
{
    const auto found = find_gpu_models(label);
    if (found.empty())
        return std::string(label);
    const auto same = [&](const gpu_model *card) {
        return card->name == found.front()->name;
    };
    if (!std::all_of(found.begin(), found.end(), same))
        return std::string(label);
    return found.size() == 1 ? found.front()->full_name()
                             : std::string(found.front()->name);
}

} // namespace emuv

// SPDX-License-Identifier: GPL-2.0-or-later
// Reads the header of safetensors files, their index, and finds out which kind
// of file a model's is.
#include "json_text.hpp"
#include "model.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

namespace emuv::estimate {

namespace {

constexpr std::uint64_t most_header = 32U << 20U;
constexpr std::size_t most_files = 4096;
constexpr std::size_t most_dimensions = 16;

struct type
{
    std::string_view name;
    unsigned bits;
};

constexpr std::array<type, 15> types = {{{"F64", 64},
                                         {"I64", 64},
                                         {"U64", 64},
                                         {"F32", 32},
                                         {"I32", 32},
                                         {"U32", 32},
                                         {"F16", 16},
                                         {"BF16", 16},
                                         {"I16", 16},
                                         {"U16", 16},
                                         {"F8_E4M3", 8},
                                         {"F8_E5M2", 8},
                                         {"I8", 8},
                                         {"U8", 8},
                                         {"BOOL", 8}}};

// The sums over all tensors, and the shapes that tell the architecture.
struct totals
{
    double elements = 0;
    double bytes = 0;
    double largest = 0;
    std::map<std::string, double> by_type;
    std::set<std::uint64_t> layers;
    // Rows and columns of the first layer's matrices, by the name's end.
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> shapes;
};

double d(std::uint64_t value)
{
    return static_cast<double>(value);
}

// "model.layers.17.self_attn.q_proj.weight": the layer's number and the end.
void note_shape(const std::string &name,
                const std::vector<std::uint64_t> &shape, totals &to)
{
    std::string end = name;
    bool first = true;
    const auto at = name.find("layers.");
    if (at != std::string::npos) {
        std::uint64_t layer = 0;
        const char *const begin = name.data() + at + 7;
        const auto [stop, problem] =
            std::from_chars(begin, name.data() + name.size(), layer);
        if (problem == std::errc() && layer < most_layers) {
            to.layers.insert(layer);
            first = layer == 0;
            end = std::string(stop, static_cast<std::size_t>(
                                        name.data() + name.size() - stop));
        }
    } else {
        const auto dot = name.size() > 8
                             ? name.find_last_of('.', name.size() - 8)
                             : std::string::npos;
        if (dot != std::string::npos)
            end = name.substr(dot);
    }
    if (first && shape.size() == 2 && end.size() < 64)
        to.shapes.emplace(end, std::pair(shape[0], shape[1]));
}

void add_tensor(input &from, const std::string &name,
                const nlohmann::json &entry, std::uint64_t data, totals &to)
{
    const auto refuse = [&](const std::string &why) {
        from.refuse(fmt::format("tensor '{}': {}", name.substr(0, 200), why));
    };
    if (!entry.is_object() || !entry.contains("dtype") ||
        !entry.contains("shape") || !entry.contains("data_offsets"))
        refuse("has no dtype, shape or data_offsets");
    const auto &shape = entry["shape"];
    const auto &place = entry["data_offsets"];
    const auto whole = [](const nlohmann::json &each) {
        return each.is_number_unsigned();
    };
    if (!entry["dtype"].is_string() || !shape.is_array() ||
        shape.size() > most_dimensions ||
        !std::all_of(shape.begin(), shape.end(), whole) || !place.is_array() ||
        place.size() != 2 || !whole(place[0]) || !whole(place[1]))
        refuse("its dtype, shape or data_offsets cannot be read");
    const std::string dtype = entry["dtype"];
    const auto *const is =
        std::find_if(types.begin(), types.end(),
                     [&](const type &each) { return each.name == dtype; });
    if (is == types.end())
        refuse(fmt::format("dtype '{}' is not known", dtype.substr(0, 32)));
    std::vector<std::uint64_t> lengths;
    double elements = 1;
    for (const auto &each : shape) {
        lengths.push_back(each.get<std::uint64_t>());
        elements *= d(lengths.back());
    }
    const auto begin = place[0].get<std::uint64_t>();
    const auto end = place[1].get<std::uint64_t>();
    if (begin > end || end > data)
        refuse(fmt::format("bytes {} to {} of {} bytes of data", begin, end,
                           data));
    const double bytes = elements * is->bits / 8;
    if (bytes != d(end - begin))
        refuse(fmt::format("its shape takes {:.0f} bytes, it has {}", bytes,
                           end - begin));
    to.elements += elements;
    to.bytes += bytes;
    to.largest = std::max(to.largest, elements);
    to.by_type[dtype] += bytes;
    note_shape(name, lengths, to);
}

void add_file(input &from, totals &to)
{
    std::array<unsigned char, 8> length{};
    if (from.size() < length.size())
        from.refuse(0, "too short for a safetensors file");
    from.read(0, length);
    std::uint64_t bytes = 0;
    for (std::size_t i = length.size(); i-- > 0;)
        bytes = bytes << 8U | length[i];
    const std::uint64_t rest = from.size() - length.size();
    if (bytes > rest)
        from.refuse(0, fmt::format("a header of {} bytes in a file that has "
                                   "{} more",
                                   bytes, rest));
    if (bytes > most_header)
        from.refuse(0, fmt::format("a header of {} bytes; at most {} are read",
                                   bytes, most_header));
    std::string text(bytes, '\0');
    from.read(length.size(),
              {reinterpret_cast<unsigned char *>(text.data()), text.size()});
    const nlohmann::json all = parse_json(from.name(), text);
    const double before = to.bytes;
    for (const auto &[name, entry] : all.items())
        if (name != "__metadata__")
            add_tensor(from, name, entry, rest - bytes, to);
    if (to.bytes - before > d(rest - bytes))
        from.refuse("its tensors overlap");
    if (to.elements == 0)
        from.refuse("holds no tensors");
}

// The shape of a Llama-like decoder as its matrices have it.
std::optional<transformer> shape_of(const totals &from)
{
    const auto find = [&](const char *end)
        -> std::optional<std::pair<std::uint64_t, std::uint64_t>> {
        const auto found = from.shapes.find(end);
        if (found == from.shapes.end())
            return std::nullopt;
        return found->second;
    };
    const auto q = find(".self_attn.q_proj.weight");
    const auto k = find(".self_attn.k_proj.weight");
    const auto up = find(".mlp.up_proj.weight");
    const auto embedding = find(".embed_tokens.weight");
    const auto fits = [](std::uint64_t of, std::uint64_t most) {
        return of >= 1 && of <= most;
    };
    if (!q || !k || !up || !embedding || from.layers.empty() ||
        !fits(q->second, most_width) || !fits(q->first, most_width) ||
        !fits(k->first, q->first) || !fits(up->first, most_width) ||
        !fits(embedding->first, most_vocabulary))
        return std::nullopt;
    transformer is;
    is.layers = from.layers.size();
    is.hidden = q->second;
    is.head_width = q->first % 128 == 0 && k->first % 128 == 0 ? 128 : 64;
    is.heads = std::max(std::uint64_t{1}, q->first / is.head_width);
    is.kv_heads = std::max(std::uint64_t{1}, k->first / is.head_width);
    is.intermediate = up->first;
    is.vocabulary = embedding->first;
    is.tied = !find("lm_head.weight") && !find(".lm_head.weight");
    return is;
}

// "model-00001-of-00004.safetensors"
bool is_part(const std::string &name)
{
    const auto of = name.rfind("-of-");
    const auto end = name.rfind(".safetensors");
    if (of == std::string::npos || end == std::string::npos || end < of + 5)
        return false;
    const std::string count = name.substr(of + 4, end - of - 4);
    return count.find_first_not_of("0123456789") == std::string::npos &&
           count.find_first_not_of('0') != std::string::npos &&
           count.substr(count.find_first_not_of('0')) != "1";
}

// True if next to nothing is in types that pack several parameters.
bool unpacked(const totals &all)
{
    double packed = 0;
    for (const auto &[type, bytes] : all.by_type)
        if (!type.starts_with("F") && type != "BF16")
            packed += bytes;
    return packed < 0.01 * all.bytes;
}

model to_model(const std::string &name, const totals &from, const model *config)
{
    const std::string &most =
        std::max_element(
            from.by_type.begin(), from.by_type.end(),
            [](const auto &a, const auto &b) { return a.second < b.second; })
            ->first;
    model out;
    if (config != nullptr) {
        out = *config;
        out.assumed.clear(); // the file tells
        // Little of what config.json tells is not saved.
        if (unpacked(from) && from.elements < 0.9 * out.counted.all)
            throw unreadable(fmt::format(
                "{}: its tensors have {:.0f} parameters, {:.0f} are those of "
                "its config.json: a part of a model?",
                name, from.elements, out.counted.all));
        const double scale = from.elements / out.counted.all;
        // Packed weights of 4 bits have fewer elements than parameters.
        if (from.elements > out.counted.all * 0.97)
            out.counted = {from.elements, out.counted.active * scale,
                           out.counted.linear * scale, from.largest};
    } else if (const auto is = shape_of(from)) {
        out.name = name;
        out.kind = "llama";
        out.text = *is;
        out.counted = count(*is);
        out.counted.all = out.counted.active = from.elements;
        out.assumed.push_back(
            fmt::format("heads of width {}: there is no config.json beside",
                        is->head_width));
    } else {
        throw unreadable(fmt::format(
            "{}: its tensors are of no known architecture; a config.json "
            "beside it would tell",
            name));
    }
    out.stored = from.bytes;
    out.stored_as = most;
    return out;
}

// The files that an index names. They lie beside it.
std::set<std::string> files_of(const std::string &name,
                               const nlohmann::json &index)
{
    const members top(name, index);
    const auto *const map = top.find("weight_map");
    if (!map->is_object())
        top.refuse("weight_map", "is no object");
    std::set<std::string> files;
    for (const auto &[tensor, file] : map->items()) {
        if (!file.is_string())
            top.refuse("weight_map", "names something that is no file");
        const auto &text = file.get_ref<const std::string &>();
        if (text.empty() || text.find('/') != std::string::npos ||
            text.size() > 255)
            top.refuse("weight_map", "names a file that is not beside it");
        files.insert(text);
        if (files.size() > most_files)
            top.refuse("weight_map",
                       fmt::format("names more than {} files", most_files));
    }
    if (files.empty())
        top.refuse("weight_map", "names no files");
    return files;
}

std::optional<model> config_beside(const std::filesystem::path &path)
{
    std::error_code none;
    const auto config = path.parent_path() / "config.json";
    if (!std::filesystem::is_regular_file(config, none))
        return std::nullopt;
    return read_config(*open_file(config));
}

// A folder's index, its one file, or its config.json.
std::filesystem::path in_folder(const std::filesystem::path &folder)
{
    std::error_code none;
    for (const char *const name :
         {"model.safetensors.index.json", "model.safetensors", "config.json"})
        if (std::filesystem::is_regular_file(folder / name, none))
            return folder / name;
    throw unreadable(fmt::format(
        "{}: holds no model.safetensors.index.json, model.safetensors or "
        "config.json",
        folder.string()));
}

} // namespace

model read_safetensors(input &from, const model *config)
{
    totals all;
    add_file(from, all);
    return to_model(from.name(), all, config);
}

model read_model(const std::filesystem::path &path)
{
    std::error_code none;
    if (std::filesystem::is_directory(path, none))
        return read_model(in_folder(path));
    const auto file = open_file(path);
    std::array<unsigned char, 16> begin{};
    if (file->size() < begin.size())
        file->refuse(0, "too short for a model's file");
    file->read(0, begin);
    if (std::memcmp(begin.data(), "GGUF", 4) == 0)
        return read_gguf(*file);
    // A safetensors file has JSON behind 8 bytes of its length.
    if (begin[0] != '{' && begin[8] == '{') {
        if (is_part(path.filename().string()))
            file->refuse("is one of several parts of a model; name its folder, "
                         "or its index");
        const auto config = config_beside(path);
        return read_safetensors(*file, config ? &*config : nullptr);
    }
    const auto *const text =
        std::find_if(begin.begin(), begin.end(), [](unsigned char c) {
            return c != ' ' && c != '\n' && c != '\r' && c != '\t';
        });
    if (text == begin.end() || *text != '{')
        file->refuse(0, "neither a config.json, nor safetensors, nor GGUF");
    if (file->size() > most_header)
        file->refuse(fmt::format("{} bytes are too many; at most {} are read",
                                 file->size(), most_header));
    if (path.filename().string().find("index") == std::string::npos)
        return read_config(*file);
    const nlohmann::json all =
        parse_json(file->name(), read_text(*file, most_header));
    if (!members(file->name(), all).has("weight_map"))
        return read_config(*file);
    totals sums;
    for (const std::string &each : files_of(file->name(), all))
        add_file(*open_file(path.parent_path() / each), sums);
    const auto config = config_beside(path);
    return to_model(file->name(), sums, config ? &*config : nullptr);
}

} // namespace emuv::estimate

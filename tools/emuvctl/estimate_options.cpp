// SPDX-License-Identifier: GPL-2.0-or-later
// The command line of `emuvctl estimate` as a model, a job and a machine.
#include "estimate_options.hpp"

#include "cards.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "host_memory.hpp"
#include "instances.hpp"
#include "score_file.hpp"

#include <emuv/gpu_model.hpp>
#include <emuv/profile.hpp>
#include <emuv/size.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include <input.hpp>

namespace emuvctl {

namespace {

// A positive decimal number, perhaps with one of the suffixes.
double decimal(std::string_view option, const std::string &text,
               std::string_view suffixes, double most)
{
    double value = 0;
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, value);
    double unit = 1;
    const char *rest = stop;
    if (problem == std::errc() && rest != end) {
        static constexpr std::string_view letters = "KMBT";
        const char upper = static_cast<char>(*rest & ~0x20);
        const auto at = letters.find(upper);
        if (at != std::string_view::npos &&
            suffixes.find(upper) != std::string_view::npos) {
            unit = std::pow(1000, static_cast<double>(at + 1));
            rest++;
        }
    }
    value *= unit;
    if (problem != std::errc() || rest != end || !std::isfinite(value) ||
        value <= 0 || value > most)
        throw usage_error(fmt::format(
            "{}: '{}' is no number such as {}, above 0 and at most {:g}",
            option, printable(text), suffixes.empty() ? "2.5" : "7B", most));
    return value;
}

double whole(std::string_view option, const std::string &text, long long least,
             long long most)
{
    return parse_option(option, [&] {
        return static_cast<double>(emuv::parse_integer(text, least, most));
    });
}

// The value that a word stands for.
template <typename Value, std::size_t Count>
Value pick(std::string_view option, const std::string &text,
           const std::array<std::pair<std::string_view, Value>, Count> &of)
{
    std::string all;
    for (const auto &[name, value] : of) {
        if (name == text)
            return value;
        all.append(all.empty() ? "" : ", ").append(name);
    }
    throw usage_error(
        fmt::format("{}: '{}' is none of {}", option, printable(text), all));
}

using modes = std::pair<std::string_view, estimate::mode>;
constexpr std::array<modes, 4> mode_words = {
    {{"inference", estimate::mode::inference},
     {"train", estimate::mode::train},
     {"lora", estimate::mode::lora},
     {"qlora", estimate::mode::qlora}}};

using dtypes = std::pair<std::string_view, estimate::dtype>;
constexpr std::array<dtypes, 6> dtype_words = {
    {{"fp32", estimate::dtype::fp32},
     {"fp16", estimate::dtype::fp16},
     {"bf16", estimate::dtype::bf16},
     {"fp8", estimate::dtype::int8},
     {"int8", estimate::dtype::int8},
     {"int4", estimate::dtype::int4}}};

using mixtures = std::pair<std::string_view, estimate::mixture_of_precisions>;
constexpr std::array<mixtures, 3> mixed_words = {
    {{"none", estimate::mixture_of_precisions::none},
     {"autocast", estimate::mixture_of_precisions::autocast},
     {"master", estimate::mixture_of_precisions::master}}};

using optimizers = std::pair<std::string_view, estimate::optimizer>;
constexpr std::array<optimizers, 7> optimizer_words = {
    {{"sgd", estimate::optimizer::sgd},
     {"momentum", estimate::optimizer::momentum},
     {"adam", estimate::optimizer::adam},
     {"adamw", estimate::optimizer::adam},
     {"adafactor", estimate::optimizer::adafactor},
     {"adam8bit", estimate::optimizer::adam8bit},
     {"adamw8bit", estimate::optimizer::adam8bit}}};

template <typename Words>
std::vector<word> words(const Words &of)
{
    std::vector<word> out;
    for (const auto &each : of)
        out.push_back({std::string(each.first)});
    return out;
}

std::string joined(std::span<const std::string_view> names)
{
    return fmt::format("{}", fmt::join(names, ", "));
}

void read_image(const std::string &text, estimate::job &to)
{
    const auto cross = text.find('x');
    const std::string width = text.substr(0, cross);
    const std::string height =
        cross == std::string::npos ? width : text.substr(cross + 1);
    to.image_width =
        static_cast<std::uint64_t>(whole("--image", width, 1, 65536));
    to.image_height =
        static_cast<std::uint64_t>(whole("--image", height, 1, 65536));
}

void read_frozen(const std::string &list, const estimate::model &of,
                 estimate::job &to)
{
    if (list.empty())
        return;
    if (!of.eyes)
        throw usage_error("--freeze: the model has no parts 'vision' and "
                          "'text'");
    to.freeze_eyes = list == "vision";
    to.freeze_text = list == "text";
    if (!to.freeze_eyes && !to.freeze_text)
        throw usage_error(fmt::format("--freeze: '{}' is none of vision, text",
                                      printable(list)));
}

// The one card that a name means.
const emuv::gpu_model &card_of(std::string_view option, const std::string &name)
{
    const auto cards = emuv::find_gpu_models(name);
    if (cards.empty())
        throw usage_error(fmt::format(
            "{}: '{}' is not in the table of cards (see 'emuvctl gpu list')",
            option, printable(name)));
    if (cards.size() > 1) {
        std::string names;
        for (const auto *card : cards)
            names.append(names.empty() ? "" : ", ").append(card->full_name());
        throw usage_error(fmt::format("{}: '{}' may be any of {}; say which",
                                      option, printable(name), names));
    }
    return *cards.front();
}

estimate::machine instance_machine(const std::string &name,
                                   const environment &env)
{
    const auto ids = parse_instances(std::span(&name, 1), env);
    const auto info = read_instances(ids, env).front();
    estimate::machine out;
    const auto cards = emuv::find_gpu_models(info.gpu_model);
    if (!cards.empty())
        out = estimate::whole_card(*cards.front());
    out.name = fmt::format("{} ({})", info.name(),
                           emuv::gpu_display_name(info.gpu_model));
    out.vram = static_cast<double>(info.physical_bytes);
    out.ram = static_cast<double>(info.virtual_bytes);
    out.spills_to_none = info.virtual_bytes == 0;
    return out;
}

// The first card here that the table has.
std::optional<estimate::machine> own_machine(const environment &env)
{
    for (const card &one : find_cards(env, env.nvml())) {
        const auto models = models_of(one);
        if (models.empty())
            continue;
        estimate::machine out = estimate::whole_card(*models.front());
        if (models.size() > 1 && one.vram_bytes != 0)
            out.vram = static_cast<double>(one.vram_bytes);
        return out;
    }
    return std::nullopt;
}

} // namespace

std::vector<option> options_of(estimate_options &to)
{
    std::vector<option> all = {
        {"--config", "FILE", "a model's file, in place of MODEL", &to.config,
         offered::files},
        {"--params", "N", "a transformer of so many parameters: 7B, 350M",
         &to.parameters},
        {"--layers", "N", "with --params: its layers", &to.layers},
        {"--hidden", "N", "with --params: its width", &to.hidden},
        {"--mode", "MODE", "inference, train, lora or qlora", &to.mode,
         offered::words, words(mode_words)},
        {"--dtype", "TYPE",
         "of weights and activations. Default: the\nfile's, or fp16", &to.dtype,
         offered::words, words(dtype_words)},
        {"--mixed", "WAY",
         "of training: none; autocast (all kept in 32\nbits); master (a copy "
         "and states in 32 bits)",
         &to.mixed, offered::words, words(mixed_words)},
        {"--batch", "N", "samples at once. Default: 1", &to.batch},
        {"--sequence", "N",
         "tokens of text in a sample, or the context.\nDefault: at most 2048; "
         "512 beside images",
         &to.sequence},
        {"--optimizer", "NAME", "Default: adamw", &to.optimizer, offered::words,
         words(optimizer_words)},
        {"--attention",
         "WAY",
         "flash (keeps no scores) or standard",
         &to.attention,
         offered::words,
         {{"flash"}, {"standard"}}},
        flag("--checkpointing", to.checkpointing,
             "compute activations again on the way back"),
        flag("--accumulate", to.accumulate, "gradients outlive a batch"),
        {"--freeze",
         "PART",
         "of a model that sees: vision or text",
         &to.freeze,
         offered::words,
         {{"vision"}, {"text"}}},
        {"--rank", "N", "of LoRA's adapters. Default: 16", &to.rank},
        flag("--all-linear", to.all_linear,
             "adapters in all layers, not only queries, values"),
        {"--images", "N", "of a sample. Default: 1 if the model sees",
         &to.images},
        {"--image", "WxH", "their size in pixels. Default: the model's",
         &to.image},
        {"--cache-dtype", "TYPE", "of keys and values kept", &to.cache_dtype,
         offered::words, words(dtype_words)},
        {"--activation-factor", "F", "activations as a multiple of the weights",
         &to.activation_factor},
        {"--gpu", "MODEL", "hold it against this card: 4070", &to.gpu},
        {"--instance", "INSTANCE", "hold it against this instance",
         &to.instance, offered::instances},
        {"--vram", "SIZE", "with --gpu: the VRAM that the job may have",
         &to.vram},
        {"--link", "GB/S", "the rate between card and RAM, 10^9 bytes/s",
         &to.link},
        {"--cpu-bandwidth", "GB/S", "of system RAM. Default: 60",
         &to.cpu_bandwidth},
        {"--processes", "N", "one for each card. Default: 1", &to.processes},
        {"--workers", "N", "of each process, that load data", &to.workers},
        {"--ram", "SIZE", "the host's. Default: what it has", &to.ram},
        {"--save", "FILE",
         "keep the estimate, for 'run --score'; without\n"
         "=FILE in the user's own folder for such files",
         &to.save, offered::files}};
    for (option &each : all) {
        if (each.long_name() == "--save")
            each.implied = usual_score_file();
        if (each.long_name() == "--gpu")
            each.excludes = {"--instance"};
        if (each.long_name() == "--layers" || each.long_name() == "--hidden")
            each.needs = {"--params"};
    }
    return all;
}

estimate::model model_of(const estimate_options &from)
{
    const int sources = static_cast<int>(from.model.size()) +
                        static_cast<int>(!from.config.empty()) +
                        static_cast<int>(!from.parameters.empty());
    const auto known = estimate::builtin_names();
    if (sources != 1)
        throw usage_error(fmt::format(
            "give one of MODEL, --config and --params; MODEL is a file or one "
            "of {}",
            joined(known)));
    if (!from.parameters.empty()) {
        const auto size = [&](const char *option, const std::string &text,
                              long long most) {
            return text.empty() ? 0
                                : static_cast<std::uint64_t>(
                                      whole(option, text, 1, most));
        };
        return estimate::from_size(
            decimal("--params", from.parameters, "KMBT", 1e14),
            size("--layers", from.layers, estimate::most_layers),
            size("--hidden", from.hidden, estimate::most_width));
    }
    const std::string &name =
        from.config.empty() ? from.model.front() : from.config;
    std::error_code none;
    if (from.config.empty() && !std::filesystem::exists(name, none)) {
        if (auto found = estimate::find_builtin(name))
            return *found;
        throw failure(fmt::format("'{}' is neither a file nor one of {}",
                                  printable(name), joined(known)));
    }
    try {
        return estimate::read_model(name);
    } catch (const estimate::unreadable &problem) {
        throw failure(printable(problem.what()));
    }
}

estimate::job job_of(const estimate_options &from, const estimate::model &of)
{
    estimate::job out;
    out.mode = pick("--mode", from.mode, mode_words);
    if (!from.dtype.empty())
        out.dtype = pick("--dtype", from.dtype, dtype_words);
    const bool quantised = out.dtype == estimate::dtype::int8 ||
                           out.dtype == estimate::dtype::int4;
    if (quantised && out.mode == estimate::mode::train)
        throw usage_error(
            fmt::format("--dtype: {} weights are not trained; see --mode qlora",
                        from.dtype));
    if (out.mode == estimate::mode::qlora && from.dtype == "int8")
        throw usage_error("--dtype: weights of qlora have 4 bits");
    out.mixed = pick("--mixed", from.mixed, mixed_words);
    if (out.mixed != estimate::mixture_of_precisions::none &&
        out.mode != estimate::mode::train)
        throw usage_error("--mixed: is of --mode train; adapters have 32 bits");
    out.optimizer = pick("--optimizer", from.optimizer, optimizer_words);
    out.flash = pick("--attention", from.attention,
                     std::array<std::pair<std::string_view, bool>, 2>{
                         {{"flash", true}, {"standard", false}}});
    if (!from.batch.empty())
        out.batch = whole("--batch", from.batch, 1, 1 << 20);
    if (!from.sequence.empty())
        out.sequence = whole("--sequence", from.sequence, 1,
                             static_cast<long long>(estimate::most_tokens));
    if (of.text.positions != 0 &&
        out.sequence > static_cast<double>(of.text.positions))
        throw usage_error(fmt::format("--sequence: the model has {} positions",
                                      of.text.positions));
    out.checkpointing = from.checkpointing;
    out.accumulates = from.accumulate;
    read_frozen(from.freeze, of, out);
    if (!from.rank.empty())
        out.rank = static_cast<std::uint64_t>(
            whole("--rank", from.rank, 1, estimate::most_width));
    out.adapt_all_linear = from.all_linear;
    if (of.eyes)
        out.images = from.images.empty()
                         ? 1
                         : whole("--images", from.images, 0, 1 << 20);
    else if (!from.images.empty())
        throw usage_error("--images: the model sees none");
    if (!from.image.empty()) {
        if (!of.net && !(of.eyes && of.eyes->any_size))
            throw usage_error("--image: the model takes images of one size, "
                              "or none");
        read_image(from.image, out);
    }
    if (!from.cache_dtype.empty())
        switch (pick("--cache-dtype", from.cache_dtype, dtype_words)) {
        case estimate::dtype::fp32:
            out.cache_bytes = 4;
            break;
        case estimate::dtype::int8:
            out.cache_bytes = 1;
            break;
        case estimate::dtype::int4:
            out.cache_bytes = 0.5625;
            break;
        default:
            out.cache_bytes = 2;
        }
    if (!from.activation_factor.empty())
        out.activation_factor =
            decimal("--activation-factor", from.activation_factor, "", 1e6);
    return out;
}

std::optional<estimate::machine> machine_of(const estimate_options &from,
                                            const environment &env)
{
    std::optional<estimate::machine> out;
    if (!from.gpu.empty())
        out = estimate::whole_card(card_of("--gpu", from.gpu));
    else if (!from.instance.empty())
        out = instance_machine(from.instance, env);
    else
        out = own_machine(env);
    if (!out) {
        if (!from.vram.empty())
            throw usage_error("--vram: needs --gpu");
        return out;
    }
    if (!from.vram.empty())
        out->vram = static_cast<double>(parse_option(
            "--vram", [&] { return emuv::parse_size(from.vram); }));
    if (!from.link.empty())
        out->link = 1e9 * decimal("--link", from.link, "", 1e4);
    if (!from.cpu_bandwidth.empty())
        out->cpu_bandwidth =
            1e9 * decimal("--cpu-bandwidth", from.cpu_bandwidth, "", 1e5);
    return out;
}

estimate::host_job host_job_of(const estimate_options &from)
{
    estimate::host_job out;
    if (!from.processes.empty())
        out.processes = whole("--processes", from.processes, 1, 1024);
    if (!from.workers.empty())
        out.workers = whole("--workers", from.workers, 0, 1024);
    return out;
}

double ram_of(const estimate_options &from, const environment &env)
{
    if (!from.ram.empty())
        return static_cast<double>(
            parse_option("--ram", [&] { return emuv::parse_size(from.ram); }));
    double out = 0;
    if (const auto host = read_host_memory(env))
        out = static_cast<double>(host->total_bytes);
    if (const auto limit = estimate::cgroup_limit(env.proc, env.sys))
        if (out == 0 || static_cast<double>(*limit) < out)
            out = static_cast<double>(*limit);
    return out;
}

} // namespace emuvctl

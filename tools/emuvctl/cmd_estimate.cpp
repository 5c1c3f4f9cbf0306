// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl estimate: what a job needs, and what a card makes of it.
#include "environment.hpp"
#include "estimate_options.hpp"
#include "failure.hpp"
#include "score_file.hpp"
#include "verbs.hpp"

#include <emuv/size.hpp>

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

using estimate::range;

constexpr std::array<column, 6> columns = {{
    {"part", "PART", kind::text, "what the bytes are for"},
    {"low_bytes", "LOW", kind::bytes, "where all goes well"},
    {"likely_bytes", "LIKELY", kind::bytes, "with PyTorch as it comes"},
    {"high_bytes", "HIGH", kind::bytes, "where all goes badly"},
    {"likely_gb", "GB", kind::number, "likely, in units of 10^9 bytes"},
    {"bar", "BAR", kind::text, "likely, of the peak"},
}};

std::uint64_t bytes(double of)
{
    return of <= 0        ? 0
           : of >= 1.8e19 ? UINT64_MAX
                          : static_cast<std::uint64_t>(of + 0.5);
}

std::string size(double of)
{
    return say_size(bytes(of), false);
}

// "1.2 GiB (0.9 GiB to 2 GiB)", or one figure where the three are alike.
std::string sizes(const range &of)
{
    const std::string likely = size(of.likely);
    const std::string low = size(of.low);
    const std::string high = size(of.high);
    return low == high ? likely
                       : fmt::format("{} ({} to {})", likely, low, high);
}

std::string seconds(double of)
{
    if (of >= 100)
        return fmt::format("{:.0f} s", of);
    if (of >= 1)
        return fmt::format("{:.1f} s", of);
    return fmt::format("{:.{}f} ms", of * 1000, of >= 0.01 ? 0 : 2);
}

// "11776M" or "12G", for a command line.
std::string option_size(double of)
{
    constexpr double gib = 1 << 30;
    const double whole = of / gib;
    return whole == static_cast<double>(bytes(whole))
               ? fmt::format("{}G", bytes(whole))
               : fmt::format("{}M", bytes(of / (1 << 20)));
}

struct all_parts
{
    estimate::model model;
    estimate::job job;
    estimate::needs needs;
    std::optional<estimate::machine> machine;
    std::optional<estimate::fit> fit;
    estimate::host_job host_job;
    estimate::host_needs host;
    double ram = 0;
    std::optional<double> safe_workers;
};

listing list_of(const all_parts &all)
{
    listing list;
    list.name = "estimate";
    list.columns = columns;
    const auto add = [&](const char *part, const range &of) {
        if (of == range{})
            return;
        const double share =
            std::clamp(of.likely / all.needs.peak.likely, 0.0, 1.0);
        list.rows.push_back(
            {{std::string(part), bytes(of.low), bytes(of.likely),
              bytes(of.high), of.likely / 1e9,
              std::string(static_cast<std::size_t>(share * 24 + 0.5), '#')},
             {}});
    };
    add("parameters", all.needs.weights);
    add("gradients", all.needs.gradients);
    add("optimizer states", all.needs.states);
    add("optimizer's step", all.needs.step);
    add("activations", all.needs.activations);
    add("KV cache", all.needs.cache);
    add("workspace", all.needs.workspace);
    add("context", all.needs.context);
    add("peak", all.needs.peak);
    return list;
}

// Adds keys that stand beside the rows in JSON.
struct beside_rows
{
    listing &to;

    template <typename Value>
    void operator()(std::string_view key, const Value &value) const
    {
        to.beside.emplace_back(key, value);
    }
    // A number that may not be known.
    template <typename Value>
    void known(std::string_view key, bool is, Value value) const
    {
        to.beside.emplace_back(key, std::monostate());
        if (is)
            to.beside.back().second = value;
    }
};

void beside_fit(const all_parts &all, listing &to)
{
    const auto &on = *all.machine;
    const auto &is = *all.fit;
    const beside_rows add{to};
    add("gpu", on.name);
    add("vram_bytes", bytes(on.vram));
    add("verdict", std::string(estimate::word(is.verdict)));
    add("spilled_low_bytes", bytes(is.spilled.low));
    add("spilled_bytes", bytes(is.spilled.likely));
    add("spilled_high_bytes", bytes(is.spilled.high));
    add("largest_batch", bytes(is.largest_batch));
    add("sure_batch", bytes(is.sure_batch));
    if (estimate::writes(all.model)) {
        add("longest_sample_tokens", bytes(is.longest));
        add("sure_sample_tokens", bytes(is.sure_longest));
    }
    if (on.bandwidth == 0)
        return;
    add("pass_low_ms", is.whole.seconds.low * 1e3);
    add("pass_ms", is.whole.seconds.likely * 1e3);
    add("pass_high_ms", is.whole.seconds.high * 1e3);
    add.known("pass_compute_ms", on.tensor != 0, is.whole.compute * 1e3);
    add("pass_vram_ms", is.whole.memory * 1e3);
    add("pass_link_ms", is.whole.link * 1e3);
    if (is.token) {
        add("token_low_ms", is.token->seconds.low * 1e3);
        add("token_ms", is.token->seconds.likely * 1e3);
        add("token_high_ms", is.token->seconds.high * 1e3);
        add.known("token_with_cpu_ms", is.cpu_token != 0, is.cpu_token * 1e3);
    }
    add("physical_bytes", bytes(is.physical));
    add("virtual_bytes", bytes(is.virtual_));
}

void beside(const all_parts &all, const estimate_options &options, listing &to)
{
    const beside_rows add{to};
    add("model", all.model.name);
    add("parameters", bytes(all.model.counted.all));
    add("active_parameters", bytes(all.model.counted.active));
    add("trained_parameters", bytes(all.needs.trained));
    add("mode", options.mode);
    add("batch", bytes(all.job.batch));
    add("sample_tokens", bytes(all.needs.tokens));
    add("assumed", all.model.assumed);
    if (all.fit)
        beside_fit(all, to);
    add("host_low_bytes", bytes(all.host.all.low));
    add("host_bytes", bytes(all.host.all.likely));
    add("host_high_bytes", bytes(all.host.all.high));
    add("host_ram_bytes", bytes(all.ram));
    add.known("safe_workers", all.safe_workers.has_value(),
              bytes(all.safe_workers.value_or(0)));
}

// The job in a sentence: "GPT-2: 124.4 million parameters; inference, ...".
std::string head(const all_parts &all, const estimate_options &options)
{
    const double count = all.model.counted.all;
    std::string text =
        fmt::format("{}: {} parameters", printable(all.model.name),
                    count >= 1e9 ? fmt::format("{:.2f} billion", count / 1e9)
                                 : fmt::format("{:.1f} million", count / 1e6));
    if (all.model.counted.active < 0.9 * count)
        text += fmt::format(" ({:.2f} billion of them for a token)",
                            all.model.counted.active / 1e9);
    const std::string types = !options.dtype.empty() ? options.dtype
                              : all.model.stored != 0
                                  ? printable(all.model.stored_as)
                                  : "fp16";
    text += fmt::format("; {}, {}, batch {:.0f}", options.mode, types,
                        all.job.batch);
    if (all.needs.tokens != 0)
        text += fmt::format(", {:.0f} tokens", all.needs.tokens);
    if (all.job.mode != estimate::mode::inference) {
        text += ", " + options.optimizer;
        if (options.mixed != "none")
            text += ", " + options.mixed;
        if (all.needs.trained < 0.99 * count)
            text += fmt::format("; {:.1f} million parameters trained",
                                all.needs.trained / 1e6);
    }
    return text;
}

// Words for the longest part of a pass.
std::string held_up_by(const estimate::pass &is)
{
    const double most = std::max({is.compute, is.memory, is.link, is.launches});
    if (most == is.link)
        return fmt::format("the link, over which {} cross", size(is.crosses));
    if (most == is.launches)
        return "Python, which launches kernels";
    return most == is.compute ? "computing" : "reading VRAM";
}

std::string time_line(const estimate::pass &is, bool knows_compute)
{
    return fmt::format("a {} takes {} ({} to {}), held up by {}{}", is.name,
                       seconds(is.seconds.likely), seconds(is.seconds.low),
                       seconds(is.seconds.high), held_up_by(is),
                       knows_compute ? ""
                                     : "; how fast the card computes is not "
                                       "known");
}

void tell_times(const all_parts &all, std::vector<std::string> &to)
{
    const auto &on = *all.machine;
    const auto &is = *all.fit;
    if (on.bandwidth == 0) {
        to.emplace_back("the time is not known: the table of cards has none "
                        "of that name");
        return;
    }
    to.push_back("time: " + time_line(is.whole, on.tensor != 0));
    if (is.token)
        to.push_back("time: " + time_line(*is.token, on.tensor != 0));
    constexpr double few = 4;
    if (is.token && is.cpu_token != 0 && all.job.batch <= few &&
        is.cpu_token < is.token->seconds.likely)
        to.push_back(fmt::format(
            "emuV is the wrong tool for writing text here. With the layers "
            "that spill on the CPU a token takes about {}, if RAM gives {:.0f} "
            "GB/s (--cpu-bandwidth). llama.cpp's -ngl does that",
            seconds(is.cpu_token), on.cpu_bandwidth / 1e9));
}

// A job that would fit where this one does not.
void tell_remedies(const all_parts &all, std::vector<std::string> &to)
{
    if (all.fit->spilled.likely == 0 || all.job.checkpointing ||
        all.job.mode == estimate::mode::inference)
        return;
    estimate::job other = all.job;
    other.checkpointing = true;
    const auto needs = estimate::compute(all.model, other);
    if (needs.peak.likely < 0.95 * all.needs.peak.likely)
        to.push_back(fmt::format(
            "--checkpointing would take {}{}", sizes(needs.peak),
            needs.peak.likely <= all.machine->vram ? ", which fits" : ""));
}

void tell_commands(const all_parts &all, const estimate_options &options,
                   std::vector<std::string> &to)
{
    const auto &is = *all.fit;
    if (is.verdict == estimate::verdict::too_large)
        return;
    std::string more;
    if (!options.save.empty())
        more += options.save == usual_score_file()
                    ? " --score"
                    : " --score=" + printable(options.save);
    if (!options.instance.empty()) {
        to.push_back(fmt::format("  emuvctl run --instance {}{} -- COMMAND",
                                 printable(options.instance), more));
        return;
    }
    const std::string shares =
        fmt::format("--physical {} --virtual {}", option_size(is.physical),
                    is.virtual_ == 0 ? "0" : option_size(is.virtual_));
    to.emplace_back("the smallest instance, and how to run in it (the last "
                    "line needs no module):");
    to.push_back(fmt::format("  emuvctl create --gpu-model \"{}\" {}",
                             all.machine->name, shares));
    to.push_back(
        fmt::format("  emuvctl run --instance emuv0{} -- COMMAND", more));
    to.push_back(fmt::format("  emuvctl run {}{} -- COMMAND", shares, more));
}

void tell_fit(const all_parts &all, const estimate_options &options,
              std::vector<std::string> &to)
{
    const auto &is = *all.fit;
    std::string text =
        fmt::format("{}: {} of VRAM: {}", printable(all.machine->name),
                    size(all.machine->vram), estimate::word(is.verdict));
    if (is.spilled.high > 0)
        text += fmt::format("; {} in RAM", sizes(is.spilled));
    if (is.verdict == estimate::verdict::too_large &&
        is.spilled.likely > all.machine->ram)
        text += fmt::format(", which has {} for it", size(all.machine->ram));
    to.push_back(text);
    const auto largest = [](double likely, double sure) {
        if (likely == 0)
            return std::string("none fits");
        return sure == likely ? fmt::format("{:.0f}", likely)
               : sure == 0    ? fmt::format("{:.0f}, none surely", likely)
                           : fmt::format("{:.0f}, surely {:.0f}", likely, sure);
    };
    text = "largest batch in VRAM: " + largest(is.largest_batch, is.sure_batch);
    if (estimate::writes(all.model)) {
        text += "; longest sample: " + largest(is.longest, is.sure_longest) +
                (is.longest != 0 ? " tokens" : "");
        const auto made_for = all.model.text.longest;
        if (made_for != 0 && is.longest > static_cast<double>(made_for))
            text += fmt::format(" (the model is made for {})", made_for);
    }
    // A factor says nothing of batch and length.
    if (all.job.activation_factor == 0)
        to.push_back(text);
    tell_times(all, to);
    tell_remedies(all, to);
    tell_commands(all, options, to);
}

void tell_host(const all_parts &all, std::vector<std::string> &to)
{
    std::string text = fmt::format("RAM: {}", sizes(all.host.all));
    if (all.ram != 0) {
        text += fmt::format(" of {}: {}", size(all.ram),
                            all.host.all.high <= all.ram     ? "fits"
                            : all.host.all.likely <= all.ram ? "may fail"
                                                             : "too large");
        text += all.safe_workers
                    ? fmt::format("; surely with up to {:.0f} workers a "
                                  "process",
                                  *all.safe_workers)
                    : "; not surely even without workers";
    }
    to.push_back(text);
}

std::string longer_text(const std::vector<std::string> &lines)
{
    std::string out;
    for (const std::string &each : lines)
        // Command lines are to be copied whole.
        out += (each.starts_with("  ") ? each : wrap(each, 0, 79)) + "\n";
    return out;
}

void cmd_estimate(const estimate_options &options, environment &env)
{
    std::vector<std::string_view> defaults = {"part", "low_bytes",
                                              "likely_bytes", "high_bytes"};
    if (env.out.terminal())
        defaults.emplace_back("bar");
    printer print(options.output, columns, defaults);

    all_parts all;
    all.model = model_of(options);
    all.job = job_of(options, all.model);
    all.host_job = host_job_of(options);
    all.ram = ram_of(options, env);
    all.machine = machine_of(options, env);
    all.needs = estimate::compute(all.model, all.job);
    range spilled;
    if (all.machine) {
        // The spilled bytes of each process have to find room.
        if (options.instance.empty() && all.ram != 0)
            all.machine->ram = all.ram / all.host_job.processes;
        all.fit = estimate::hold(all.model, all.job, all.needs, *all.machine);
        spilled = all.fit->spilled;
    }
    all.host =
        estimate::on_host(all.model, all.job, all.needs, all.host_job, spilled);
    all.safe_workers = estimate::safe_workers(all.model, all.job, all.needs,
                                              all.host_job, spilled, all.ram);

    listing list = list_of(all);
    beside(all, options, list);
    if (!options.save.empty())
        save_estimate(estimate_lock(options.save), options.save,
                      printer(output_options(), columns, {}).json_text(list));
    const output_options &as = options.output;
    const bool tells = !as.json && !as.raw && !as.noheadings &&
                       as.query.empty() && as.columns.empty();
    if (tells)
        env.out.write(wrap(head(all, options), 0, 79) + "\n\n");
    print.print(list, env);
    if (!tells)
        return;
    std::vector<std::string> lines = {""};
    for (const std::string &each : all.model.assumed)
        lines.push_back("assumed: " + printable(each));
    if (all.fit)
        tell_fit(all, options, lines);
    if (all.fit || options.asks_host())
        tell_host(all, lines);
    if (lines.size() > 1)
        env.out.write(longer_text(lines));
    if (!options.save.empty())
        env.say(fmt::format("kept in {}; 'emuvctl run --score' holds a run "
                            "against it",
                            printable(options.save)));
}

} // namespace

verb estimate_verb()
{
    const auto options = std::make_shared<estimate_options>();
    verb made{
        "estimate", "Machine", "tell what a model needs, and what fits",
        "Tells how many bytes a job takes on a card: low, likely and high. "
        "Tells\n"
        "what a card makes of it: what fits, what spills, how long it takes.\n"
        "  emuvctl estimate llama-3-8b --sequence 8192 --gpu 4070\n"
        "  emuvctl estimate model.gguf --gpu 3060-12GB\n"
        "  emuvctl estimate ./checkpoint --mode lora --batch 4\n"
        "MODEL is a folder, a config.json, a safetensors file or its index, or "
        "a\n"
        "GGUF file; only headers are read. Or it is one of gpt2, gpt2-medium,\n"
        "gpt2-large, gpt2-xl, llama-2-7b, llama-2-13b, llama-2-70b, "
        "llama-3-8b,\n"
        "llama-3-70b, mixtral-8x7b, llava-1.5-7b, llava-1.5-13b, sd-1.5, "
        "sdxl,\nresnet-50 and vit-l. Nothing is asked over a network."};
    made.arguments = {"MODEL", &options->model, offered::files};
    made.options = options_of(*options);
    add_output(made, options->output, columns);
    made.action = [options](environment &env) { cmd_estimate(*options, env); };
    return made;
}

} // namespace emuvctl

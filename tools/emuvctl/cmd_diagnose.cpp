// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl diagnose: reads what a program said when memory ran out.
#include "environment.hpp"
#include "failure.hpp"
#include "finding.hpp"
#include "verbs.hpp"

#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace emuvctl {

namespace dia = emuv::diagnose;

namespace {

struct diagnose_options
{
    std::vector<std::string> files;
    output_options output;
};

constexpr std::size_t most_bytes = std::size_t{256} << 20;

std::string read_all(int fd, const std::string &name)
{
    std::string made;
    std::vector<char> block(std::size_t{1} << 16);
    for (;;) {
        const ssize_t got = ::read(fd, block.data(), block.size());
        if (got == 0)
            return made;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            throw std::system_error(errno, std::generic_category(),
                                    printable(name));
        made.append(block.data(), static_cast<std::size_t>(got));
        if (made.size() > most_bytes)
            throw failure(fmt::format(
                "{}: larger than 256 MiB; give it the lines around the error, "
                "as by 'tail -n 5000'",
                printable(name)));
    }
}

std::string read_input(const diagnose_options &options, environment &env)
{
    const std::string name =
        options.files.empty() ? "-" : options.files.front();
    if (options.files.size() > 1)
        throw usage_error("one FILE at a time");
    if (name == "-") {
        if (::isatty(STDIN_FILENO) == 1)
            env.say("paste the message, then press Ctrl-D on a line of its "
                    "own");
        return read_all(STDIN_FILENO, "standard input");
    }
    const emuv::unique_fd file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0)
        throw std::system_error(errno, std::generic_category(),
                                printable(name));
    return read_all(file.get(), name);
}

using json = nlohmann::ordered_json;

json bytes_of(const std::optional<dia::figure> &what)
{
    return what ? json(what->bytes) : json(nullptr);
}

json text_of(const std::string &what)
{
    return what.empty() ? json(nullptr) : json(what);
}

json json_of(const dia::finding &of)
{
    json causes = json::array();
    for (const auto &each : of.causes)
        causes.push_back(
            {{"kind", dia::to_text(each.kind)}, {"why", each.why}});
    json remedies = json::array();
    for (const auto &each : of.remedies)
        remedies.push_back(
            {{"what", each.what}, {"price", each.price}, {"line", each.line}});
    const auto number = [](const std::optional<std::uint64_t> &what) {
        return what ? json(*what) : json(nullptr);
    };
    return {{"source", dia::to_text(of.from)},
            {"memory", dia::to_text(of.memory)},
            {"ran_out", of.ran_out},
            {"line", of.line > 0 ? json(of.line) : json(nullptr)},
            {"times", of.times},
            {"device", text_of(of.device)},
            {"process", text_of(of.process)},
            {"asked_bytes", bytes_of(of.asked)},
            {"held_bytes", bytes_of(of.held)},
            {"cached_bytes", bytes_of(of.cached)},
            {"process_bytes", bytes_of(of.process_total)},
            {"free_bytes", bytes_of(of.free)},
            {"limit_bytes", bytes_of(of.limit)},
            {"total_bytes", bytes_of(of.total)},
            {"peak_bytes", bytes_of(of.peak)},
            {"tokens_asked", number(of.tokens_asked)},
            {"tokens_fit", number(of.tokens_fit)},
            {"phase", dia::to_text(of.at)},
            {"where", text_of(of.where)},
            {"tensor", text_of(of.tensor)},
            {"same_size", of.same_size},
            {"notes", of.notes},
            {"causes", std::move(causes)},
            {"remedies", std::move(remedies)}};
}

void cmd_diagnose(const diagnose_options &options, environment &env)
{
    const std::string data = read_input(options, env);
    const auto found = dia::diagnose(data);
    if (options.output.json) {
        json findings = json::array();
        for (const auto &each : found.findings)
            findings.push_back(json_of(each));
        const json all = {{"schema", 1}, {"findings", std::move(findings)}};
        // Other programs' bytes need not be UTF-8.
        env.out.write(all.dump(2, ' ', false, json::error_handler_t::replace) +
                      "\n");
    }
    if (found.findings.empty())
        throw not_recognised(
            found.problem.empty()
                ? "not recognised: no message about memory that this version "
                  "knows ('emuvctl diagnose --help' lists them)"
                : "not recognised: " + found.problem);
    if (options.output.json)
        return;
    const unsigned width = env.out.width();
    env.out.write(dia::screen(
        found, std::clamp<std::size_t>(width == 0 ? 80 : width, 60, 100)));
}

} // namespace

verb diagnose_verb()
{
    const auto options = std::make_shared<diagnose_options>();
    verb diagnose{
        "diagnose", "Machine", "explain an out-of-memory message",
        "Reads what a program said when memory ran out, from FILE or, without "
        "one or\nwith -, from standard input. Says which memory ran out, why, "
        "and what to do.\n\nIt knows PyTorch's messages, memory summaries and "
        "memory snapshots (pickles,\nread without running anything in them). "
        "It knows JAX and XLA, TensorFlow,\nllama.cpp, vLLM, the kernel's OOM "
        "killer, containers, and emuV's own lines.\nExits with 3 if it "
        "recognises nothing."};
    diagnose.arguments = {"FILE", &options->files, offered::files};
    diagnose.options = {json_flag(options->output)};
    diagnose.action = [options](environment &env) {
        cmd_diagnose(*options, env);
    };
    return diagnose;
}

} // namespace emuvctl

// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl bugreport: gathers facts that a maintainer asks for, and no secrets.
#include "environment.hpp"
#include "failure.hpp"
#include "kernel_log.hpp"
#include "output.hpp"
#include "settings.hpp"
#include "verbs.hpp"

#include <emuv/profile.hpp>
#include <emuv/version.hpp>

#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace emuvctl {

namespace {

constexpr std::size_t log_lines = 200;
constexpr std::size_t trace_lines = 200;

struct bugreport_options
{
    std::string output;
};

class text_sink final : public sink
{
public:
    void write(std::string_view more) override { text += more; }

    std::string text;
};

class report
{
public:
    explicit report(const environment &env) : env_(env) {}

    void section(std::string_view title)
    {
        text += fmt::format("{}== {}\n", text.empty() ? "" : "\n", title);
    }

    void line(std::string_view name, std::string_view value)
    {
        text += fmt::format("{}: {}\n", name,
                            value.empty() ? "-" : printable(value));
    }

    /// The first line of a file, or "-".
    void file(std::string_view name, const std::filesystem::path &path)
    {
        line(name, emuv::read_line_file(path).value_or(""));
    }

    /// Output of another verb, messages and exit status with it.
    void verb(std::vector<std::string> arguments)
    {
        text_sink said;
        environment inner{said,      said,       env_.kernel, env_.modules,
                          env_.sys,  env_.proc,  env_.dev,    env_.run,
                          env_.wait, env_.clock, env_.cuda,   {}};
        inner.nvml = env_.nvml;
        const int status = emuvctl::run(arguments, inner);
        text += said.text;
        if (status != 0)
            text += fmt::format("[exit {}]\n", status);
    }

    std::string text;

private:
    const environment &env_;
};

void add_versions(report &to, const environment &env)
{
    to.section("versions");
    to.line("emuvctl", emuv::version());
    to.file("module loaded", env.sys / "module/emuv/version");
    to.file("kernel", env.proc / "sys/kernel/osrelease");
    to.file("kernel build", env.proc / "sys/kernel/version");
    to.file("NVIDIA driver", env.proc / "driver/nvidia/version");
}

// Only variables that settings.def lists: others may hold secrets.
void add_settings(report &to)
{
    to.section("settings in the environment");
    for (const setting &each : settings())
        if (const auto value = each.of_caller(); !value.empty())
            to.line(each.variable, value);
}

void add_kernel_log(report &to, const environment &env)
{
    to.section("kernel log, the module's lines");
    std::deque<std::string> kept;
    for (std::string &each :
         kernel_log(env.dev / "kmsg", kernel_log::from::boot).lines()) {
        kept.push_back(std::move(each));
        if (kept.size() > log_lines)
            kept.pop_front();
    }
    for (const std::string &each : kept)
        to.text += printable(each) + "\n";
}

// The end of the trace that the environment asks for.
void add_trace(report &to)
{
    const std::string path = setting_of("EMUV_TRACE").of_caller();
    if (path.empty())
        return;
    to.section(fmt::format("last lines of the trace {}", printable(path)));
    std::ifstream file(path);
    if (!file) {
        to.text += "cannot be read\n";
        return;
    }
    std::deque<std::string> kept;
    for (std::string each; std::getline(file, each);) {
        kept.push_back(printable(each));
        if (kept.size() > trace_lines)
            kept.pop_front();
    }
    for (const std::string &each : kept)
        to.text += each + "\n";
}

void cmd_bugreport(const bugreport_options &options, environment &env)
{
    report all(env);
    add_versions(all, env);
    all.section("emuvctl doctor");
    all.verb({"doctor"});
    all.section("emuvctl info --bytes");
    all.verb({"info", "--bytes"});
    add_settings(all);
    add_kernel_log(all, env);
    add_trace(all);
    if (options.output.empty()) {
        env.out.write(all.text);
        return;
    }
    std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
    file << all.text;
    file.close();
    if (!file)
        throw failure(
            fmt::format("cannot write {}", printable(options.output)));
    env.say(fmt::format("wrote {}; read it before you send it",
                        printable(options.output)));
}

} // namespace

verb bugreport_verb()
{
    const auto options = std::make_shared<bugreport_options>();
    verb bugreport{
        "bugreport", "Machine", "gather what a report of a fault needs",
        "Prints versions, the findings of doctor, all instances and the "
        "settings\n"
        "in the environment. The module's lines of the kernel log follow, and "
        "the end\n"
        "of the trace that EMUV_TRACE names. Other variables, host names and\n"
        "command lines are left out."};
    bugreport.options = {{"-o,--output", "FILE", "write to FILE instead",
                          &options->output, offered::files}};
    bugreport.action = [options](environment &env) {
        cmd_bugreport(*options, env);
    };
    return bugreport;
}

} // namespace emuvctl

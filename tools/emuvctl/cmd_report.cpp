// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl report: a trace or a tape as a page that a browser shows.
#include "environment.hpp"
#include "failure.hpp"
#include "output.hpp"
#include "report/page.hpp"
#include "score_file.hpp"
#include "verbs.hpp"
#include "watch/text_file.hpp"

#include <emuv/error.hpp>
#include <emuv/version.hpp>

#include <memory>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace emuvctl {

namespace {

namespace rep = emuv::report;

struct report_options
{
    std::vector<std::string> files;
    std::string page;
    std::string score;
    output_options output;
};

std::optional<rep::score> score_of(const report_options &options)
{
    if (options.score.empty())
        return {};
    return rep::read_score_file(options.score);
}

void write_page(const std::string &path, const std::string &text,
                environment &env)
{
    if (path == "-") {
        env.out.write(text);
        return;
    }
    try {
        watch::replace_file(path, text);
    } catch (const std::system_error &problem) {
        const bool special = problem.code() == std::errc::invalid_argument;
        throw failure(
            fmt::format("cannot write {}: {}", printable(path),
                        special ? "it is not a regular file"
                                : emuv::errno_text(problem.code().value())));
    }
    env.say(fmt::format("wrote {}", printable(path)));
}

void cmd_report(const report_options &options, environment &env)
{
    if (options.files.size() > rep::most_runs)
        throw usage_error("one file, or two to compare");
    if (options.output.json && !options.page.empty())
        throw usage_error("--json goes to standard output; --output is the "
                          "page's");
    std::vector<rep::run> runs;
    try {
        for (const std::string &each : options.files)
            runs.push_back(rep::read(each));
        const auto expected = score_of(options);
        if (options.output.json) {
            env.out.write(rep::summary_json(runs, expected));
            return;
        }
        const std::string path = options.page.empty()
                                     ? options.files.front() + ".html"
                                     : options.page;
        write_page(path,
                   rep::page(runs, expected,
                             fmt::format("emuvctl {}", emuv::version())),
                   env);
    } catch (const rep::unreadable &problem) {
        throw failure(problem.what());
    }
}

} // namespace

verb report_verb()
{
    const auto options = std::make_shared<report_options>();
    verb report{
        "report", "Machine", "make a page of a trace or a tape",
        "Writes one page of HTML: memory over time, what moved and why, the\n"
        "biggest holders, time lost to the link. With two files it compares "
        "them.\n"
        "  emuvctl report trace.json\n"
        "  emuvctl report before.json after.json -o compared.html\n"
        "  emuvctl report trace.json --score\n"
        "FILE is what 'emuvctl run --trace' or --record wrote, also if the "
        "program\nwas killed. The page is FILE.html unless --output says "
        "another; one of before\nis replaced. It loads nothing from "
        "elsewhere."};
    report.arguments = {"FILE", &options->files, offered::files, true};
    option score{"--score", "FILE",
                 "an estimate beside it, with what 'run --score' added;\n"
                 "without =FILE the one that 'estimate --save' kept",
                 &options->score, offered::files};
    score.implied = usual_score_file();
    report.options = {{"-o,--output", "FILE", "the page; '-': standard output",
                       &options->page, offered::files},
                      std::move(score),
                      json_flag(options->output)};
    report.action = [options](environment &env) { cmd_report(*options, env); };
    return report;
}

} // namespace emuvctl

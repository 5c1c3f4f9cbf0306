// SPDX-License-Identifier: GPL-2.0-or-later
// Traces and estimates, as emuvctl report reads them. The first byte says
// which.
#include "fuzz.hpp"
#include "report/page.hpp"

#include <cmath>

namespace report = emuv::report;

namespace {

void is_page(const std::string &text)
{
    fuzz::must(text.starts_with("<!DOCTYPE html>"), "a page is HTML");
    fuzz::must(text.find("<script") == std::string::npos,
               "a page runs nothing");
    fuzz::must(text.size() < std::size_t{4} << 20, "a page is small");
}

void read_trace(std::string_view text)
{
    const report::run made = report::read_trace("file", text);
    fuzz::must(std::isfinite(made.seconds) && made.seconds >= 0,
               "time goes on");
    fuzz::must(made.moved.size() <= 64, "sums are few");
    for (const report::sum &each : made.moved)
        fuzz::must(std::isfinite(each.bytes), "sums are finite");
    is_page(report::page({&made, 1}, {}, "fuzz"));
    fuzz::must(!report::summary_json({&made, 1}, {}).empty(), "JSON is there");
}

void read_score(std::string_view text)
{
    const report::score made = report::read_score("file", text);
    fuzz::must(!report::lines_of(made).empty(), "an estimate has a peak");
    fuzz::must(!report::score_json(made).empty(), "JSON is there");
    const std::string again = report::with_came("file", text, {});
    fuzz::must(report::read_score("file", again).came.has_value(),
               "what came is read again");
    const report::run empty;
    is_page(report::page({&empty, 1}, made, "fuzz"));
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0)
        return 0;
    const auto text = fuzz::text_of(data + 1, size - 1);
    try {
        if (data[0] % 2 == 0)
            read_trace(text);
        else
            read_score(text);
    } catch (const report::unreadable &problem) {
        fuzz::must(problem.what()[0] != '\0', "a refused file has a reason");
    }
    return 0;
}

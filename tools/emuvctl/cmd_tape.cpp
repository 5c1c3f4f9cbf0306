// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl tape: what the tapes of programs hold.
#include "environment.hpp"
#include "failure.hpp"
#include "tape.hpp"
#include "verbs.hpp"

#include <array>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace emuvctl {

namespace tape = emuv::tape;

namespace {

struct tape_options
{
    std::vector<std::string> files;
    output_options output;
};

constexpr std::array<column, 17> columns = {{
    {"file", "FILE", kind::text, "the file"},
    {"program", "PROGRAM", kind::text, "the program that was recorded"},
    {"card", "CARD", kind::text, "the card that it ran on"},
    {"time", "TIME", kind::nanoseconds, "from the first call to the last"},
    {"device", "DEVICE", kind::nanoseconds,
     "time of its launches on the device, where it is known"},
    {"step", "STEP", kind::nanoseconds,
     "time from one mark of the program's to the next; the median"},
    {"peak", "PEAK", kind::bytes, "device memory that it had at most"},
    {"allocations", "ALLOCATIONS", kind::number, "allocations"},
    {"launches", "LAUNCHES", kind::number, "launches of kernels"},
    {"timed", "TIMED", kind::number, "launches whose own time is known"},
    {"kernels", "KERNELS", kind::number, "kernels, by name"},
    {"shapes", "SHAPES", kind::number, "kernels with their grids"},
    {"graphs", "GRAPHS", kind::number, "launches of CUDA graphs"},
    {"copies", "COPIES", kind::number, "copies"},
    {"copied", "COPIED", kind::bytes, "bytes of all copies"},
    {"streams", "STREAMS", kind::number, "streams, with the default ones"},
    {"ended", "ENDED", kind::text,
     "yes, no if the program was ended, or cut within a record"},
}};

row row_of(const std::string &file, const tape::tape &of)
{
    const tape::summary is = tape::summarize(of);
    const auto text = [](std::string_view said) {
        return said.empty() ? cell() : cell(printable(said));
    };
    const auto number = [](std::size_t count) {
        return cell(std::uint64_t{count});
    };
    row made;
    made.cells = {printable(file),
                  text(of.said("program")),
                  text(of.said("card")),
                  is.host_ns,
                  is.device_ns,
                  is.step_ns != 0 ? cell(is.step_ns) : cell(),
                  is.peak_bytes,
                  is.allocations,
                  is.launches,
                  of.timed,
                  number(of.kernels.size()),
                  number(of.shapes.size()),
                  is.graph_launches,
                  is.copies,
                  is.copied_bytes,
                  number(of.streams),
                  std::string(of.cut     ? "cut"
                              : of.ended ? "yes"
                                         : "no")};
    return made;
}

void cmd_tape(const tape_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {
        "file",     "program", "time",   "step", "peak",
        "launches", "graphs",  "copies", "ended"};
    printer print(options.output, columns, defaults);
    listing list;
    list.name = "tapes";
    list.columns = columns;
    for (const auto &path : options.files) {
        tape::tape of;
        tape::wrong error;
        if (!tape::read_file(path, of, error))
            throw failure(fmt::format("{}: {}", printable(path), error.why));
        list.rows.push_back(row_of(path, of));
    }
    print.print(list, env);
}

} // namespace

verb tape_verb()
{
    const auto options = std::make_shared<tape_options>();
    verb tape{"tape", "Machine", "tell what the tapes of programs hold",
              "Reads tapes that `emuvctl run --record FILE` made, also those "
              "that zstd or gzip compressed. Lists what each holds."};
    tape.arguments = {"FILE", &options->files, offered::files, true};
    add_output(tape, options->output, columns);
    tape.action = [options](environment &env) { cmd_tape(*options, env); };
    return tape;
}

} // namespace emuvctl

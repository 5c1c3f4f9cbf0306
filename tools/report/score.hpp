// SPDX-License-Identifier: GPL-2.0-or-later
// An estimate beside what came: the file that `emuvctl estimate --save` writes
// and `emuvctl run --score` adds to.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emuv::report {

/// The memory and the time that a run took.
struct came
{
    double peak_vram = 0; ///< bytes, of the process that held most
    double peak_ram = 0;  ///< bytes, of the same
    std::optional<double> step_ms = {}; ///< of the program's own rhythm
    unsigned processes = 0;             ///< that used a card
    std::string ended = {};             ///< "0", "signal 9"
};

struct score
{
    /// Three answers to a question.
    struct range
    {
        double low = 0;
        double likely = 0;
        double high = 0;
    };
    std::string model;
    std::string job;              ///< "train, batch 4"
    std::string gpu;              ///< empty if none was named
    range peak;                   ///< bytes
    std::optional<range> spilled; ///< bytes
    std::optional<range> pass_ms;
    std::optional<range> token_ms;
    std::optional<report::came> came;
};

/// Reads an estimate, as `emuvctl estimate --json` prints it too.
/// @param name  for messages @throws unreadable
score read_score(const std::string &name, std::string_view text);
/// The same of a file. @throws unreadable, std::system_error
score read_score_file(const std::string &path);

/// The text with what came in it, in the place of what stood there.
/// @throws unreadable
std::string with_came(const std::string &name, std::string_view text,
                      const came &what);

/// True if both texts are of one estimate, whatever came of it.
bool same_estimate(std::string_view one, std::string_view other);

/// A line of the comparison, in words.
struct score_line
{
    std::string what = {}; ///< "memory in all"
    std::string low;
    std::string likely;
    std::string high;
    std::string came;
    std::string verdict; ///< "within, 5 % above likely"
};

/// The estimate beside what came, which may be "not known".
std::vector<score_line> lines_of(const score &of);

} // namespace emuv::report

// SPDX-License-Identifier: GPL-2.0-or-later
// One run of a program, as a trace or a tape tells of it: sums, and values over
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace emuv::report {

/// A file cannot be reported on. what() says which, and what it is.
class unreadable : public std::runtime_error
{
public:
    using std::runtime_error::runtime_error;
};

enum class source
{
    trace, ///< of what moved: `emuvctl run --trace`
    tape,  ///< of what the program did: `emuvctl run --record`
};

/// A line or an area of a chart. Values are of equal parts of the time.
struct track
{
    std::string name = {};
    std::vector<double> values = {};
};

/// Bytes held, by device: areas upon each other.
struct device_memory
{
    unsigned device = 0;
    std::vector<track> held;      ///< bytes
    std::vector<track> crossed;   ///< bytes a second, to the card and from it
    std::vector<track> lent = {}; ///< the same, of other cards; may be empty
};

/// Events of one kind, added up.
struct sum
{
    std::string row = {};  ///< "to VRAM"
    std::string name = {}; ///< "fetch"
    std::uint64_t count = 0;
    double bytes = 0;
    double seconds = 0;
};

/// Memory that stands out.
struct holder
{
    std::string what = {}; ///< its address, or its place among the allocations
    std::string kind = {}; ///< of a tape's: "cuMemAlloc"
    double bytes = 0;
    double to_vram = 0; ///< bytes
    double to_ram = 0;  ///< bytes
    std::uint64_t moves = 0;
    double since = 0; ///< seconds; of a tape's
};

/// A kernel that stands out.
struct kernel
{
    std::string name = {};
    std::string why = {};    ///< of a trace's: why it is not trusted
    std::uint64_t count = 0; ///< of a tape's
    double seconds = 0;      ///< of a tape's, on the device
};

struct run
{
    std::string file;
    source from = source::trace;
    bool cut = false;  ///< the file ends in the middle
    bool ended = true; ///< of a tape: the program ended in order
    std::string why_cut;
    std::vector<std::pair<std::string, std::string>> about; ///< of a tape

    double seconds = 0;              ///< from the first event to the last
    double part_seconds = 0;         ///< of the charts' parts
    std::optional<double> peak_vram; ///< bytes, of all devices together
    std::optional<double> peak_ram;
    std::optional<double> peak_cards; ///< of a trace's: lent by other cards
    double to_vram = 0;               ///< bytes that were copied there
    double to_ram = 0;                ///< ... from there
    double from_cards = 0;            ///< of to_vram: from other cards
    double to_cards = 0;              ///< of to_ram: to other cards
    double waited = 0;                ///< seconds, of all threads: for memory
    double missed = 0;                ///< bytes that foreseen work found in RAM
    double unforeseen = 0;            ///< bytes that other work found there
    std::optional<double> step;       ///< seconds; of a tape with marks

    std::vector<device_memory> devices;
    track waits; ///< seconds of each part
    std::vector<sum> moved;
    std::vector<holder> holders;
    bool holders_are_all = true; ///< else there were too many to follow
    std::vector<kernel> kernels;
    std::vector<std::string> notes; ///< sentences
};

/// Reads a trace or a tape, whichever it is. Takes a bounded amount of memory
/// for a trace of any size; tapes have a limit of their own.
/// @throws unreadable, std::system_error
run read(const std::string &path);

/// Reads a trace from memory. @param name  for messages @throws unreadable
run read_trace(const std::string &name, std::string_view content);

} // namespace emuv::report

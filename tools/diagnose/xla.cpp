// SPDX-License-Identifier: GPL-2.0-or-later
// Messages of XLA, below JAX and others.
#include "recognise.hpp"
#include "text.hpp"

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

// The largest buffer of the peak, as XLA lists it: "Size:", "Shape:".
void read_peak(std::string_view text, finding &into)
{
    const std::size_t at = text.find("Peak buffers:");
    if (at == none)
        return;
    const std::string_view first = text.substr(at, 4000);
    const auto bytes = figure_after(first, "Size: ");
    std::string shape = word_after(first, "Shape: ", "\n", 120);
    if (shape.empty())
        shape = word_after(first, "Subshape: ", "\n", 120);
    if (!bytes)
        return;
    into.tensor = shape;
    into.notes.push_back(fmt::format("The largest buffer has {}{}.",
                                     size(bytes->bytes),
                                     shape.empty() ? "" : ", as " + shape));
    const std::size_t bracket = shape.find('[');
    if (bracket == none)
        return;
    const std::string kind =
        kind_of_tensor(read_shape(std::string_view(shape).substr(bracket)));
    if (!kind.empty())
        into.same_size.push_back(kind + " (the largest buffer)");
}

} // namespace

std::optional<finding> find_xla(std::string_view text)
{
    finding made;
    made.from = source::xla;
    made.memory = memory_kind::vram;
    const std::size_t at = last(text, "RESOURCE_EXHAUSTED");
    if (at == none)
        return {};
    const std::string message = unbroken(text, at, 800);
    for (const std::string_view key :
         {"trying to allocate ", "Out of memory allocating ",
          "Failed to allocate request for "})
        if (!made.asked)
            made.asked = figure_after(message, key);
    if (message.find("Ran out of memory in memory space") != none) {
        const std::size_t used = message.find("Used ");
        made.held = figure_after(message, "Used ");
        if (used != none)
            made.total = figure_after(message, " of ", used);
        made.emuv_can_help = false; // a TPU's memory
    }
    // Of the CPU's device, by its own words.
    if (message.find("Out of memory allocating ") != none)
        made.memory = memory_kind::ram;
    if (!made.asked && !made.held)
        return {};
    made.line = line_of(text, at);
    made.times = count(text, "RESOURCE_EXHAUSTED");
    read_traceback(text, at, made);
    const std::string_view rest = text.substr(at);
    if (const auto all = figure_after(rest, "total allocation: "))
        made.notes.push_back(
            fmt::format("The whole computation needs {}.", size(all->bytes)));
    if (const auto pieces = figure_after(rest, "total fragmentation: "))
        made.notes.push_back(fmt::format("Of that {} are lost between buffers.",
                                         size(pieces->bytes)));
    read_peak(rest, made);
    if (made.same_size.empty() && made.asked)
        made.same_size = tensors_of(*made.asked);
    return made;
}

} // namespace emuv::diagnose

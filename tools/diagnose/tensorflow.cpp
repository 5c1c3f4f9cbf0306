// SPDX-License-Identifier: GPL-2.0-or-later
// TensorFlow's messages, with its allocator's dump.
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

std::uint64_t bytes_of_type(std::string_view type)
{
    if (type == "double" || type == "int64" || type == "uint64" ||
        type == "complex64")
        return 8;
    if (type == "half" || type == "bfloat16" || type == "int16")
        return 2;
    if (type == "bool" || type == "int8" || type == "uint8")
        return 1;
    return type == "float" || type == "int32" || type == "uint32" ? 4 : 0;
}

// "Limit:", "InUse:", "MaxInUse:", as the allocator prints them.
void read_statistics(std::string_view text, finding &into)
{
    const std::size_t at = last(text, "Limit: ");
    if (at == none)
        return;
    const std::string_view rest = text.substr(at, 1200);
    const auto held = figure_after(rest, "InUse: ");
    if (!held)
        return;
    into.held = held;
    into.total = figure_after(rest, "Limit: ");
    into.peak = figure_after(rest, "MaxInUse: ");
    if (into.total)
        into.free = figure{minus(into.total->bytes, held->bytes), 0};
    const auto largest = figure_after(rest, "LargestFreeBlock: ");
    if (largest && largest->bytes > 0)
        into.notes.push_back(fmt::format("The largest free piece has {}.",
                                         size(largest->bytes)));
}

} // namespace

std::optional<finding> find_tensorflow(std::string_view text)
{
    finding made;
    made.from = source::tensorflow;
    made.memory = memory_kind::vram;
    std::size_t at = last(text, "OOM when allocating tensor with shape");
    if (at != none) {
        const std::string message = unbroken(text, at, 600);
        const std::size_t bracket = message.find('[');
        const auto shape =
            bracket == none
                ? std::vector<std::uint64_t>()
                : read_shape(std::string_view(message).substr(bracket));
        const std::string type = word_after(message, " and type ", " \n", 20);
        if (shape.empty())
            return {};
        std::uint64_t bytes = bytes_of_type(type.empty() ? "float" : type);
        for (const std::uint64_t side : shape)
            bytes = times(bytes, side);
        if (bytes > 0)
            made.asked = figure{bytes, 0};
        made.tensor =
            type + message.substr(bracket, message.find(']') + 1 - bracket);
        if (message.find("device:CPU") != none)
            made.memory = memory_kind::ram;
        if (const auto gpu = number_after(message, "device:GPU:"))
            made.device = fmt::format("GPU {}", *gpu);
        const std::string kind = kind_of_tensor(shape);
        if (!kind.empty())
            made.same_size.push_back(kind);
    } else {
        at = last(text, "ran out of memory trying to allocate ");
        if (at == none || last(text, "llocator") == none)
            return {};
        // A warning, as the library under JAX gives it, too.
        if (unbroken(text, at, 400).find("this is not a failure") != none)
            return {};
        const std::string_view before =
            text.substr(0, at).substr(at - std::min<std::size_t>(at, 40));
        if (before.find("cpu") != none)
            made.memory = memory_kind::ram;
        made.asked =
            figure_after(text, "ran out of memory trying to allocate ", at);
        if (!made.asked)
            return {};
    }
    made.line = line_of(text, at);
    made.times =
        std::max<std::size_t>(count(text, "OOM when allocating tensor"), 1);
    read_statistics(text, made);
    read_traceback(text, at, made);
    return made;
}

} // namespace emuv::diagnose

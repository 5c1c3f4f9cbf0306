// SPDX-License-Identifier: GPL-2.0-or-later
// Messages of llama.cpp and whatever else is made on ggml.
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

// The buffers of a device before that: "CUDA0 KV buffer size =  5120.00 MiB".
void read_buffers(std::string_view text, const std::string &backend,
                  finding &into)
{
    std::uint64_t sum = 0;
    for (auto at = text.find(" buffer size ="); at != none;
         at = text.find(" buffer size =", at + 1)) {
        // Behind the line's break, or the last part of a line that is too long.
        std::string_view head = text.substr(0, at);
        head = head.substr(at - std::min<std::size_t>(at, 200));
        head = head.substr(head.rfind('\n') + 1);
        const auto bytes = figure_after(text.substr(at, 80), "size =");
        if (!bytes || head.find(backend + " ") == none)
            continue;
        sum = plus(sum, bytes->bytes);
        const std::size_t name = head.rfind(backend + " ");
        into.notes.push_back(
            fmt::format("{} takes {}.", head.substr(name), size(bytes->bytes)));
        if (into.notes.size() > 6)
            break;
    }
    if (sum > 0)
        into.held = figure{sum, 0};
}

} // namespace

std::optional<finding> find_ggml(std::string_view text)
{
    finding made;
    made.from = source::ggml;
    made.memory = memory_kind::vram;
    std::string backend = "CUDA0";
    std::size_t at = last(text, "cudaMalloc failed: out of memory");
    if (at != none) {
        const std::size_t begin = text.rfind('\n', at) + 1;
        const std::string_view line = text.substr(begin, at - begin);
        made.asked = figure_after(line, "allocating ");
        if (const auto device = number_after(line, "on device ")) {
            made.device = fmt::format("GPU {}", *device);
            backend = fmt::format("CUDA{}", *device);
        }
    } else if ((at = last(text, "of pinned memory")) != none &&
               last(text, "ggml") != none) {
        made.memory = memory_kind::ram;
        const std::size_t begin = text.rfind('\n', at) + 1;
        made.asked = figure_before(text.substr(begin, at - begin + 3), " of");
    } else if ((at = last(text, "failed to allocate ")) != none) {
        const std::string message = unbroken(text, at, 200);
        made.asked = figure_after(message, "buffer of size ");
        backend = word_after(message, "failed to allocate ", " \n", 20);
        if (backend.starts_with("CPU") || backend.find("Host") != none)
            made.memory = memory_kind::ram;
        else if (!backend.starts_with("CUDA") && !backend.starts_with("ROCm") &&
                 !backend.starts_with("Vulkan"))
            return {};
    } else {
        return {};
    }
    if (!made.asked)
        return {};
    // emuV serves CUDA alone.
    made.emuv_can_help = backend.starts_with("CUDA");
    made.line = line_of(text, at);
    made.times = count(text, "cudaMalloc failed: out of memory");
    const std::string_view rest = text.substr(at, 1500);
    const bool computes =
        rest.find("compute ") != none || rest.find("gallocr") != none;
    if (rest.find("alloc_tensor_range") != none ||
        rest.find("error loading model") != none)
        made.at = phase::loading;
    if (made.at == phase::loading)
        made.notes.push_back("It was the model's weights.");
    else if (rest.find("KV cache") != none || rest.find("kv cache") != none ||
             rest.find("kv_cache") != none)
        made.notes.push_back("It was the KV cache, by the context's length.");
    else if (computes)
        made.notes.push_back("It was the buffer of a computation, by the "
                             "length of the context and of a batch.");
    read_buffers(text.substr(0, at), backend, made);
    return made;
}

} // namespace emuv::diagnose

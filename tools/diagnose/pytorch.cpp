// SPDX-License-Identifier: GPL-2.0-or-later
// PyTorch's messages: of the caching allocator, of arrays in system RAM, and of
// workers that load data.
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

constexpr std::string_view begins[] = {"CUDA out of memory. Tried to allocate",
                                       "HIP out of memory. Tried to allocate",
                                       "Tried to allocate"};

// The bytes that were held as each message came: a program may go on.
std::vector<std::uint64_t> held_by_message(std::string_view text)
{
    std::vector<std::uint64_t> held;
    for (auto at = text.find("Tried to allocate"); at != none;
         at = text.find("Tried to allocate", at + 1)) {
        const std::string message = unbroken(text, at, 800);
        auto found = figure_before(message, " is allocated by PyTorch");
        if (!found)
            found = figure_before(message, " already allocated");
        if (found)
            held.push_back(found->bytes);
    }
    return held;
}

void read_growth(const std::vector<std::uint64_t> &held, finding &into)
{
    if (held.size() < 3 || !std::is_sorted(held.begin(), held.end()) ||
        held.back() - held.front() < held.back() / 10)
        return;
    into.causes.push_back(
        {cause_kind::leak,
         fmt::format("The program's memory grew from {} to {} over {} "
                     "messages, and never fell.",
                     size(held.front()), size(held.back()), held.size())});
}

// Since 2.1: "GPU 0 has a total capacity of ... of which ... is free."
void read_new(std::string_view message, finding &into)
{
    into.total = figure_after(message, " has a total capacity of ");
    if (!into.total) // as versions 2.0 and 2.1 spelled it
        into.total = figure_after(message, " has a total capacty of ");
    into.free = figure_before(message, " is free");
    into.process_total =
        figure_after(message, "non-PyTorch memory, this process has ");
    into.held = figure_before(message, " is allocated by PyTorch");
    into.cached =
        figure_before(message, " is reserved by PyTorch but unallocated");
    into.limit = figure_before(message, " allowed;");
    if (const auto graphs =
            figure_before(message, " allocated in private pools"))
        into.notes.push_back(
            fmt::format("CUDA graphs hold {} of that in pools of their own.",
                        size(graphs->bytes)));
    if (const auto other = figure_after(message, " is free. Process "))
        into.notes.push_back(
            fmt::format("Process {} is on the card, too.", other->bytes));
}

// Before: "(GPU 0; 11.76 GiB total capacity; 9.30 GiB already allocated; ..."
void read_old(std::string_view message, finding &into)
{
    into.total = figure_before(message, " total capacity");
    into.held = figure_before(message, " already allocated");
    into.free = figure_before(message, " free;");
    auto reserved = figure_before(message, " reserved in total");
    // The oldest versions call the unused part alone "cached".
    if (reserved && into.held)
        into.cached = figure{minus(reserved->bytes, into.held->bytes),
                             plus(reserved->slack, into.held->slack)};
    else
        into.cached = figure_before(message, " cached)");
}

} // namespace

std::optional<finding> find_pytorch(std::string_view text)
{
    for (const std::string_view begin : begins) {
        const std::size_t at = last(text, begin);
        if (at == none)
            continue;
        const std::string message = unbroken(text, at, 1500);
        finding made;
        made.from = source::pytorch;
        made.memory = memory_kind::vram;
        made.asked = figure_after(message, "Tried to allocate ");
        made.emuv_can_help = !begin.starts_with("HIP"); // of AMD's cards
        if (!made.asked)
            return {};
        made.line = line_of(text, at);
        made.times = count(text, begin);
        if (message.find(" already allocated") != none)
            read_old(message, made);
        else
            read_new(message, made);
        // Words alone are no message of the allocator's.
        if (begin == begins[2] && !made.total && !made.held)
            return {};
        if (const auto gpu = number_after(message, "GPU "))
            made.device = fmt::format("GPU {}", *gpu);
        read_traceback(text, at, made);
        read_growth(held_by_message(text), made);
        if (made.asked->bytes == std::uint64_t{20} << 20)
            made.notes.push_back("PyTorch asks for 20 MiB where a tensor needs "
                                 "1 to 10 MiB.");
        if (made.asked->bytes == std::uint64_t{2} << 20)
            made.notes.push_back("PyTorch asks for 2 MiB where a tensor needs "
                                 "less than 1 MiB.");
        made.same_size = tensors_of(*made.asked);
        return made;
    }
    return {};
}

std::optional<finding> find_host_arrays(std::string_view text)
{
    finding made;
    made.from = source::pytorch_host;
    made.memory = memory_kind::ram;
    std::size_t at = last(text, "you tried to allocate ");
    if (at != none && last(text, "DefaultCPUAllocator") != none) {
        made.asked = figure_after(text, "you tried to allocate ", at);
    } else if ((at = last(text, "Unable to allocate ")) != none) {
        const std::string message = unbroken(text, at, 300);
        if (message.find(" for an array with shape ") == none)
            return {};
        made.from = source::numpy;
        made.asked = figure_after(message, "Unable to allocate ");
        const std::string type = word_after(message, "data type ", " \n,;");
        made.tensor =
            type + " (" + word_after(message, "with shape (", ")") + ")";
    } else {
        return {};
    }
    if (!made.asked)
        return {};
    made.line = line_of(text, at);
    read_traceback(text, at, made);
    return made;
}

std::optional<finding> find_workers(std::string_view text)
{
    finding made;
    made.from = source::pytorch_workers;
    made.memory = memory_kind::ram;
    std::size_t at = last(text, "out of shared memory");
    if (at != none && last(text, "workers are out of shared memory") == none &&
        last(text, "Bus error") == none)
        return {};
    if (at != none)
        made.causes.push_back({cause_kind::limit,
                               "The workers of a DataLoader hand their batches "
                               "over in /dev/shm, and that is full."});
    else if ((at = last(text, "DataLoader worker (pid")) != none &&
             text.find("is killed by signal: Killed", at) - at < 200) {
        made.memory = memory_kind::unknown;
        made.causes.push_back({cause_kind::unknown,
                               "Somebody sent SIGKILL to a worker of the "
                               "DataLoader. The kernel does so when RAM runs "
                               "out, but it is not alone in that."});
        if (const auto pid = number_after(text, "DataLoader worker (pid", at))
            made.process = fmt::format("worker ({})", *pid);
    } else {
        return {};
    }
    made.line = line_of(text, at);
    return made;
}

std::optional<finding> find_cuda(std::string_view text)
{
    static constexpr std::array<std::string_view, 6> words = {
        "CUDA error: out of memory",       "CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation",       "CUDA out of memory",
        "OutOfMemoryError: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"};
    for (const std::string_view word : words) {
        const std::size_t at = last(text, word);
        if (at == none)
            continue;
        finding made;
        made.from = source::cuda;
        made.memory = memory_kind::vram;
        made.line = line_of(text, at);
        made.times = count(text, word);
        read_traceback(text, at, made);
        return made;
    }
    return {};
}

} // namespace emuv::diagnose

// SPDX-License-Identifier: GPL-2.0-or-later
// vLLM's messages as it starts.
#include "recognise.hpp"
#include "text.hpp"

#include <fmt/format.h>

namespace emuv::diagnose {

std::optional<finding> find_vllm(std::string_view text)
{
    finding made;
    made.from = source::vllm;
    made.memory = memory_kind::vram;
    std::size_t at = last(text, "No available memory for the cache blocks");
    if (at != none) {
        made.causes.push_back({cause_kind::too_small,
                               "Weights and one step's activations take all "
                               "that vLLM may use, so "
                               "nothing is left for its KV cache."});
    } else if ((at = last(text, "max seq len (")) != none) {
        const std::string message = unbroken(text, at, 800);
        made.tokens_asked = number_after(message, "max seq len (");
        made.tokens_fit = number_after(message, "stored in KV cache (");
        if (!made.tokens_fit)
            made.tokens_fit =
                number_after(message, "estimated maximum model length is ");
        made.asked = figure_before(message, " KV cache is needed");
        made.free = figure_after(message, "available KV cache memory (");
        if (!made.tokens_asked || (!made.tokens_fit && !made.asked))
            return {};
        made.causes.push_back(
            {cause_kind::too_small,
             made.tokens_fit
                 ? fmt::format("The KV cache has room for {} tokens, and one "
                               "request may have {}.",
                               *made.tokens_fit, *made.tokens_asked)
                 : fmt::format("One request of {} tokens needs a larger KV "
                               "cache than there is.",
                               *made.tokens_asked)});
    } else if ((at = last(text, "Free memory on device")) != none) {
        const std::string message = unbroken(text, at, 500);
        if (message.find("gpu memory utilization") == none &&
            message.find("GPU memory utilization") == none)
            return {};
        // "(10.10/23.64 GiB)": one unit for both.
        made.free = read_figure(word_after(message, "(", "/", 20) + " GiB");
        made.total = figure_after(message, "/");
        made.asked = figure_before(message, ").");
        if (!made.asked)
            made.asked = figure_before(message, ")");
        if (!made.free || !made.total)
            return {};
        made.causes.push_back(
            {cause_kind::others,
             fmt::format("Only {} of {} are free as vLLM starts: others hold "
                         "the rest.",
                         size(made.free->bytes), size(made.total->bytes))});
    } else {
        return {};
    }
    made.line = line_of(text, at);
    return made;
}

} // namespace emuv::diagnose

// SPDX-License-Identifier: GPL-2.0-or-later
// The place in a Python program: the traceback above a message.
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

struct frame
{
    std::string file;
    std::uint64_t line = 0;
    std::string function;
    std::string code;
};

// The frames of the last traceback before @p at, the innermost last.
std::vector<frame> frames_before(std::string_view text, std::size_t at)
{
    constexpr std::size_t most = 40'000; // bytes of a long traceback
    const std::size_t from = at > most ? at - most : 0;
    std::string_view part = text.substr(from, at - from);
    // Only of the last one: an earlier error was another one.
    const std::size_t begin = part.rfind("Traceback (most recent call last)");
    if (begin == none)
        return {};
    part = part.substr(begin);
    std::vector<frame> made;
    for (auto next = part.find("File \""); next != none;
         next = part.find("File \"", next + 1)) {
        frame one;
        const std::string_view rest = part.substr(next, 1000);
        one.file = word_after(rest, "File \"", "\"\n", 400);
        one.line = number_after(rest, "line ").value_or(0);
        one.function = word_after(rest, ", in ", "\n", 80);
        const std::size_t line_end = rest.find('\n');
        if (line_end != none) {
            std::string_view code = rest.substr(line_end + 1);
            code = code.substr(0, code.find('\n'));
            const std::size_t first = code.find_first_not_of(' ');
            if (first != none)
                one.code = code.substr(first, 200);
        }
        made.push_back(std::move(one));
    }
    return made;
}

bool has_any(const frame &of, std::initializer_list<std::string_view> words)
{
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
        return of.code.find(word) != none || of.function.find(word) != none ||
               of.file.find(word) != none;
    });
}

phase phase_of(const std::vector<frame> &frames)
{
    const auto any = [&](std::initializer_list<std::string_view> words) {
        return std::any_of(
            frames.begin(), frames.end(),
            [&](const frame &each) { return has_any(each, words); });
    };
    if (any({"/optim/", "optimizer.step", "exp_avg"}))
        return phase::optimizer;
    if (any({"run_backward", "loss.backward("}))
        return phase::backward;
    if (any({"from_pretrained", "load_state_dict", "torch.load(", "_apply("}))
        return phase::loading;
    if (frames.empty())
        return phase::unknown;
    const frame &inner = frames.back();
    if (has_any(inner, {"attn", "attention", "key.transpose", "scaled_dot"}))
        return phase::attention;
    if (has_any(inner, {"lm_head", "logits", "cross_entropy"}))
        return phase::logits;
    return phase::unknown;
}

} // namespace

void read_traceback(std::string_view text, std::size_t at, finding &into)
{
    const auto frames = frames_before(text, at);
    if (frames.empty())
        return;
    into.at = phase_of(frames);
    // The innermost frame of the program's own.
    const auto own =
        std::find_if(frames.rbegin(), frames.rend(), [](const frame &each) {
            return each.file.find("site-packages") == none &&
                   each.file.find("dist-packages") == none &&
                   each.file.find("/lib/python") == none &&
                   each.file.find('<') == none;
        });
    const frame &shown = own != frames.rend() ? *own : frames.back();
    const std::size_t slash = shown.file.rfind('/');
    into.where = fmt::format(
        "{}:{}", slash == none ? shown.file : shown.file.substr(slash + 1),
        shown.line);
    if (!shown.function.empty())
        into.where += ", in " + shown.function;
    if (!shown.code.empty())
        into.where += ": " + shown.code.substr(0, 60);
}

} // namespace emuv::diagnose

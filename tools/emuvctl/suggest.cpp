// SPDX-License-Identifier: GPL-2.0-or-later
// Finds the word that a mistyped one was meant to be.
#include "suggest.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace emuvctl {

namespace {

std::string lower(std::string_view text)
{
    std::string result(text);
    std::transform(
        result.begin(), result.end(), result.begin(),
        [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return result;
}

// Letters changed, added, left out, or swapped with their neighbour.
std::size_t distance(std::string_view a, std::string_view b)
{
    std::vector<std::size_t> before;
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> line(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); j++)
        line[j] = j;
    for (std::size_t i = 1; i <= a.size(); i++) {
        before = std::exchange(last, line);
        line[0] = i;
        for (std::size_t j = 1; j <= b.size(); j++) {
            const bool same = a[i - 1] == b[j - 1];
            line[j] = std::min(
                {last[j] + 1, line[j - 1] + 1, last[j - 1] + (same ? 0U : 1U)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                line[j] = std::min(line[j], before[j - 2] + 1);
        }
    }
    return line[b.size()];
}

} // namespace

std::string nearest(std::string_view given, std::span<const std::string> known)
{
    constexpr std::size_t longest = 64; // nobody mistypes so long a word
    const std::string word = lower(given);
    if (word.size() < 2 || word.size() > longest)
        return {};
    std::string best;
    // One letter in three may be wrong.
    std::size_t least = std::max<std::size_t>(word.size() / 3, 1) + 1;
    for (const auto &each : known) {
        const std::string candidate = lower(each);
        const std::size_t away =
            candidate.starts_with(word) ? 1 : distance(word, candidate);
        if (away < least) {
            least = away;
            best = each;
        }
    }
    return best;
}

std::string did_you_mean(std::string_view given,
                         std::span<const std::string> known)
{
    const std::string word = nearest(given, known);
    return word.empty() ? "" : fmt::format("; did you mean '{}'?", word);
}

} // namespace emuvctl

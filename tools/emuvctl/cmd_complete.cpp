// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl __complete: prints a shell's completion file. The build calls it; the
// help does not show it.
#include "completion.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "verbs.hpp"

#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace emuvctl {

namespace {

void cmd_complete(const std::string &shell, environment &env)
{
    auto verbs = all_verbs();
    std::erase_if(verbs, [](const verb &each) { return each.group.empty(); });
    // Other names of a verb are completed as it is.
    for (std::size_t i = 0, count = verbs.size(); i < count; i++)
        for (const auto &alias : std::vector(verbs[i].aliases)) {
            verb other = verbs[i];
            other.name = alias;
            verbs.push_back(std::move(other));
        }
    if (shell == "bash")
        env.out.write(bash_completion(verbs));
    else if (shell == "zsh")
        env.out.write(zsh_completion(verbs));
    else if (shell == "fish")
        env.out.write(fish_completion(verbs));
    else
        throw usage_error(
            fmt::format("'{}' is none of bash, zsh, fish", printable(shell)));
}

} // namespace

verb complete_verb()
{
    const auto shells = std::make_shared<std::vector<std::string>>();
    verb complete{"__complete", "", "print a shell's completion file",
                  "Prints the file by which bash, zsh or fish completes "
                  "emuvctl's command line."};
    complete.arguments = {"SHELL", shells.get(), offered::nothing, true};
    complete.action = [shells](environment &env) {
        for (const auto &each : *shells)
            cmd_complete(each, env);
    };
    return complete;
}

} // namespace emuvctl

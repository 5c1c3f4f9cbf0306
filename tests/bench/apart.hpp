// SPDX-License-Identifier: GPL-2.0-or-later
// Measures in a process of its own, so that no measurement finds the heap as
// another has left it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace bench {

/// The numbers that @p run returns; none, and a line that says so, if its
/// process fails.
template <typename Run>
std::vector<double> apart(const char *name, Run run)
{
    int ends[2];
    std::fflush(stdout);
    if (pipe(ends) != 0) {
        std::perror("pipe");
        std::exit(1);
    }
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        const std::vector<double> is = run();
        // A pipe takes them as a whole, as somebody reads.
        const std::size_t bytes = is.size() * sizeof is[0];
        std::fflush(stdout);
        _exit(write(ends[1], is.data(), bytes) == static_cast<ssize_t>(bytes)
                  ? 0
                  : 1);
    }
    close(ends[1]);
    std::vector<double> is;
    double next = 0;
    while (read(ends[0], &next, sizeof next) == sizeof next)
        is.push_back(next);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) {
        std::printf("%s: failed, with status %#x\n", name,
                    static_cast<unsigned>(status));
        is.clear();
    }
    return is;
}

} // namespace bench

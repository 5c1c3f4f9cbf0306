// SPDX-License-Identifier: GPL-2.0-or-later
// A run that is held against an estimate.
#pragma once

#include <filesystem>
#include <string>

#include <sys/types.h>

namespace emuv::report {
struct came;
}

namespace emuvctl {

struct environment;

/// A program that is run as a child, whose peaks are compared at its end with
/// what was expected. To the caller's shell it is the program all the same.
/// Signals that somebody sends go on to it. It stops when the program stops,
/// has that go on when it goes on itself, and ends as the program did.
class score_run
{
public:
    enum class side
    {
        parent,
        child, ///< is to become the program
    };
    enum class form
    {
        table, ///< on stderr
        json,  ///< on stdout
    };

    /// Reads the estimate. @param path  of its file @throws failure
    explicit score_run(std::string path);
    score_run(const score_run &) = delete;
    score_run &operator=(const score_run &) = delete;
    /// Removes the folder, but not in the child.
    ~score_run();

    /// Makes a folder that is this user's alone, for what processes publish.
    /// @throws std::system_error
    const std::filesystem::path &make_folder();
    /// The value of EMUV_SCORE: each process publishes in "VALUE.PID".
    [[nodiscard]] std::string stem() const;

    /// Starts the child. The parent comes back when the child has ended; from
    /// then on signals are for the parent.
    /// @throws std::system_error
    side start();

    /// Says what came, adds it to the estimate's file, and ends as the program
    /// ended. In the parent.
    [[noreturn]] void finish(form as, environment &env);

private:
    void wait() const;
    void tell(form as, environment &env) const;
    void show(const emuv::report::came &came, form as, environment &env) const;
    void keep(const emuv::report::came &came) const;
    [[nodiscard]] std::string ending() const;

    std::string path_;
    std::string text_;             // of the estimate
    std::filesystem::path folder_; // empty: not made, or not this one's
    pid_t child_ = -1;
    int status_ = 0; // as waitpid() gives it
};

} // namespace emuvctl

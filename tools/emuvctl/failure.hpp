// SPDX-License-Identifier: GPL-2.0-or-later
// The exceptions by which a command fails, and their words.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace emuv {
class error;
}

namespace emuvctl {

struct environment;

/// The command failed: exit status 1. what() is the message, lower case.
class failure : public std::runtime_error
{
public:
    using std::runtime_error::runtime_error;
};

/// The command line makes no sense: exit status 2.
class usage_error : public std::runtime_error
{
public:
    using std::runtime_error::runtime_error;
};

/// A text says nothing that is known: exit status 3.
class not_recognised : public failure
{
public:
    using failure::failure;
};

/// The command did what it could, and ends with a status of its own.
class ended_with : public failure
{
public:
    ended_with(const std::string &what, int status)
        : failure(what), status_(status)
    {}
    [[nodiscard]] int status() const { return status_; }

private:
    int status_;
};

/// The program that was to be run could not be: exit status 126, or 127 where
/// it was not found.
class not_started : public failure
{
public:
    /// @param number  of execve(2)
    not_started(const std::string &what, int number)
        : failure(what), number_(number)
    {}
    [[nodiscard]] int number() const { return number_; }

private:
    int number_;
};

/// Explains in words for a person what went wrong in a call on the driver. Asks
/// the driver who holds an instance that is in use.
std::string explain(const emuv::error &problem, const environment &env);

/// Why the host cannot back more virtual VRAM, with figures where known.
std::string explain_promise(const environment &env);
/// The same of the instance that a profile asks for.
/// @param bytes  its virtual VRAM
/// @param promised  to others; without it, to the instances there are
std::string explain_promise(const environment &env, std::uint64_t bytes,
                            const std::string &profile,
                            std::optional<std::uint64_t> promised = {});

/// Runs a parser on an option's value and names the option if it refuses.
/// @throws usage_error
template <typename Parser>
auto parse_option(std::string_view option, Parser &&parser)
{
    try {
        return std::forward<Parser>(parser)();
    } catch (const std::invalid_argument &problem) {
        throw usage_error(std::string(option) + ": " + problem.what());
    }
}

} // namespace emuvctl

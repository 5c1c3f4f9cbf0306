// SPDX-License-Identifier: GPL-2.0-or-later
// The CUDA library's settings, as options of emuvctl run.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace emuvctl {

struct option;

/// The kinds of tools/cuda/base/settings.def.
enum class setting_kind
{
    instances,
    size,
    tiers,
    ledger,
    choice,
    toggle,
    flag,
    names,
    output,
    library,
};

struct setting_value
{
    std::string_view word;
    std::string_view help; ///< empty where the word says it
};

/// One line of settings.def.
struct setting
{
    setting_kind kind;
    const char *variable; ///< "EMUV_REPORT"
    const char *option;   ///< "--report"
    const char *type;
    const char *needs; ///< another's variable, or ""
    const char *help;
    std::vector<setting_value> values; ///< the default first

    /// True if it is part of the limits that a program has to keep.
    [[nodiscard]] bool limits() const
    {
        return kind == setting_kind::instances || kind == setting_kind::size ||
               kind == setting_kind::ledger;
    }

    /// True if the caller's value is not read beside limits that are asked for:
    /// it is one itself, or says where memory beyond them goes.
    [[nodiscard]] bool goes_with_limits() const
    {
        return limits() || kind == setting_kind::tiers;
    }

    /// True if the library reads VARIABLE_DEFAULT where the variable is empty.
    [[nodiscard]] bool has_default() const
    {
        return kind == setting_kind::toggle || kind == setting_kind::tiers;
    }
    [[nodiscard]] std::string default_variable() const;

    /// Its value in this program's environment; empty where it has none.
    [[nodiscard]] std::string of_caller() const;
    /// The value of its default there, likewise.
    [[nodiscard]] std::string default_of_caller() const;
};

/// All of them.
std::span<const setting> settings();

/// The variables of the caller's that are not read beside limits.
std::vector<std::string> variables_beside_limits();

/// @param variable  of one that there is
const setting &setting_of(std::string_view variable);

/// A setting, and the value that the command line gives it.
struct asked_setting
{
    const setting *what;
    bool flag = false;
    std::string text = {};

    [[nodiscard]] bool given() const { return flag || !text.empty(); }
};

/// The values that the command line gives to all settings.
class asked_settings
{
public:
    asked_settings();
    asked_settings(const asked_settings &) = delete;
    asked_settings &operator=(const asked_settings &) = delete;

    /// The options that fill this. They refer to it.
    [[nodiscard]] std::vector<option> options();

    [[nodiscard]] const asked_setting &of(std::string_view variable) const;
    [[nodiscard]] std::span<const asked_setting> all() const { return all_; }

    /// The text that the program finds: of the option, or else of the
    /// environment that it inherits. Empty where neither says anything. Memory
    /// moves then, where it can.
    /// @throws usage_error, failure
    [[nodiscard]] std::string value(std::string_view variable) const;

    /// True if a switch or flag is on for the program.
    [[nodiscard]] bool holds(std::string_view variable) const;

    /// @throws usage_error a value that a setting does not take, or that does
    ///   not go with another, of the environment as well
    void check() const;

    /// The variables to set, without EMUV_INSTANCE, as the library reads them.
    /// @throws usage_error, failure
    [[nodiscard]] std::vector<std::pair<std::string, std::string>>
    variables() const;

private:
    // True unless something else is asked for that does not go with movement.
    [[nodiscard]] bool may_move() const;

    std::vector<asked_setting> all_;
};

} // namespace emuvctl

// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl assert: fails unless the machine is as the profiles say.
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "plan.hpp"
#include "profiles.hpp"
#include "verbs.hpp"

#include <array>
#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct assert_options
{
    std::string config;
    output_options output;
};

constexpr std::array<column, 5> columns = {{
    {"difference", "DIFFERENCE", kind::text, "missing, different or extra"},
    {"name", "NAME", kind::text, "the instance"},
    {"profile", "PROFILE", kind::text, "who asks for it"},
    {"wanted", "WANTED", kind::text, "what the profile says"},
    {"found", "FOUND", kind::text, "what there is"},
}};

void cmd_assert(const assert_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {
        "difference", "name", "profile", "wanted", "found"};
    printer print(options.output, columns, defaults);
    const auto profiles = complete_profiles(options.config, env);
    const auto instances = env.sysfs().instances();
    const plan work = match(profiles, instances, read_names(env));

    listing list;
    list.name = "differences";
    list.columns = columns;
    for (const auto &item : work.items) {
        if (item.matches)
            continue;
        const int id = item.found ? item.found->id : item.wanted.id;
        row one;
        one.cells = {item.missing() ? "missing" : "different",
                     id == emuv::any ? cell() : cell(emuv::instance_name(id)),
                     item.from->name, describe(item.wanted),
                     item.found ? cell(describe(*item.found)) : cell()};
        list.rows.push_back(std::move(one));
    }
    for (const auto &info : work.extra) {
        row one;
        one.cells = {"extra", info.name(), {}, {}, describe(info)};
        list.rows.push_back(std::move(one));
    }
    list.beside.emplace_back("match", list.rows.empty());
    print.print(list, env);
    if (!list.rows.empty())
        throw failure(fmt::format("the machine differs from its profiles in "
                                  "{} place{}",
                                  list.rows.size(),
                                  list.rows.size() == 1 ? "" : "s"));
}

} // namespace

verb assert_verb()
{
    const auto options = std::make_shared<assert_options>();
    verb asserting{
        "assert", "Profiles", "fail unless the machine is as profiled",
        "Prints where the machine differs from its profiles, and exits "
        "with 1 if\nit does."};
    asserting.options = {config_option(options->config)};
    add_output(asserting, options->output, columns);
    asserting.action = [options](environment &env) {
        cmd_assert(*options, env);
    };
    return asserting;
}

} // namespace emuvctl

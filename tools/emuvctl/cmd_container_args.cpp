// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl container-args: an instance for engines without CDI, as options.
#include "container.hpp"
#include "cuda_library.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "verbs.hpp"

#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

namespace emuvctl {

namespace {

struct container_args_options
{
    std::vector<std::string> instances;
    std::string cuda_library_dir; // the folder of the CUDA library
    output_options output;
};

// The words come apart at blanks, and a volume at its colons.
std::string volume(const container_mount &mount)
{
    if (mount.host.find_first_of(" \t\n:'\"\\*?[$") != std::string::npos)
        throw failure(fmt::format("{}: this path cannot be an engine's "
                                  "option; link to its folder from another "
                                  "one, and name that by --library",
                                  printable(mount.host)));
    return fmt::format("{}:{}:ro", mount.host, mount.inside);
}

void add(std::vector<std::string> &to, const container_part &part)
{
    for (const auto &node : part.nodes)
        to.insert(to.end(), {"--device", node});
    for (const auto &mount : part.mounts)
        to.insert(to.end(), {"-v", volume(mount)});
    for (const auto &variable : part.variables)
        to.insert(to.end(), {"-e", variable});
}

void cmd_container_args(const container_args_options &options, environment &env)
{
    const auto ids = parse_instances(options.instances, env);
    read_instances(ids, env); // they are there
    std::vector<std::string> words;
    const auto part = instance_part(ids, env);
    say_without_tiers(part, env);
    add(words, part);
    add(words, library_part(cuda_library_folder(options.cuda_library_dir)));
    if (options.output.json)
        env.out.write(
            nlohmann::ordered_json{{"schema", 1}, {"arguments", words}}.dump(
                2, ' ', false,
                nlohmann::ordered_json::error_handler_t::replace) +
            "\n");
    else
        env.out.write(fmt::format("{}\n", fmt::join(words, " ")));
}

} // namespace

verb container_args_verb()
{
    const auto options = std::make_shared<container_args_options>();
    verb args{"container-args", "Containers",
              "print an engine's options for instances",
              "Prints the options that hand instances to a container where the "
              "engine knows no\nCDI. Several instances are the first card's, "
              "the second's and so on.\n"
              "  docker run $(emuvctl container-args emuv0) IMAGE"};
    args.options = {{"--library", "DIR", "folder of the CUDA library",
                     &options->cuda_library_dir, offered::folders},
                    json_flag(options->output)};
    args.arguments = instance_arguments(options->instances);
    args.arguments->required = true;
    args.action = [options](environment &env) {
        cmd_container_args(*options, env);
    };
    return args;
}

} // namespace emuvctl

// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl cdi generate, list, refresh: tell container engines of instances.
#include "cdi.hpp"
#include "container.hpp"
#include "cuda_library.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "verbs.hpp"

#include <emuv/error.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

namespace {

constexpr std::string_view no_specification =
    "there is no specification; 'emuvctl cdi generate --output /run/cdi' "
    "writes one";

struct cdi_options
{
    std::vector<std::string> instances;
    std::string folder;           // --output
    std::string cuda_library_dir; // the folder of the CUDA library
    bool dry_run = false;
    output_options output;
};

constexpr std::array<column, 5> columns = {{
    {"device", "DEVICE", kind::text, "as engines are given it"},
    {"instance", "INSTANCE", kind::text, "the instance behind it"},
    {"node", "NODE", kind::text, "that instance's node"},
    {"state", "STATE", kind::text,
     "ok; gone: no instance; stale: another one's"},
    {"file", "FILE", kind::text, "the specification it is in"},
}};

// The files that the options mean.
std::vector<std::filesystem::path> files_of(const cdi_options &options,
                                            const environment &env)
{
    std::vector<std::filesystem::path> files;
    for (const auto &folder :
         options.folder.empty()
             ? cdi_folders(env)
             : std::vector<std::filesystem::path>{options.folder})
        files.push_back(cdi_file(folder));
    return files;
}

// Does something with each file. One that fails keeps no other from its turn.
// @return the last one's problem; the others are told
std::optional<std::string>
for_each_file(const cdi_options &options, environment &env,
              const std::function<void(const std::filesystem::path &)> &action)
{
    std::optional<std::string> last;
    for (const auto &file : files_of(options, env)) {
        std::string problem;
        try {
            action(file);
            continue;
        } catch (const failure &why) {
            problem = why.what();
        } catch (const std::system_error &why) {
            problem = fmt::format("{}: {}", file.string(),
                                  emuv::errno_text(why.code().value()));
        }
        if (last)
            env.say(*last);
        last = problem;
    }
    return last;
}

std::string describe(const cdi_change &change,
                     const std::filesystem::path &file, bool dry_run)
{
    std::string text;
    for (const auto &one : change.dropped)
        text += fmt::format("{}drop{} {}\n", dry_run ? "would " : "",
                            dry_run ? "" : "ped", one.whole_name());
    return text + fmt::format("{}: {} device{}{}\n", file.string(),
                              change.kept.size(),
                              change.kept.size() == 1 ? "" : "s",
                              !change.kept.empty() ? ""
                              : dry_run            ? ", would be removed"
                                                   : ", removed");
}

// Held while a file is made of what instances and names are now. Otherwise one
// that is destroyed meanwhile would come back into the file.
std::optional<names_lock> lock_if(bool written, const environment &env)
{
    return written
               ? std::make_optional<names_lock>(env, names_lock::folder::make)
               : std::nullopt;
}

void cmd_generate(const cdi_options &options, environment &env)
{
    const auto lock = lock_if(!options.folder.empty() && !options.dry_run, env);
    const auto found =
        read_instances(parse_instances(options.instances, env), env);
    if (found.empty())
        throw failure("there are no instances; 'emuvctl create' makes one");
    const auto names = read_names(env);
    const auto text =
        cdi_text(cdi_devices(found, names),
                 cuda_library_folder(options.cuda_library_dir), env);
    for (const auto &info : found)
        say_without_tiers(instance_part(std::span(&info.id, 1), env), env);
    for (const auto &info : found)
        if (const auto name = names.find(info.uuid);
            name != names.end() && !is_cdi_name(name->second))
            env.say(fmt::format("'{}' is no name for engines, since it does "
                                "not end in a letter or digit: {} has its "
                                "number alone",
                                printable(name->second), info.name()));
    if (options.folder.empty()) {
        env.out.write(text);
        return;
    }
    const auto file = cdi_file(options.folder);
    read_cdi(file); // another's file of that name stays
    if (!options.dry_run)
        write_cdi(file, text);
    env.out.write(fmt::format("{}{}\n", options.dry_run ? "would write " : "",
                              file.string()));
}

void cmd_refresh(const cdi_options &options, environment &env)
{
    const auto lock = lock_if(!options.dry_run, env);
    // Without it, the one that somebody has chosen stays.
    std::optional<std::filesystem::path> library;
    if (!options.cuda_library_dir.empty())
        library = cuda_library_folder(options.cuda_library_dir);
    std::string text;
    const auto problem =
        for_each_file(options, env, [&](const std::filesystem::path &file) {
            const auto change =
                renew_cdi(file, library, gone_devices::drop, env);
            if (!change)
                return;
            if (!options.dry_run)
                apply_cdi(*change, file);
            text += describe(*change, file, options.dry_run);
        });
    if (text.empty() && !problem)
        env.say(no_specification);
    env.out.write(text);
    if (problem)
        throw failure(*problem);
}

void add_rows(listing &list, const std::filesystem::path &file,
              const environment &env)
{
    const auto change = renew_cdi(file, std::nullopt, gone_devices::drop, env);
    if (!change)
        return;
    for (const auto &one : read_cdi(file).value_or(std::vector<cdi_device>())) {
        std::string state = "gone";
        for (const auto &now : change->kept)
            if (now.name == one.name)
                state = now.id == one.id ? "ok" : "stale";
        const bool known = one.id >= 0;
        row line;
        line.cells = {one.whole_name(),
                      known ? cell(emuv::instance_name(one.id)) : cell(),
                      known ? cell(env.node(one.id)) : cell(), state,
                      file.string()};
        line.tone = state == "ok" ? tone::good : tone::bad;
        list.rows.push_back(std::move(line));
    }
}

void cmd_list(const cdi_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"device", "instance",
                                                    "state", "file"};
    printer print(options.output, columns, defaults);
    listing list;
    list.name = "devices";
    list.columns = columns;
    const auto problem =
        for_each_file(options, env, [&](const std::filesystem::path &file) {
            add_rows(list, file, env);
        });
    if (list.rows.empty() && !options.output.any() && !problem)
        env.say(no_specification);
    print.print(list, env);
    if (problem)
        throw failure(*problem);
}

option folder_option(std::string &folder, const char *help)
{
    return {"--output", "DIR", help, &folder, offered::folders};
}

option library_option(std::string &library)
{
    return {"--library", "DIR", "folder of the CUDA library", &library,
            offered::folders};
}

} // namespace

verb cdi_verb()
{
    const auto options = std::make_shared<cdi_options>();
    verb generate{
        "generate", "Verbs", "write a specification of instances",
        "Writes a specification by the Container Device Interface: instances, "
        "all without\nany named, as devices for podman, docker, containerd and "
        "CRI-O. Without --output\nit is printed.\n"
        "  emuvctl cdi generate --output /run/cdi\n"
        "  podman run --device emuv.dev/vgpu=emuv0 ..."};
    generate.options = {
        folder_option(options->folder,
                      "write emuv.json there: /run/cdi, gone after a\n"
                      "restart as instances are, or /etc/cdi"),
        library_option(options->cuda_library_dir),
        dry_run_flag(options->dry_run)};
    generate.arguments = instance_arguments(options->instances);
    generate.action = [options](environment &env) {
        cmd_generate(*options, env);
    };

    verb list{"list", "Verbs", "list the devices of specifications",
              "Lists the devices that specifications offer to containers, and "
              "whether their\ninstances are there."};
    list.options = {{"--folder", "DIR",
                     "look there only; by default in /etc/cdi and\n/run/cdi",
                     &options->folder, offered::folders}};
    add_output(list, options->output, columns);
    list.action = [options](environment &env) { cmd_list(*options, env); };

    verb refresh{"refresh", "Verbs", "drop what is gone",
                 "Brings specifications up to date: drops devices whose "
                 "instance is gone, and has\nnames lead to the instances that "
                 "have them now. A file that is left without any\ndevice is "
                 "removed. 'emuvctl destroy' does the same."};
    refresh.options = {
        folder_option(options->folder,
                      "the folder; by default /etc/cdi and /run/cdi"),
        library_option(options->cuda_library_dir),
        dry_run_flag(options->dry_run)};
    refresh.action = [options](environment &env) {
        cmd_refresh(*options, env);
    };

    verb cdi{"cdi", "Containers", "offer instances to containers",
             "Offers instances to containers as devices, by the Container "
             "Device Interface."};
    cdi.verbs = {std::move(generate), std::move(list), std::move(refresh)};
    return cdi;
}

} // namespace emuvctl

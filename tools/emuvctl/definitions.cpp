// SPDX-License-Identifier: GPL-2.0-or-later
// Instances that last: each has a profile of its name in a drop-in file of its
// own, FILE.d/NAME.conf, from which every boot makes it.
#include "definitions.hpp"

#include "draft.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "lib/entries.hpp"
#include "names.hpp"
#include "output.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace emuvctl {

namespace {

[[noreturn]] void cannot_write(const std::filesystem::path &path)
{
    throw std::system_error(errno, std::generic_category(), path.string());
}

std::filesystem::path main_file(const std::string &config)
{
    if (config == "-")
        throw usage_error("--config: '-' is standard input, and no place for "
                          "an instance that lasts");
    return config.empty() ? emuv::default_profile_file()
                          : std::filesystem::path(config);
}

std::filesystem::path folder_of(const std::string &config)
{
    auto folder = main_file(config);
    folder += ".d";
    return folder;
}

std::string text_of(const emuv::profile &what)
{
    return "# Written by 'emuvctl define'; 'emuvctl undefine' removes it.\n" +
           emuv::format_profile(what);
}

} // namespace

std::filesystem::path definition_file(const std::string &name,
                                      const std::string &config)
{
    return folder_of(config) / (name + ".conf");
}

std::vector<emuv::profile> present_profiles(const std::string &config)
{
    std::error_code problem;
    bool any = std::filesystem::exists(main_file(config), problem);
    for (const auto &entry : emuv::entries(folder_of(config)))
        any = any || (entry.path().extension() == ".conf" &&
                      !entry.path().filename().string().starts_with('.'));
    return any ? emuv::load_profiles(main_file(config))
               : std::vector<emuv::profile>();
}

void check_definition(const emuv::profile &what, const std::string &config)
{
    const auto file = definition_file(what.name, config);
    auto there = present_profiles(config);
    for (const auto &one : there)
        if (one.file == file.string() && one.name != what.name)
            throw failure(fmt::format("{} has the profile [{}], and would lose "
                                      "it; move that to another file",
                                      one.file, one.name));
    std::erase_if(there, [&](const emuv::profile &one) {
        return one.file == file.string();
    });
    for (const auto &one : there)
        if (one.name == what.name)
            throw failure(fmt::format("the profile [{}] is in {}:{}; change it "
                                      "there",
                                      what.name, one.file, one.line));
    for (const auto &one : there)
        for (const auto &theirs : one.instances())
            if (theirs.id != emuv::any && theirs.id == what.spec.id)
                throw failure(fmt::format("[{}] at {}:{} wants {}, too",
                                          one.name, one.file, one.line,
                                          emuv::instance_name(theirs.id)));
    // All else that the parser refuses.
    (void)emuv::parse_profiles(text_of(what), file.string());
}

std::filesystem::path write_definition(const emuv::profile &what,
                                       const std::string &config,
                                       const environment &env)
{
    const auto file = definition_file(what.name, config);
    const names_lock lock(env, names_lock::folder::make);
    check_definition(what, config);
    const auto folder = file.parent_path();
    if (!folder.parent_path().empty())
        make_folder(folder.parent_path());
    make_folder(folder);
    // The parser passes over names with a dot in front.
    const auto draft = folder / ("." + what.name + ".new");
    put_file(file, draft, text_of(what), lasting::for_good);
    sync_folder(folder);
    return file;
}

const emuv::profile &find_profile(const std::vector<emuv::profile> &profiles,
                                  const std::string &name)
{
    const auto found =
        std::find_if(profiles.begin(), profiles.end(),
                     [&](const auto &one) { return one.name == name; });
    if (found == profiles.end())
        throw failure(fmt::format("no profile '{}'; 'emuvctl profile list' "
                                  "shows those there are, 'emuvctl define' "
                                  "makes one",
                                  printable(name)));
    if (found->count != 1)
        throw failure(fmt::format("[{}] at {}:{} stands for {} instances; "
                                  "'emuvctl apply' makes them",
                                  printable(name), found->file, found->line,
                                  found->count));
    return *found;
}

namespace {

// Throws a failure unless a profile is alone in the file that `define` writes.
void check_own_file(const emuv::profile &what,
                    const std::vector<emuv::profile> &profiles,
                    const std::string &config)
{
    const auto same_file =
        std::count_if(profiles.begin(), profiles.end(),
                      [&](const auto &one) { return one.file == what.file; });
    if (what.file != definition_file(what.name, config).string() ||
        same_file != 1)
        throw failure(fmt::format("the profile [{}] was written by hand; "
                                  "remove it from {}, line {}",
                                  printable(what.name), what.file, what.line));
}

} // namespace

std::vector<std::filesystem::path>
own_files(const std::vector<std::string> &names, const std::string &config)
{
    const auto profiles = present_profiles(config);
    std::vector<std::filesystem::path> files;
    for (const auto &name : names) {
        check_own_file(find_profile(profiles, name), profiles, config);
        auto file = definition_file(name, config);
        if (std::find(files.begin(), files.end(), file) == files.end())
            files.push_back(std::move(file));
    }
    return files;
}

void remove_definitions(const std::vector<std::string> &names,
                        const std::string &config, const environment &env)
{
    const names_lock lock(env, names_lock::folder::make);
    for (const auto &file : own_files(names, config)) {
        if (::unlink(file.c_str()) != 0)
            cannot_write(file);
        sync_folder(file.parent_path());
    }
    ::rmdir(folder_of(config).c_str()); // unless others are there
}

} // namespace emuvctl

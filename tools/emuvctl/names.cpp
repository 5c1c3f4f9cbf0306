// SPDX-License-Identifier: GPL-2.0-or-later
// The names that people give instances.
#include "names.hpp"

#include "draft.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "lib/entries.hpp"
#include "tiers.hpp"

#include <emuv/sysfs.hpp>

#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

namespace emuvctl {

namespace {

std::filesystem::path folder(const environment &env)
{
    return env.run / "emuv/names";
}

// It stands beside the names, and root alone can open it: nobody else can hold
// up those who give names.
std::filesystem::path lock_file(const environment &env)
{
    return env.run / "emuv/names.lock";
}

void make_folders(const environment &env)
{
    std::error_code problem;
    std::filesystem::create_directories(env.run, problem);
    make_folder(folder(env).parent_path());
    make_folder(folder(env));
}

} // namespace

names_lock::names_lock(const environment &env, folder missing)
{
    try {
        if (missing == folder::make)
            make_folders(env);
    } catch (const std::system_error &) {
        return;
    }
    file_.reset(::open(lock_file(env).c_str(),
                       O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    while (file_ && ::flock(file_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
}

std::map<std::string, std::string> read_names(const environment &env)
{
    std::map<std::string, std::string> names;
    for (const auto &entry : emuv::entries(folder(env)))
        if (const auto uuid = emuv::read_line_file(entry.path());
            uuid && !entry.path().filename().string().starts_with('.'))
            names.emplace(*uuid, entry.path().filename().string());
    return names;
}

int find_name(const std::string &name, const environment &env)
{
    for (const auto &[uuid, given] : read_names(env))
        if (given == name)
            for (const auto &[id, other] : env.sysfs().uuids())
                if (other == uuid)
                    return id;
    return -1;
}

void give_name(const std::string &name, const std::string &uuid,
               const environment &env)
{
    make_folders(env); // tells what is wrong
    const names_lock lock(env);
    forget_names(lock, env);
    if (const int other = find_name(name, env); other >= 0)
        throw failure(fmt::format("the name '{}' is taken by {}", name,
                                  emuv::instance_name(other)));
    // A name appears whole, in the place of one whose instance has gone.
    put_file(folder(env) / name, folder(env) / ("." + uuid), uuid + "\n",
             lasting::until_reboot);
}

void forget_names(const names_lock & /*held*/, const environment &env) noexcept
{
    try {
        std::set<std::string> there;
        for (const auto &[id, uuid] : env.sysfs().uuids())
            there.insert(uuid);
        for (const auto &[uuid, name] : read_names(env))
            if (!there.contains(uuid))
                ::unlink((folder(env) / name).c_str());
        forget_tiers(there, env);
    } catch (...) {
        return; // they mean nothing without their instances
    }
}

} // namespace emuvctl

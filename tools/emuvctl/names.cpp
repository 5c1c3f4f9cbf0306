// SPDX-License-Identifier: GPL-2.0-or-later
// The names that people give instances.
#include "names.hpp"

#include "environment.hpp"
#include "failure.hpp"
#include "output.hpp"

#include <emuv/sysfs.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace emuvctl {

namespace {

constexpr std::size_t longest = 48;

std::filesystem::path folder(const environment &env)
{
    return env.run / "emuv/names";
}

bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

[[noreturn]] void cannot_write(const std::filesystem::path &path, int number)
{
    throw std::system_error(number, std::generic_category(), path.string());
}

} // namespace

void check_name(std::string_view name)
{
    const bool fits = !name.empty() && name.size() <= longest &&
                      is_letter(name.front()) &&
                      std::all_of(name.begin(), name.end(), [](char c) {
                          return is_letter(c) || (c >= '0' && c <= '9') ||
                                 c == '-' || c == '_' || c == '.';
                      });
    if (!fits)
        throw std::invalid_argument(fmt::format(
            "'{}' is no name; one has 1 to {} letters, digits, '-', '_' and "
            "'.', with a letter first",
            printable(name), longest));
    if (emuv::parse_instance(name))
        throw std::invalid_argument(
            fmt::format("'{}' is the number of an instance", name));
}

std::map<std::string, std::string> read_names(const environment &env)
{
    std::map<std::string, std::string> names;
    std::error_code problem;
    std::filesystem::directory_iterator entry(folder(env), problem);
    for (; !problem && entry != std::filesystem::directory_iterator();
         entry.increment(problem))
        if (const auto uuid = emuv::read_line_file(entry->path());
            uuid && !entry->path().filename().string().starts_with('.'))
            names.emplace(*uuid, entry->path().filename().string());
    return names;
}

int find_name(const std::string &name, const environment &env)
{
    for (const auto &[uuid, given] : read_names(env))
        if (given == name)
            for (const auto &info : env.sysfs().instances())
                if (info.uuid == uuid)
                    return info.id;
    return -1;
}

void give_name(const std::string &name, const std::string &uuid,
               const environment &env)
{
    const auto path = folder(env) / name;
    std::error_code problem;
    std::filesystem::create_directories(folder(env), problem);
    if (problem)
        cannot_write(folder(env), problem.value());
    // A name appears whole, and two that give it at once do not both succeed.
    const auto draft = folder(env) / ("." + uuid);
    {
        const emuv::unique_fd file(::open(
            draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
        const std::string line = uuid + "\n";
        if (!file || ::write(file.get(), line.data(), line.size()) !=
                         static_cast<ssize_t>(line.size()))
            cannot_write(draft, errno);
    }
    int number = 0;
    for (int attempt = 0; attempt < 2; attempt++) {
        number = ::link(draft.c_str(), path.c_str()) == 0 ? 0 : errno;
        // That of an instance that has gone is free.
        if (number != EEXIST || find_name(name, env) >= 0)
            break;
        ::unlink(path.c_str());
    }
    ::unlink(draft.c_str());
    if (number == EEXIST)
        throw failure(fmt::format("the name '{}' is taken by {}", name,
                                  emuv::instance_name(find_name(name, env))));
    if (number != 0)
        cannot_write(path, number);
}

void forget_name(const std::string &uuid, const environment &env) noexcept
{
    try {
        const auto names = read_names(env);
        if (const auto found = names.find(uuid); found != names.end())
            ::unlink((folder(env) / found->second).c_str());
    } catch (...) {
        return; // it means nothing without its instance
    }
}

} // namespace emuvctl

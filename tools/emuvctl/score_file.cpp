// SPDX-License-Identifier: GPL-2.0-or-later
// An estimate that is kept, for `emuvctl run --score` and `emuvctl report`.
#include "score_file.hpp"

#include "failure.hpp"
#include "output.hpp"
#include "watch/text_file.hpp"

#include <emuv/error.hpp>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace emuvctl {

std::string usual_score_file()
{
    for (const auto &[variable, rest] :
         std::initializer_list<std::pair<const char *, const char *>>{
             {"XDG_STATE_HOME", ""}, {"HOME", "/.local/state"}})
        if (const char *const folder = std::getenv(variable);
            folder != nullptr && folder[0] == '/')
            return fmt::format("{}{}/emuv/estimate.json", folder, rest);
    return "emuv-estimate.json";
}

void save_estimate(const std::string &path, std::string_view json)
{
    if (path == usual_score_file()) {
        const auto folder = std::filesystem::path(path).parent_path();
        std::error_code problem;
        if (!folder.empty())
            std::filesystem::create_directories(folder, problem);
        if (problem)
            throw failure(fmt::format("cannot make {}: {}",
                                      printable(folder.string()),
                                      emuv::errno_text(problem.value())));
    }
    try {
        watch::replace_file(path, json);
    } catch (const std::system_error &problem) {
        throw failure(fmt::format("cannot write {}: {}", printable(path),
                                  emuv::errno_text(problem.code().value())));
    }
}

} // namespace emuvctl

// SPDX-License-Identifier: GPL-2.0-or-later
// The CUDA library's settings: an input is an environment, a line a variable.
#include "base/settings.hpp"
#include "fuzz.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace {

std::map<std::string, std::string, std::less<>> environment;

char *get(const char *name)
{
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.data();
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    environment.clear();
    auto rest = fuzz::text_of(data, size);
    while (!rest.empty()) {
        const auto line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        // A variable's value ends as a C string does, at a NUL.
        if (const auto equals = line.find('='); equals != line.npos)
            environment[std::string(line.substr(0, equals))] =
                std::string(line.substr(equals + 1)).c_str();
    }
    const auto read = emuv::cuda::read_settings(get);
    fuzz::must((read.wrong_name == nullptr) == (read.wrong_value == nullptr),
               "what is wrong has a name and a value");
    if (read.wrong_name != nullptr) {
        fuzz::must(get(read.wrong_name) == read.wrong_value,
                   "what is wrong is the environment's");
        return 0;
    }
    constexpr std::uint64_t most = std::uint64_t{1} << 50;
    fuzz::must(read.physical_bytes.value_or(0) <= most &&
                   read.virtual_bytes.value_or(0) <= most,
               "sizes are an instance's");
    fuzz::must(std::all_of(read.instances.begin(), read.instances.end(),
                           [](int id) { return id >= 0 && id < 1024; }),
               "instances are those that can be");
    fuzz::must(read.trust != nullptr, "there is always somebody to trust");
    return 0;
}

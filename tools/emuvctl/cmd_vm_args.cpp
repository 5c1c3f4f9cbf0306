// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl vm-args: QEMU's options for the memory that `vm-serve` hands out.
#include "environment.hpp"
#include "failure.hpp"
#include "verbs.hpp"
#include "vm_socket.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

namespace emuvctl {

namespace {

struct vm_args_options
{
    vm_socket_options at;
    bool libvirt = false;
    output_options output;
};

std::string in_xml(std::string_view text)
{
    std::string safe;
    for (const char one : text) {
        switch (one) {
        case '&':
            safe += "&amp;";
            break;
        case '<':
            safe += "&lt;";
            break;
        case '\'':
            safe += "&apos;";
            break;
        default:
            safe += one;
        }
    }
    return safe;
}

// QEMU's options come apart at commas, the words at blanks.
std::string in_option(const std::string &path)
{
    if (path.find_first_of(" \t\n'\"\\*?[$") != std::string::npos)
        throw failure(fmt::format("{}: this path cannot be a word of a command "
                                  "line; name another one by --socket",
                                  printable(path)));
    std::string safe;
    for (const char one : path)
        safe.append(one == ',' ? 2 : 1, one);
    return safe;
}

std::string in_libvirt(const std::string &name, const std::string &path)
{
    return fmt::format("<shmem name='{}'>\n"
                       "  <model type='ivshmem-doorbell'/>\n"
                       "  <server path='{}'/>\n"
                       "  <msi vectors='1' ioeventfd='off'/>\n"
                       "</shmem>\n",
                       name, in_xml(path));
}

std::vector<std::string> in_words(const std::string &name,
                                  const std::string &path)
{
    return {"-chardev",
            fmt::format("socket,id={},path={}", name, in_option(path)),
            "-device",
            fmt::format("ivshmem-doorbell,chardev={},vectors=1,ioeventfd=off",
                        name)};
}

std::string text_of_args(const vm_args_options &options,
                         const std::string &name, const std::string &path)
{
    if (options.libvirt)
        return in_libvirt(name, path);
    const auto words = in_words(name, path);
    if (!options.output.json)
        return fmt::format("{}\n", fmt::join(words, " "));
    return nlohmann::ordered_json{
               {"schema", 1}, {"socket", path}, {"arguments", words}}
               .dump(2, ' ', false,
                     nlohmann::ordered_json::error_handler_t::replace) +
           "\n";
}

void cmd_vm_args(const vm_args_options &options, environment &env)
{
    const auto info = read_vm_instance(options.at, env);
    const auto path = vm_socket_path(options.at, info, env);
    const auto text = text_of_args(options, info.name(), path.native());
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
        env.say(fmt::format("no machine can start with this until 'emuvctl "
                            "vm-serve {}' runs",
                            info.name()));
    env.out.write(text);
}

} // namespace

verb vm_args_verb()
{
    const auto options = std::make_shared<vm_args_options>();
    verb args{
        "vm-args", "Virtual machines",
        "print QEMU's options for an instance's memory",
        "Prints the options with which QEMU shows a guest the memory that "
        "'vm-serve'\nhands out. In the guest, the module makes an instance of "
        "it:\n'modprobe emuv ivshmem=all'.\n"
        "  qemu-system-x86_64 $(emuvctl vm-args emuv0) ..."};
    args.options = {vm_socket_option(options->at),
                    flag("--libvirt", options->libvirt,
                         "print a device of libvirt's domains instead"),
                    json_flag(options->output)};
    args.options.back().excludes = {"--libvirt"};
    args.arguments = instance_arguments(options->at.instances);
    args.arguments->required = true;
    args.action = [options](environment &env) { cmd_vm_args(*options, env); };
    return args;
}

} // namespace emuvctl

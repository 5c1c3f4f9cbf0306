// SPDX-License-Identifier: GPL-2.0-or-later
// The socket at which virtual machines take an instance's memory, for the verbs
// that name it.
#include "vm_socket.hpp"

#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"

namespace emuvctl {

option vm_socket_option(vm_socket_options &into)
{
    return {"--socket", "PATH",
            "where machines connect. Default:\n/run/emuv/vm/emuvN.sock",
            &into.socket, offered::files};
}

emuv::instance_info read_vm_instance(const vm_socket_options &options,
                                     const environment &env)
{
    if (options.instances.size() != 1)
        throw usage_error("give one instance");
    return read_instances(parse_instances(options.instances, env), env).front();
}

std::filesystem::path vm_socket_path(const vm_socket_options &options,
                                     const emuv::instance_info &info,
                                     const environment &env)
{
    if (options.socket.empty())
        return env.run / "emuv/vm" / (info.name() + ".sock");
    return std::filesystem::absolute(options.socket);
}

} // namespace emuvctl

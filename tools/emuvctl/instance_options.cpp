// SPDX-License-Identifier: GPL-2.0-or-later
// The options that say what an instance is to be, for several verbs.
#include "instance_options.hpp"

#include "failure.hpp"

#include <emuv/size.hpp>

namespace emuvctl {

std::vector<std::string> options_of_a_profile()
{
    return {"--gpu-model",      "--physical",  "--virtual",
            "--client-virtual", "--numa-node", "--pci-device-id"};
}

std::vector<option> options_of_an_instance(instance_options &into)
{
    return {
        {"--gpu-model", "MODEL",
         "the card: 4070, \"RTX 4070\" or any label.\n"
         "Default: the one in this machine",
         &into.gpu_model},
        {"--physical", "SIZE", "share of VRAM. Default: what the card has",
         &into.physical},
        {"--virtual", "SIZE", "share of system RAM, a multiple of 2M",
         &into.virtual_size},
        {"--client-virtual", "SIZE",
         "the part of it that one client may allocate.\nDefault: all",
         &into.client_virtual},
        {"--id", "N",
         "number of the (first) instance. Default:\nthe lowest free one",
         &into.id},
        {"--numa-node", "N", "node that its RAM comes from; -1: any",
         &into.numa_node},
        flag("--numa-bind", into.numa_bind, "take no RAM from other nodes"),
        {"--pci-device-id", "0xID", "the card it belongs to, a label",
         &into.pci_device_id},
        flag("--overcommit", into.overcommit,
             "promise more RAM than the host has"),
        flag("--guaranteed", into.guaranteed,
             "reserve its share of RAM at once"),
        {"--swap", "PATH",
         "let cold memory leave RAM for this device,\nfile or folder",
         &into.swap, offered::files},
        {"--tier", "TIERS",
         "VRAM of other instances' cards that its programs\n"
         "take before system RAM: emuv1=40G, several\nbetween commas, or none",
         &into.tier},
    };
}

emuv::profile read_instance_options(const instance_options &options)
{
    emuv::profile what;
    emuv::instance_spec &spec = what.spec;
    if (options.virtual_size.empty())
        throw usage_error("--virtual is missing; it takes a size such as 2G, "
                          "or 0. Or give --profile");
    what.model_given = !options.gpu_model.empty();
    what.physical_given = !options.physical.empty();
    if (what.model_given)
        parse_option("--gpu-model", [&] {
            emuv::check_gpu_model_label(options.gpu_model);
            spec.gpu_model = options.gpu_model;
            return 0;
        });
    if (what.physical_given)
        spec.physical_bytes = parse_option(
            "--physical", [&] { return emuv::parse_size(options.physical); });
    spec.virtual_bytes = parse_option(
        "--virtual", [&] { return emuv::parse_size(options.virtual_size); });
    if (!options.client_virtual.empty())
        spec.client_virtual_bytes = parse_option("--client-virtual", [&] {
            return emuv::parse_client_size(options.client_virtual);
        });
    if (!options.numa_node.empty())
        spec.numa_node = parse_option("--numa-node", [&] {
            return static_cast<int>(
                emuv::parse_integer(options.numa_node, -1, 1023));
        });
    if (!options.pci_device_id.empty())
        spec.pci_device_id = parse_option("--pci-device-id", [&] {
            return emuv::parse_pci_device_id(options.pci_device_id);
        });
    return what;
}

void add_to_profile(const instance_options &options, emuv::profile &what)
{
    emuv::instance_spec &spec = what.spec;
    spec.overcommit = spec.overcommit || options.overcommit;
    spec.guaranteed = spec.guaranteed || options.guaranteed;
    spec.numa_bind = spec.numa_bind || options.numa_bind;
    if (!options.swap.empty())
        spec.swap = options.swap;
    if (!options.tier.empty())
        what.tiers = parse_option(
            "--tier", [&] { return emuv::parse_tiers(options.tier); });
    if (!options.id.empty())
        spec.id = parse_option("--id", [&] {
            return static_cast<int>(
                emuv::parse_integer(options.id, 0, EMUV_MAX_INSTANCES - 1));
        });
}

void check_together(const emuv::instance_spec &spec)
{
    if (spec.overcommit && spec.guaranteed)
        throw usage_error("--guaranteed and --overcommit: RAM that is promised "
                          "beyond what there is cannot be reserved");
    if (spec.numa_bind && spec.numa_node == emuv::any)
        throw usage_error("--numa-bind: needs --numa-node");
    if (!spec.swap.empty() && spec.guaranteed)
        throw usage_error("--guaranteed and --swap: memory that is reserved "
                          "never leaves RAM");
}

} // namespace emuvctl

// SPDX-License-Identifier: LGPL-2.1-or-later
// Instances and clients as plain values.
#include "convert.hpp"

#include <emuv/error.hpp>
#include <emuv/types.hpp>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace emuv {

std::string instance_name(int id)
{
    return "emuv" + std::to_string(id);
}

std::string instance_info::name() const
{
    return instance_name(id);
}

std::string format_uuid(const std::array<std::uint8_t, EMUV_UUID_LEN> &uuid)
{
    static constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < uuid.size(); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            text += '-';
        text += digits[uuid[i] >> 4U];
        text += digits[uuid[i] & 15U];
    }
    return text;
}

namespace {

// Of an instance or a client.
template <typename Answer>
counters counters_of(const Answer &from)
{
    counters to;
    to.fetched_bytes = from.fetched_bytes;
    to.evicted_bytes = from.evicted_bytes;
    to.spills = from.spills;
    to.faults = from.faults;
    to.hit_bytes = from.hit_bytes;
    to.miss_bytes = from.miss_bytes;
    to.stalled_ns = from.stalled_ns;
    return to;
}

} // namespace

instance_info to_info(const emuv_query_instance &from)
{
    instance_info to;
    to.id = from.id;
    to.gpu_model = to_string(from.gpu_model);
    to.physical_bytes = from.physical_bytes;
    to.virtual_bytes = from.virtual_bytes;
    to.client_virtual_bytes = from.client_virtual_bytes;
    to.physical_used_bytes = from.physical_used_bytes;
    to.virtual_used_bytes = from.virtual_used_bytes;
    to.unowned_bytes = from.unowned_bytes;
    to.resident_bytes = from.resident_bytes;
    to.reserve_bytes = from.reserve_bytes;
    to.guaranteed = (from.created & EMUV_CREATE_GUARANTEED) != 0;
    to.swapped_bytes = from.swapped_bytes;
    to.swaps = (from.created & EMUV_CREATE_SWAP) != 0;
    to.clients = from.clients;
    to.numa_node = from.numa_node;
    to.numa_bind = (from.created & EMUV_CREATE_BIND) != 0;
    to.pci_device_id = static_cast<std::uint16_t>(from.pci_device_id);
    std::array<std::uint8_t, EMUV_UUID_LEN> uuid{};
    std::copy_n(std::begin(from.uuid), uuid.size(), uuid.begin());
    to.uuid = format_uuid(uuid);
    to.moved = counters_of(from);
    return to;
}

client_info to_info(const emuv_query_client &from)
{
    client_info to;
    to.client = from.client;
    to.pid = from.pid;
    to.comm = to_string(from.comm);
    to.physical_bytes = from.physical_bytes;
    to.virtual_bytes = from.virtual_bytes;
    to.imported_bytes = from.imported_bytes;
    to.moved = counters_of(from);
    to.resident_bytes = from.resident_bytes;
    to.pinned_bytes = from.pinned_bytes;
    to.lingering_bytes = from.lingering_bytes;
    return to;
}

driver_version query_version(const node_file &file)
{
    emuv_version arg{};
    file.call(EMUV_IOC_VERSION, "EMUV_IOC_VERSION", arg);
    return {arg.abi, arg.chunk_bytes, to_string(arg.module_version)};
}

void check_abi(const node_file &file)
{
    const auto version = query_version(file);
    if (version.abi != EMUV_ABI_VERSION ||
        version.chunk_bytes != EMUV_CHUNK_BYTES)
        throw abi_mismatch(file.path(), version.abi, version.module_version);
}

std::vector<client_info> query_clients(const node_file &file, int id,
                                       bool memory)
{
    std::vector<client_info> all;
    for (std::uint64_t next = 0;;) {
        emuv_query_client arg{};
        arg.flags = memory ? EMUV_QUERY_MEMORY : 0;
        arg.id = id;
        arg.client = next;
        const int result = file.try_call(EMUV_IOC_QUERY_CLIENT, arg);
        // A module that is older than this program knows no such flag.
        if (result == -EINVAL && memory)
            return query_clients(file, id, false);
        if (result == -ENOENT)
            return all;
        file.check(result, "EMUV_IOC_QUERY_CLIENT", id);
        all.push_back(to_info(arg));
        next = arg.client + 1;
    }
}

} // namespace emuv

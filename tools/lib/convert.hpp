// SPDX-License-Identifier: LGPL-2.1-or-later
// From the ABI's structures to the library's values; private to the library.
#pragma once

#include <emuv/kernel_api.hpp>
#include <emuv/types.hpp>

#include <vector>

namespace emuv {

instance_info to_info(const emuv_query_instance &from);
client_info to_info(const emuv_query_client &from);
driver_version query_version(const node_file &file);
/// @throws abi_mismatch the module is not for this library
void check_abi(const node_file &file);
/// All clients of instance @p id (which a node of one instance ignores), with
/// the memory behind their regions if @p memory.
std::vector<client_info> query_clients(const node_file &file, int id,
                                       bool memory);

/// A string out of a fixed array that may lack its NUL.
template <std::size_t N>
std::string to_string(const char (&text)[N])
{
    std::size_t length = 0;
    while (length < N && text[length] != '\0')
        length++;
    return {text, length};
}

} // namespace emuv

// SPDX-License-Identifier: GPL-2.0-or-later
// Stands for the kernels that emuV brings with it as PTX.
#include "own_kernels.hpp"

#include "packing_reference.hpp"

#include <cstdint>
#include <cstring>

namespace sim {

namespace {

template <typename T>
T value(const void *param)
{
    T out;
    std::memcpy(&out, param, sizeof out);
    return out;
}

// Any function of the bytes and their places will do: the caller compares two
// answers of the same kernel. The program's own work may overtake this kernel,
// and its answer is then thrown away: such a race does no harm.
void digest(const emuv_sim_launch *, void *const *params)
{
    const auto *at = value<const std::uint64_t *>(params[0]);
    const auto sixteens = value<std::uint64_t>(params[1]);
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    for (std::uint64_t i = 0; i < 2 * sixteens; i++) {
        a = (a ^ at[i]) * 0x9e3779b97f4a7c15U;
        b = b * 0xbf58476d1ce4e5b9U + at[i] + (a >> 32);
    }
    auto *out = value<std::uint64_t *>(params[3]);
    out[0] = a;
    out[1] = b;
}

void pack(const emuv_sim_launch *, void *const *params)
{
    packing_reference::pack(value<const unsigned char *>(params[0]),
                            value<std::uint64_t>(params[1]),
                            value<unsigned char *>(params[2]),
                            value<std::uint64_t>(params[3]),
                            value<emuv::cuda::packing::outcome *>(params[4]));
}

void unpack(const emuv_sim_launch *, void *const *params)
{
    packing_reference::unpack(value<const unsigned char *>(params[0]),
                              value<std::uint64_t>(params[1]),
                              value<unsigned char *>(params[2]),
                              value<std::uint64_t>(params[3]),
                              value<emuv::cuda::packing::outcome *>(params[4]));
}

constexpr emuv_sim_param params[] = {{0, 8}, {8, 8}, {16, 8}, {24, 8}, {32, 8}};
const emuv_sim_kernel digests[] = {{"emuv_digest", digest, params, 4}};
const emuv_sim_kernel packing[] = {{"emuv_pack", pack, params, 5},
                                   {"emuv_unpack", unpack, params, 5}};

template <std::size_t Count>
emuv_sim_module module_of(const emuv_sim_kernel (&kernels)[Count])
{
    emuv_sim_module out{};
    std::memcpy(out.magic, EMUV_SIM_MODULE_MAGIC, sizeof out.magic);
    out.kernels = kernels;
    out.kernel_count = Count;
    return out;
}

} // namespace

const emuv_sim_module *module_for_ptx(const char *text)
{
    static const emuv_sim_module of_digests = module_of(digests);
    static const emuv_sim_module of_packing = module_of(packing);
    if (std::strncmp(text, ".version ", 9) != 0)
        return nullptr;
    if (std::strstr(text, ".entry emuv_digest(") != nullptr)
        return &of_digests;
    return std::strstr(text, ".entry emuv_pack(") != nullptr ? &of_packing
                                                             : nullptr;
}

} // namespace sim

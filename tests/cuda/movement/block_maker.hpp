// SPDX-License-Identifier: GPL-2.0-or-later
// Stands in for the table of memory: makes blocks that a mover moves.
#pragma once

#include "account/budget.hpp"
#include "base/current.hpp"
#include "base/driver.hpp"
#include "base/size.hpp"
#include "movement/mover.hpp"
#include "store/placement.hpp"
#include "store/store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

/// The first device's memory, all of it in blocks. As much as the share has
/// room for comes to be in VRAM, the rest beyond it: in system RAM, or in the
/// mover's file. For one thread.
class block_maker final : public emuv::cuda::relief
{
public:
    /// All outlive the object.
    struct options
    {
        const emuv::cuda::driver &calls;
        emuv::cuda::store &host; ///< of handles
        emuv::cuda::budget &shares;
        emuv::cuda::mover &moves;
    };

    explicit block_maker(const options &asked) : of_(asked)
    {
        of_.shares.add(*this);
    }

    CUresult allocate(CUdeviceptr *at, std::uint64_t bytes)
    {
        using namespace emuv::cuda;
        bytes = round_up(bytes, chunk_bytes);
        CUdeviceptr base = 0;
        CUresult result = of_.calls.cuMemAddressReserve(&base, reserved(bytes),
                                                        chunk_bytes, 0, 0);
        if (result != CUDA_SUCCESS)
            return result;
        result =
            of_.shares.until_it_fits(device, [&] { return make(base, bytes); });
        if (result != CUDA_SUCCESS) {
            of_.calls.cuMemAddressFree(base, reserved(bytes));
            return result;
        }
        bytes_[base] = bytes;
        *at = base;
        return result;
    }

    /// Reserves addresses for make_in_file().
    CUresult reserve(CUdeviceptr *at, std::uint64_t bytes)
    {
        const CUresult result = of_.calls.cuMemAddressReserve(
            at, reserved(bytes), emuv::cuda::chunk_bytes, 0, 0);
        if (result == CUDA_SUCCESS)
            bytes_[*at] = bytes;
        return result;
    }
    /// Makes a block there, of one unit, in the file alone. From any thread.
    bool make_in_file(CUdeviceptr at, std::uint64_t bytes, CUcontext context)
    {
        if (!of_.moves.charge_file(bytes))
            return false;
        emuv::cuda::unit whole;
        whole.at = at;
        whole.bytes = bytes;
        whole.mapped = false;
        of_.moves.add(at, bytes, context, {whole}, 0, {});
        return true;
    }

    /// Waits for all work, as the driver does.
    CUresult free(CUdeviceptr base)
    {
        const auto gone = bytes_.extract(base);
        emuv::cuda::mover::remains left;
        if (gone.empty())
            return CUDA_ERROR_INVALID_VALUE;
        CUresult result = of_.calls.cuCtxSynchronize();
        if (!of_.moves.remove(base, left))
            return CUDA_ERROR_INVALID_VALUE;
        const auto keep = [&result](CUresult one) {
            result = result == CUDA_SUCCESS ? one : result;
        };
        for (std::size_t i = 0; i < left.units.size(); i++)
            if (left.units[i].handle == 0)
                continue; // it was in the file
            else if (left.away[i])
                keep(of_.calls.cuMemRelease(left.units[i].handle));
            else
                keep(unmap(left.units[i], left.host[i]));
        keep(of_.calls.cuMemAddressFree(base, reserved(gone.mapped())));
        uncharge(left.physical_bytes, left.charges);
        return result;
    }

    bool give_up(int from) override
    {
        if (from == device)
            of_.moves.shed();
        else
            of_.moves.give_back_rooms(from);
        return true;
    }
    bool make_way(int on, std::uint64_t bytes) override
    {
        return on == device && of_.moves.make_way(bytes);
    }

private:
    static constexpr int device = 0;

    // So that no block begins where another one ends.
    static std::uint64_t reserved(std::uint64_t bytes)
    {
        return bytes + emuv::cuda::chunk_bytes;
    }

    // Whole units, if there is room beyond the share for all others.
    std::uint64_t charge_vram(std::uint64_t bytes, std::uint64_t unit_bytes)
    {
        using namespace emuv::cuda;
        std::uint64_t share = of_.shares.charge_share_of_vram(device, bytes);
        if (const usage now = of_.shares.ledger_of(device).read();
            now.file_bytes > 0) {
            const std::uint64_t over =
                std::min(round_up(now.over_bytes(), chunk_bytes), share);
            of_.shares.uncharge_vram(device, over);
            share -= over;
        }
        const std::uint64_t whole = whole_units(bytes, unit_bytes, share);
        if (bytes - whole >
            of_.shares.ledger_of(device).read().virtual_free_bytes())
            return share;
        of_.shares.uncharge_vram(device, share - whole);
        return whole;
    }

    CUresult make(CUdeviceptr base, std::uint64_t bytes)
    {
        using namespace emuv::cuda;
        const std::uint64_t unit_bytes = unit_for(bytes, true);
        const std::uint64_t vram_bytes = charge_vram(bytes, unit_bytes);
        std::vector<unit> units;
        CUresult result = CUDA_SUCCESS;
        if (vram_bytes > 0)
            result = map_handles(
                of_.calls, properties_of(CU_MEM_LOCATION_TYPE_DEVICE, device),
                base, vram_bytes, unit_bytes, units);
        const std::size_t first_host = units.size();
        std::vector<ram_charge> charges;
        const bool hides =
            bytes >= mover::least_moving_bytes && of_.moves.takes_hidden();
        for (std::uint64_t at = vram_bytes;
             at < bytes && result == CUDA_SUCCESS;) {
            const std::uint64_t next = next_unit(bytes - at, unit_bytes);
            const usage now = of_.shares.ledger_of(device).read();
            const auto one =
                now.file_bytes == 0 || now.virtual_free_bytes() >= next
                    ? of_.shares.charge_ram(device, next)
                    : std::nullopt;
            if (!one) {
                result = CUDA_ERROR_OUT_OF_MEMORY;
                break;
            }
            charges.push_back(*one);
            result = hides ? of_.host.create(base + at, one->bytes, unit_bytes,
                                             device, one->token, units)
                           : of_.host.map(base + at, one->bytes, unit_bytes,
                                          device, -1, one->token, units);
            at += one->bytes;
        }
        const bool in_file = result == CUDA_ERROR_OUT_OF_MEMORY &&
                             of_.moves.charge_file(bytes - vram_bytes);
        if (in_file) {
            for (; units.size() > first_host; units.pop_back())
                unmap(units.back(), true);
            for (const ram_charge &each : charges)
                of_.shares.uncharge_ram(device, each);
            charges.clear();
            result = CUDA_SUCCESS;
        }
        const CUmemAccessDesc access = access_of(device);
        const std::uint64_t mapped = in_file || hides ? vram_bytes : bytes;
        if (result == CUDA_SUCCESS && mapped > 0)
            result = of_.calls.cuMemSetAccess(base, mapped, &access, 1);
        for (std::uint64_t at = vram_bytes; in_file && at < bytes;) {
            unit next;
            next.at = base + at;
            next.bytes = next_unit(bytes - at, unit_bytes);
            next.mapped = false;
            units.push_back(next);
            at += next.bytes;
        }
        if (result != CUDA_SUCCESS) {
            for (std::size_t i = 0; i < units.size(); i++)
                unmap(units[i], i >= first_host);
            uncharge(vram_bytes, charges);
            return result;
        }
        std::vector<std::uint64_t> tokens;
        for (const ram_charge &each : charges)
            tokens.push_back(each.token);
        of_.moves.add(base, bytes, current_context(of_.calls), units,
                      first_host, tokens);
        return result;
    }

    CUresult unmap(const emuv::cuda::unit &one, bool in_host)
    {
        if (in_host)
            return of_.host.unmap(one);
        const CUresult result = of_.calls.cuMemUnmap(one.at, one.bytes);
        const CUresult released = of_.calls.cuMemRelease(one.handle);
        return result == CUDA_SUCCESS ? released : result;
    }

    void uncharge(std::uint64_t vram_bytes,
                  const std::vector<emuv::cuda::ram_charge> &charges)
    {
        of_.shares.uncharge_vram(device, vram_bytes);
        for (const emuv::cuda::ram_charge &each : charges)
            of_.shares.uncharge_ram(device, each);
    }

    const options of_;
    std::map<CUdeviceptr, std::uint64_t> bytes_; // of each block
};

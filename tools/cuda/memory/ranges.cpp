// SPDX-License-Identifier: LGPL-2.1-or-later
// Address ranges that we make: reserved, backed, charged, and open to the
// devices that may use them.
#include "memory/ranges.hpp"

#include "base/around.hpp"
#include "base/current.hpp"
#include "base/size.hpp"
#include "base/work.hpp"
#include "store/placement.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace emuv::cuda {

namespace {

std::uint64_t bit_of(int device)
{
    return std::uint64_t{1} << (static_cast<unsigned>(device) % max_devices);
}

template <typename All>
std::uint64_t bytes_of(const All &all)
{
    std::uint64_t bytes = 0;
    for (const auto &each : all)
        bytes += each.bytes;
    return bytes;
}

// The charge of each unit in system RAM; none where the charges are not by
// unit.
template <typename Backing>
std::vector<std::uint64_t> charges_by_unit(const Backing &of)
{
    std::vector<std::uint64_t> tokens;
    const std::size_t count = of.units.size() - of.first_host;
    if (of.ram_charges.size() != count)
        return tokens;
    for (std::size_t i = 0; i < count; i++) {
        if (of.ram_charges[i].bytes != of.units[of.first_host + i].bytes)
            return {};
        tokens.push_back(of.ram_charges[i].token);
    }
    return tokens;
}

} // namespace

ranges::ranges(const options &of)
    : calls_(of.calls), budget_(of.shares), host_(of.host), movers_(of.moving),
      spills_(of.spills)
{}

CUresult ranges::make(std::uint64_t bytes, int device, placing where,
                      range &made)
{
    return make(bytes, device, where, made, [&](auto attempt) {
        return budget_.until_it_fits(device, attempt);
    });
}

CUresult ranges::try_make(std::uint64_t bytes, int device, placing where,
                          range &made)
{
    return make(bytes, device, where, made,
                [](auto attempt) { return attempt(); });
}

template <typename Backed>
CUresult ranges::make(std::uint64_t bytes, int device, placing where,
                      range &made, Backed backed)
{
    reservation at{.bytes = round_up(bytes, chunk_bytes), .device = device};
    if (at.bytes < bytes) // wrapped
        return CUDA_ERROR_OUT_OF_MEMORY;
    // A range that can never fit needs no addresses.
    const ledger &limits = budget_.ledger_of(device);
    const usage now = limits.read();
    // Work needs all of it mapped, and nothing in the file is.
    if (at.bytes > now.physical_bytes + now.virtual_bytes - now.file_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUcontext context = current_context(calls_);
    CUresult result = reserve(at.bytes, at.base);
    if (result != CUDA_SUCCESS)
        return result;
    backing behind;
    result = backed([&] { return back(at, where, behind); });
    if (result != CUDA_SUCCESS) {
        calls_.cuMemAddressFree(at.base, at.bytes);
        return result;
    }
    const bool spilled = behind.vram_bytes < at.bytes;
    if (spilled && behind.file_bytes == 0)
        spills_.happened({at.base, device, bytes, behind.vram_bytes,
                          at.bytes - behind.vram_bytes},
                         limits);
    const bool moves =
        where != placing::ram_for_good && hand_over(at, context, behind);
    made = {at.base, at.bytes, context, spilled, moves};
    enter(at, std::move(behind));
    return CUDA_SUCCESS;
}

// Left alone, the driver starts in the first GiB of the address space. There,
// any two small numbers in a launch's parameters make an address. So the search
// starts where pointers look like nothing else. The driver may still choose
// other addresses: its answer counts.
CUresult ranges::reserve(std::uint64_t bytes, CUdeviceptr &base)
{
#ifndef __SANITIZE_THREAD__ // which keeps programs out of that part
    // As far as any processor's user space reaches, and then from the start
    // again.
    constexpr CUdeviceptr first_base = CUdeviceptr{0x2100} << 32;
    constexpr CUdeviceptr bases = CUdeviceptr{0x4000} << 32;
    // The driver (580) heeds hints that are multiples of this.
    constexpr std::uint64_t hint_bytes = std::uint64_t{32} << 20;
    constexpr unsigned most_tries = 4;
    // So that no range begins where another ends.
    const std::uint64_t apart = round_up(bytes + chunk_bytes, hint_bytes);
    for (unsigned i = 0; !movers_.empty() && i < most_tries; i++) {
        const CUdeviceptr hint =
            first_base + next_base_.fetch_add(apart) % bases;
        if (calls_.cuMemAddressReserve(&base, bytes, chunk_bytes, hint, 0) !=
            CUDA_SUCCESS)
            break;
        if (base >= first_base)
            return CUDA_SUCCESS;
        calls_.cuMemAddressFree(base, bytes);
    }
#endif
    return calls_.cuMemAddressReserve(&base, bytes, chunk_bytes, 0, 0);
}

std::uint64_t ranges::unit_bytes_at(const reservation &at) const
{
    return unit_for(at.bytes, movers_.of(at.device) != nullptr);
}

// Charges and maps a whole range, or leaves nothing behind.
CUresult ranges::back(const reservation &at, placing where, backing &made)
{
    backing fresh;
    // Before it is decided what is mapped: enter() opens it to those that come
    // later, once all is mapped for them.
    fresh.open_to = who_reads(at.device);
    CUresult result = CUDA_SUCCESS;
    if (where == placing::vram_first) {
        const std::uint64_t charged = charge_vram(at);
        result = map_vram(at, charged, fresh.units);
        fresh.vram_bytes = bytes_of(fresh.units);
        if (fresh.vram_bytes < charged)
            budget_.uncharge_vram(at.device, charged - fresh.vram_bytes);
    }
    fresh.first_host = fresh.units.size();
    const std::uint64_t rest = at.bytes - fresh.vram_bytes;
    if (result == CUDA_SUCCESS && rest > 0) {
        host_.choose(at.device, budget_);
        const std::uint64_t unit_bytes = unit_bytes_at(at);
        const reservation beyond{at.base + fresh.vram_bytes, rest, at.device};
        const bool may_hide = may_be_hidden(at, where, fresh);
        const bool hides = may_hide && takes_hidden(at.device);
        result = make_beyond(beyond, unit_bytes, hides, fresh);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && may_hide)
            result = put_in_file(beyond, unit_bytes, fresh);
        // To make it took long, and untrusted work may have come meanwhile.
        else if (result == CUDA_SUCCESS && hides && !takes_hidden(at.device))
            result = map_hidden(fresh);
    }
    if (result == CUDA_SUCCESS)
        result = open(at.base, open_bytes(at, fresh), fresh.open_to);
    if (result != CUDA_SUCCESS) {
        unmap(fresh, {});
        uncharge(at.device, fresh);
        return result;
    }
    if (rest > 0)
        seams_.store(true, std::memory_order_release);
    made = std::move(fresh);
    return CUDA_SUCCESS;
}

// True if the device's mover takes new handles that are mapped nowhere. The
// notice of the first spill copies out of the memory that it is about.
bool ranges::takes_hidden(int device) const
{
    return spills_.has_happened() && host_.by_handle() &&
           movers_.of(device)->takes_hidden();
}

// Maps handles that were only made.
CUresult ranges::map_hidden(backing &made) const
{
    for (unit &each : made.units) {
        if (each.mapped)
            continue;
        const CUresult result =
            calls_.cuMemMap(each.at, each.bytes, 0, each.handle, 0);
        if (result != CUDA_SUCCESS)
            return result;
        each.mapped = true;
    }
    return CUDA_SUCCESS;
}

// Charges and makes what is beyond the share, each charge at its address.
// @param hides  it is mapped nowhere
CUresult ranges::make_beyond(const reservation &at, std::uint64_t unit_bytes,
                             bool hides, backing &made)
{
    const int fd = budget_.ledger_of(at.device).region_fd();
    const std::size_t first = made.units.size();
    for (;;) {
        made.ram_charges = charge_ram(at.device, at.bytes, unit_bytes);
        CUresult result =
            made.ram_charges.empty() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        CUdeviceptr next = at.base;
        std::size_t done = 0;
        for (; done < made.ram_charges.size(); done++) {
            const ram_charge &each = made.ram_charges[done];
            result = hides ? host_.create(next, each.bytes, unit_bytes,
                                          at.device, each.token, made.units)
                           : host_.map(next, each.bytes, unit_bytes, at.device,
                                       fd, each.token, made.units);
            if (result != CUDA_SUCCESS)
                break;
            next += each.bytes;
        }
        if (done == made.ram_charges.size())
            return result;
        // A card that lends VRAM may have none, although its ledger has.
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            return result;
        for (; made.units.size() > first; made.units.pop_back())
            host_.unmap(made.units.back());
        const ram_charge lacking = made.ram_charges[done];
        made.ram_charges.erase(made.ram_charges.begin() +
                               static_cast<std::ptrdiff_t>(done));
        if (!budget_.uncharge_lacking(at.device, lacking))
            return result;
        for (const ram_charge &each : made.ram_charges)
            budget_.uncharge_ram(at.device, each);
    }
}

// True if units of the range may be mapped nowhere for a while. They move, work
// is searched for their addresses, and no other device reads them.
bool ranges::may_be_hidden(const reservation &at, placing where,
                           const backing &of) const
{
    return where != placing::ram_for_good && movers_.of(at.device) != nullptr &&
           at.bytes >= mover::least_moving_bytes && may_be_address(at.base) &&
           of.open_to == bit_of(at.device);
}

// Makes units without memory. They get some once work needs them.
CUresult ranges::put_in_file(const reservation &at, std::uint64_t unit_bytes,
                             backing &made)
{
    for (; made.units.size() > made.first_host; made.units.pop_back())
        host_.unmap(made.units.back());
    for (const ram_charge &each : made.ram_charges)
        budget_.uncharge_ram(at.device, each);
    made.ram_charges.clear();
    if (!movers_.of(at.device)->charge_file(at.bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    made.file_bytes = at.bytes;
    for (std::uint64_t done = 0; done < at.bytes;) {
        unit next;
        next.at = at.base + done;
        next.bytes = next_unit(at.bytes - done, unit_bytes);
        next.mapped = false;
        made.units.push_back(next);
        done += next.bytes;
    }
    return CUDA_SUCCESS;
}

// As much of the range as fits, from its begin. The calls for a handle that
// moves cost the same whatever its size. So only whole ones are taken, if there
// is system RAM for all that is left.
// @return the bytes charged
std::uint64_t ranges::charge_vram(const reservation &at) const
{
    std::uint64_t share = budget_.charge_share_of_vram(at.device, at.bytes);
    // Memory that has left VRAM may have taken the part of a file that is kept
    // for memory that moves. Then the VRAM that it left is no room for new
    // memory.
    const ledger &limits = budget_.ledger_of(at.device);
    if (const usage now = limits.has_file() ? limits.read() : usage{};
        now.file_bytes > 0) {
        const std::uint64_t over =
            std::min(round_up(now.over_bytes(), chunk_bytes), share);
        budget_.uncharge_vram(at.device, over);
        share -= over;
    }
    if (share == at.bytes || movers_.of(at.device) == nullptr)
        return share;
    const std::uint64_t whole = whole_units(at.bytes, unit_bytes_at(at), share);
    if (whole == share ||
        at.bytes - whole >
            budget_.ledger_of(at.device).read().virtual_free_bytes())
        return share;
    budget_.uncharge_vram(at.device, share - whole);
    return whole;
}

// A card may be full before the share is. Then VRAM is taken in smaller
// units, and the rest spills.
CUresult ranges::map_vram(const reservation &at, std::uint64_t bytes,
                          std::vector<unit> &units) const
{
    const auto vram = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, at.device);
    std::uint64_t size = unit_bytes_at(at);
    CUresult result = CUDA_SUCCESS;
    if (bytes == 0)
        return result;
    do {
        const std::uint64_t mapped = bytes_of(units);
        result = map_handles(calls_, vram, at.base + mapped, bytes - mapped,
                             size, units);
        size = round_up(size / 2, chunk_bytes);
    } while (result == CUDA_ERROR_OUT_OF_MEMORY && size > chunk_bytes);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

// Charges system RAM, whole or not at all. It is one region of the instance if
// there is a gap of that size in its offset space. Registered pages have to be
// one region. For handles a region is only the charge, and there may be
// several.
//
// Handles that move are charged one by one, since they may change hands. If the
// whole is not free, it is asked for as one. To charge it unit by unit would
// take memory from others for a moment.
// @return none where there is no room
std::vector<ram_charge> ranges::charge_ram(int device, std::uint64_t bytes,
                                           std::uint64_t unit_bytes)
{
    const ledger &limits = budget_.ledger_of(device);
    std::vector<ram_charge> charged;
    // Memory that has moved may have taken the part of a file that is kept for
    // that. Then what it left is no room for new memory.
    if (const usage now = limits.has_file() ? limits.read() : usage{};
        now.file_bytes > 0 && now.virtual_free_bytes() < bytes)
        return charged;
    std::uint64_t left = bytes;
    std::uint64_t size = host_.by_handle() && movers_.of(device) != nullptr &&
                                 limits.read().memory_free_bytes() >= bytes
                             ? unit_bytes
                             : bytes;
    while (left > 0) {
        size = next_unit(left, size);
        if (const auto one = budget_.charge_ram(device, size)) {
            charged.push_back(*one);
            left -= size;
        } else if (host_.by_handle() && size > chunk_bytes &&
                   limits.read().memory_free_bytes() >= left) {
            size = round_up(size / 2, chunk_bytes);
        } else {
            for (const ram_charge &each : charged)
                budget_.uncharge_ram(device, each);
            return {};
        }
    }
    return charged;
}

// @return whether its units move from here on
bool ranges::hand_over(const reservation &at, CUcontext context,
                       backing &made) const
{
    mover *const moves = movers_.of(at.device);
    // Launches are searched only for addresses of that kind.
    if (moves == nullptr || !may_be_address(at.base))
        return false;
    const auto charges = charges_by_unit(made);
    moves->add(at.base, at.bytes, context, made.units, made.first_host,
               charges);
    if (!charges.empty())
        made.ram_charges.clear();
    made.file_bytes = 0;
    for (unit &each : made.units)
        each.mapped = true; // or not, as the mover has it
    return true;
}

// Puts the range where peer_enabled() finds it. Opens it to the peers that were
// enabled while it was made.
void ranges::enter(const reservation &at, backing made)
{
    const std::uint64_t bytes = open_bytes(at, made);
    std::uint64_t late = 0;
    {
        const std::lock_guard guard(lock_);
        late = peers_of(at.device) & ~made.open_to;
        all_[at.base] = {at, std::move(made), 0};
    }
    open(at.base, bytes, late);
}

CUresult ranges::let_go(CUdeviceptr at, std::uint64_t bytes)
{
    reservation of;
    bool is_all = false;
    {
        const std::lock_guard guard(lock_);
        const auto found = around(
            all_, at, [](const record &each) { return each.where.bytes; });
        if (found == all_.end())
            return CUDA_ERROR_INVALID_VALUE;
        found->second.let_go_bytes += bytes;
        of = found->second.where;
        is_all = found->second.let_go_bytes >= of.bytes;
    }
    if (is_all)
        return drop(of.base);
    if (mover *const moves = movers_.of(of.device); moves != nullptr)
        moves->vacate(at);
    return CUDA_SUCCESS;
}

bool ranges::is_going(CUdeviceptr at)
{
    const std::lock_guard guard(lock_);
    const auto found =
        around(all_, at, [](const record &each) { return each.where.bytes; });
    return found != all_.end() && found->second.let_go_bytes > 0;
}

CUresult ranges::drop(CUdeviceptr base)
{
    std::map<CUdeviceptr, record>::node_type gone;
    {
        const std::lock_guard guard(lock_);
        gone = all_.extract(base);
    }
    if (gone.empty())
        return CUDA_ERROR_INVALID_VALUE;
    const reservation &at = gone.mapped().where;
    backing &behind = gone.mapped().behind;
    mover::remains left;
    mover *const moves = movers_.of(at.device);
    if (moves != nullptr && moves->remove(base, left)) {
        behind.units = std::move(left.units);
        behind.vram_bytes = left.physical_bytes;
        behind.ram_charges.insert(behind.ram_charges.end(),
                                  left.charges.begin(), left.charges.end());
    }
    CUresult result = unmap(behind, left);
    const CUresult freed = calls_.cuMemAddressFree(base, at.bytes);
    if (result == CUDA_SUCCESS)
        result = freed;
    uncharge(at.device, behind);
    return result;
}

// @param left  the places of its units, if a mover had them
// @return the first error; all is tried
CUresult ranges::unmap(const backing &gone, const mover::remains &left) const
{
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < gone.units.size(); i++) {
        const unit &each = gone.units[i];
        const bool in_host =
            left.host.empty() ? i >= gone.first_host : left.host[i];
        CUresult dropped = CUDA_SUCCESS;
        if (in_host && host_.by_handle() && each.handle == 0)
            continue; // it has no memory
        if (!left.away.empty() && left.away[i])
            dropped = calls_.cuMemRelease(each.handle);
        else if (in_host)
            dropped = host_.unmap(each);
        else {
            dropped = calls_.cuMemUnmap(each.at, each.bytes);
            const CUresult released = calls_.cuMemRelease(each.handle);
            if (dropped == CUDA_SUCCESS)
                dropped = released;
        }
        if (result == CUDA_SUCCESS)
            result = dropped;
    }
    return result;
}

void ranges::uncharge(int device, const backing &gone) const
{
    if (gone.vram_bytes > 0)
        budget_.uncharge_vram(device, gone.vram_bytes);
    for (const ram_charge &each : gone.ram_charges)
        budget_.uncharge_ram(device, each);
    if (gone.file_bytes > 0)
        movers_.of(device)->uncharge_file(gone.file_bytes);
}

// Access is set on handles that are mapped; registered pages have it.
std::uint64_t ranges::open_bytes(const reservation &at, const backing &of) const
{
    if (!of.units.back().mapped)
        return of.vram_bytes;
    return host_.by_handle() ? at.bytes : of.vram_bytes;
}

std::uint64_t ranges::who_reads(int device)
{
    const std::lock_guard guard(lock_);
    return peers_of(device) | bit_of(device);
}

CUresult ranges::open(CUdeviceptr base, std::uint64_t bytes,
                      std::uint64_t to) const
{
    CUmemAccessDesc access[max_devices];
    std::size_t count = 0;
    for (unsigned each = 0; each < max_devices; each++)
        if ((to >> each & 1) != 0)
            access[count++] = access_of(static_cast<int>(each));
    return count == 0 || bytes == 0
               ? CUDA_SUCCESS
               : calls_.cuMemSetAccess(base, bytes, access, count);
}

void ranges::peer_enabled(int device, int peer, reads_by why, bool enabled)
{
    if (device < 0 || peer < 0 || device >= static_cast<int>(max_devices) ||
        peer >= static_cast<int>(max_devices) || device == peer)
        return;
    // Memory that another device reads is mapped for two devices, and nobody
    // follows that device's work.
    if (mover *const moves = movers_.of(peer); enabled && moves != nullptr)
        moves->fix_all("the program gives a device access to another's");
    std::vector<std::pair<CUdeviceptr, std::uint64_t>> peers;
    {
        const std::lock_guard guard(lock_);
        auto &readers = readers_[static_cast<int>(why)][peer];
        if (enabled)
            readers |= bit_of(device);
        else
            readers &= ~bit_of(device);
        if (!enabled && (peers_of(peer) & bit_of(device)) != 0)
            return; // it may still, for the other reason
        for (const auto &[base, of] : all_)
            if (const std::uint64_t bytes = open_bytes(of.where, of.behind);
                of.where.device == peer && bytes > 0)
                peers.emplace_back(base, bytes);
    }
    CUmemAccessDesc access = access_of(device);
    if (!enabled)
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (const auto &[base, bytes] : peers)
        calls_.cuMemSetAccess(base, bytes, &access, 1);
}

namespace {

// Handles of one kind in a row count as one. Pages are as they were registered.
template <typename Backing>
std::uint64_t seam_after(const Backing &of, CUdeviceptr at)
{
    const auto &units = of.units;
    const auto first_host =
        units.begin() + static_cast<std::ptrdiff_t>(of.first_host);
    auto unit = std::upper_bound(
        units.begin(), units.end(), at,
        [](CUdeviceptr left, const auto &right) { return left < right.at; });
    if (unit == units.begin())
        return UINT64_MAX;
    --unit;
    if (unit->handle != 0)
        while (std::next(unit) != units.end() &&
               std::next(unit) != first_host && std::next(unit)->handle != 0)
            ++unit;
    return std::next(unit) == units.end() ? UINT64_MAX
                                          : unit->at + unit->bytes - at;
}

} // namespace

std::optional<stretch> ranges::stretch_at(CUdeviceptr at)
{
    stretch out;
    int device = 0;
    {
        const std::lock_guard guard(lock_);
        const auto found = around(
            all_, at, [](const record &each) { return each.where.bytes; });
        if (found == all_.end())
            return {};
        const reservation &where = found->second.where;
        const backing &behind = found->second.behind;
        device = where.device;
        out.left = where.bytes - (at - where.base);
        out.bytes = seam_after(behind, at);
        out.in_ram =
            std::any_of(behind.units.begin() +
                            static_cast<std::ptrdiff_t>(behind.first_host),
                        behind.units.end(), [at](const unit &each) {
                            return at - each.at < each.bytes;
                        });
    }
    // Units that move lie elsewhere by now.
    mover *const moves = movers_.of(device);
    const auto now =
        moves != nullptr ? moves->stretch_at(at) : std::optional<stretch>();
    return now ? now : out;
}

std::uint64_t ranges::lent_bytes(CUdeviceptr at, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    const auto found =
        around(all_, at, [](const record &each) { return each.where.bytes; });
    if (found == all_.end())
        return 0;
    std::uint64_t lent = 0;
    for (const unit &each : found->second.behind.units) {
        const CUdeviceptr first = std::max(at, each.at);
        const CUdeviceptr end = std::min(at + bytes, each.at + each.bytes);
        if (each.peer >= 0 && first < end)
            lent += end - first;
    }
    return lent;
}

} // namespace emuv::cuda

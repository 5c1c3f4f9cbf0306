// SPDX-License-Identifier: LGPL-2.1-or-later
// Every piece of memory the program holds: where it lies, what it is charged.
#include "memory/memory.hpp"

#include "base/around.hpp"
#include "base/captures.hpp"
#include "base/current.hpp"
#include "base/size.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace emuv::cuda {

memory::memory(const driver &calls, std::vector<ledger *> ledgers, store &host,
               report_kind report, void (*notice)(const spill_notice &),
               bool exportable, std::vector<mover *> movers,
               bool (*asks_again)(), std::vector<footprint *> footprints)
    : calls_(calls), host_(host), movers_(std::move(movers)),
      budget_({calls, std::move(ledgers), std::move(footprints), report,
               asks_again}),
      first_spill_(calls, host, notice), exportable_(exportable),
      graphs_(calls, budget_.stream_pools()),
      handles_(calls, budget_, host, first_spill_)
{
    // What is kept for later makes way before what movement needs.
    budget_.add(*this);
    budget_.add(movers_);
}

void memory::context_ends(CUcontext context)
{
    for (mover *each : movers_)
        each->stop(context);
}

void memory::context_stays(CUcontext context)
{
    for (mover *each : movers_)
        each->resume(context);
}

void memory::context_attached(CUcontext context)
{
    const std::lock_guard guard(lock_);
    attached_[context]++;
}

bool memory::context_detached(CUcontext context)
{
    const std::lock_guard guard(lock_);
    const auto found = attached_.find(context);
    if (found == attached_.end())
        return false;
    if (--found->second == 0)
        attached_.erase(found);
    return true;
}

int memory::current_device() const
{
    return cuda::current_device(calls_);
}

bool memory::is_capturing(CUstream stream) const
{
    return cuda::is_capturing(calls_, stream);
}

// ---- Plain allocations

CUresult memory::allocate(CUdeviceptr *pointer, std::uint64_t bytes)
{
    collect(false);
    const int device = current_device();
    const bool large = bytes >= chunk_bytes;
    if (large && budget_.is_refused(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (large && !exportable_)
        return allocate_backed(pointer, bytes, device, true);
    // A large one takes whole chunks of the driver, too. What wraps is not to
    // be had in any case.
    const std::uint64_t taken =
        std::max(large ? round_up(bytes, chunk_bytes) : bytes, bytes);
    if (budget_.charge_vram(device, taken)) {
        const CUresult result = calls_.cuMemAlloc_v2(pointer, bytes);
        if (result == CUDA_SUCCESS) {
            remember(*pointer, taken, device, {});
            return result;
        }
        budget_.uncharge_vram(device, taken);
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            return result;
    }
    return large ? allocate_backed(pointer, bytes, device, true)
                 : allocate_host(pointer, bytes, device);
}

CUresult memory::allocate_pitch(CUdeviceptr *pointer, std::size_t *pitch,
                                std::size_t width, std::size_t height,
                                unsigned element_bytes)
{
    // The driver's rule for pitches is its own: ask it once for each element
    // size. What it says to arguments it does not like is its answer, too.
    std::size_t wide = 0;
    const bool known =
        element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    const auto slot = static_cast<std::size_t>(
        known ? std::countr_zero(element_bytes) - 2 : 0);
    {
        const std::lock_guard guard(lock_);
        wide = known ? pitch_alignment_[slot] : 0;
    }
    if (wide == 0) {
        CUdeviceptr probe = 0;
        const CUresult result =
            calls_.cuMemAllocPitch_v2(&probe, &wide, 1, 1, element_bytes);
        if (result != CUDA_SUCCESS)
            return result;
        calls_.cuMemFree_v2(probe);
        const std::lock_guard guard(lock_);
        if (known && std::has_single_bit(wide))
            pitch_alignment_[slot] = wide;
    }
    std::size_t row = 0;
    std::size_t bytes = 0;
    // More than an address can count: the driver has an answer to that.
    if (__builtin_add_overflow(width, wide - 1, &row) ||
        __builtin_mul_overflow(row / wide * wide, height, &bytes))
        return calls_.cuMemAllocPitch_v2(pointer, pitch, width, height,
                                         element_bytes);
    row = row / wide * wide;
    const CUresult result = allocate(pointer, bytes);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

CUresult memory::free(CUdeviceptr pointer)
{
    if (is_vacant(pointer))
        return CUDA_ERROR_INVALID_VALUE;
    collect(false);
    held entry;
    bool ours = false;
    {
        // Out of the table first: whoever frees it again gets the driver's
        // answer to an address it does not know.
        const std::lock_guard guard(lock_);
        const auto found = held_.find(pointer);
        if (found != held_.end() && found->second.placed()) {
            entry = std::move(found->second);
            held_.erase(found);
            ours = true;
            count_use(entry, false);
        }
    }
    if (ours) {
        // cuMemFree waits for the kernels that may still use the memory;
        // unmapping does not, and would kill them.
        const CUresult waited = synchronize(entry.context);
        if (waited == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
            // Nobody waits while a stream is captured: it stays, as with
            // cuMemFree.
            const std::lock_guard guard(lock_);
            count_use(entry, true);
            held_[pointer] = std::move(entry);
            return waited;
        }
        budget_.returned(entry.device, entry.bytes);
        const CUresult dropped = drop(pointer, entry);
        return waited != CUDA_SUCCESS ? waited : dropped;
    }
    return free_counted(pointer, held_,
                        [&] { return calls_.cuMemFree_v2(pointer); });
}

CUresult memory::synchronize(CUcontext context) const
{
    CUcontext current = nullptr;
    calls_.cuCtxGetCurrent(&current);
    if (current == context)
        return calls_.cuCtxSynchronize();
    CUresult result = calls_.cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = calls_.cuCtxSynchronize();
    calls_.cuCtxPopCurrent_v2(&context);
    return result;
}

// ---- Ranges of our own

// Puts a range where others find it, under the lock, and opens it to the peers
// that were enabled while it was made.
template <typename Put>
void memory::publish(CUdeviceptr base, const held &made, Put put)
{
    const std::uint64_t handles = handle_bytes(made);
    std::uint64_t who = 0;
    {
        const std::lock_guard guard(lock_);
        who = new_peers(made);
        put();
    }
    open(base, handles, who);
}

CUresult memory::allocate_backed(CUdeviceptr *pointer, std::uint64_t bytes,
                                 int device, bool use_vram)
{
    held entry;
    entry.bytes = bytes;
    entry.device = device;
    CUdeviceptr base = 0;
    const CUresult result = make_range(&base, entry, use_vram);
    if (result != CUDA_SUCCESS)
        return result;
    *pointer = base;
    if (mover *const moves = movers_.of(device)) {
        const auto charges = charges_by_unit(entry);
        moves->add(base, entry.reserved_bytes, entry.context, entry.units,
                   entry.first_host_unit, charges);
        if (!charges.empty())
            entry.regions.clear();
    }
    publish(base, entry, [&] {
        entry.serial = next_serial_++;
        held_[base] = std::move(entry);
    });
    return CUDA_SUCCESS;
}

CUresult memory::make_range(CUdeviceptr *base, held &entry, bool use_vram)
{
    const std::uint64_t rounded = round_up(entry.bytes, chunk_bytes);
    if (rounded < entry.bytes) // wrapped
        return CUDA_ERROR_OUT_OF_MEMORY;
    // What can never fit needs no address range.
    const usage limits = budget_.ledger_of(entry.device).read();
    if (rounded > limits.physical_bytes + limits.virtual_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;

    entry.made_by = maker::range;
    entry.reserved_bytes = rounded;
    calls_.cuCtxGetCurrent(&entry.context);
    CUresult result = reserve(base, rounded);
    if (result != CUDA_SUCCESS)
        return result;
    result = budget_.until_it_fits(entry.device, [&] {
        return back(*base, entry.device, entry, use_vram);
    });
    if (result != CUDA_SUCCESS) {
        calls_.cuMemAddressFree(*base, rounded);
        return result;
    }
    std::uint64_t spilled = 0;
    for (const auto &region : entry.regions)
        spilled += region.bytes;
    if (spilled > 0)
        first_spill_.happened(
            {*base, entry.device, entry.bytes, entry.physical_bytes, spilled},
            budget_.ledger_of(entry.device));
    return CUDA_SUCCESS;
}

// An address range. Left alone, the driver starts in the first GiB of the
// address space, where any two small numbers in a launch's parameters make an
// address; so the search starts where pointers look like nothing else.
CUresult memory::reserve(CUdeviceptr *base, std::uint64_t bytes)
{
    // As far as any processor's user space reaches, and then again.
    [[maybe_unused]] constexpr CUdeviceptr first_base = CUdeviceptr{0x2100}
                                                        << 32;
    [[maybe_unused]] constexpr CUdeviceptr bases = CUdeviceptr{0x4000} << 32;
#ifndef __SANITIZE_THREAD__ // which keeps programs out of that part
    const CUdeviceptr hint =
        first_base + next_base_.fetch_add(bytes + chunk_bytes) % bases;
    if (!movers_.empty() && calls_.cuMemAddressReserve(base, bytes, chunk_bytes,
                                                       hint, 0) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
#endif
    return calls_.cuMemAddressReserve(base, bytes, chunk_bytes, 0, 0);
}

// ---- System RAM, in whole chunks or in pieces of one

CUresult memory::allocate_host(CUdeviceptr *pointer, std::uint64_t bytes,
                               int device)
{
    if (bytes >= chunk_bytes)
        return allocate_backed(pointer, bytes, device, false);
    held entry;
    entry.made_by = maker::piece;
    entry.bytes = bytes;
    entry.device = device;
    calls_.cuCtxGetCurrent(&entry.context);
    {
        const std::lock_guard guard(lock_);
        if (place_piece(pointer, entry))
            return CUDA_SUCCESS;
    }
    shared_chunk fresh;
    fresh.whole.bytes = chunk_bytes;
    fresh.whole.device = device;
    CUdeviceptr base = 0;
    const CUresult result = make_range(&base, fresh.whole, false);
    if (result != CUDA_SUCCESS) {
        // There may be room where others left by now.
        const std::lock_guard guard(lock_);
        return place_piece(pointer, entry) ? CUDA_SUCCESS : result;
    }
    // In this chunk, whatever has become free in others: with its last piece a
    // chunk goes, and one that never held any would stay.
    publish(base, fresh.whole, [&] {
        shared_chunk &chunk = chunks_[base] = std::move(fresh);
        place_piece(pointer, entry, base, chunk);
    });
    return CUDA_SUCCESS;
}

// Under the lock.
bool memory::place_piece(CUdeviceptr *pointer, held &entry)
{
    for (auto &[base, chunk] : chunks_)
        if (chunk.whole.device == entry.device &&
            place_piece(pointer, entry, base, chunk))
            return true;
    return false;
}

// Under the lock.
bool memory::place_piece(CUdeviceptr *pointer, held &entry, CUdeviceptr base,
                         shared_chunk &chunk)
{
    std::uint64_t offset = 0;
    if (!chunk.pieces.take(entry.bytes, offset))
        return false;
    entry.chunk = base;
    entry.serial = next_serial_++;
    *pointer = base + offset;
    held_[base + offset] = entry;
    return true;
}

CUresult memory::drop_piece(CUdeviceptr at, const held &entry)
{
    std::map<CUdeviceptr, shared_chunk>::node_type unused;
    {
        const std::lock_guard guard(lock_);
        const auto chunk = chunks_.find(entry.chunk);
        chunk->second.pieces.give(at - chunk->first, entry.bytes);
        if (chunk->second.pieces.empty())
            unused = chunks_.extract(chunk);
    }
    return unused.empty() ? CUDA_SUCCESS
                          : drop(unused.key(), unused.mapped().whole);
}

// Charges system RAM, whole or not at all: one region of the instance's if
// there is a gap of that size in its offset space. Registered pages have to be
// one; of handles a region is only the charge, and may be several. Where they
// move, each handle has its own, since they may change hands; but what cannot
// be had as a whole is asked for as one, not to take from others for a moment
// what they may have.
bool memory::charge_host(int device, std::uint64_t bytes,
                         std::uint64_t unit_bytes, held &entry)
{
    ledger &limits = budget_.ledger_of(device);
    std::uint64_t token = 0;
    std::uint64_t left = bytes;
    std::uint64_t piece = host_.by_handle() && movers_.of(device) != nullptr &&
                                  limits.read().virtual_free_bytes() >= bytes
                              ? unit_bytes
                              : bytes;
    while (left > 0) {
        piece = next_unit(left, piece);
        if (limits.charge_virtual(piece, token)) {
            entry.regions.push_back({piece, token});
            left -= piece;
        } else if (host_.by_handle() && piece > chunk_bytes &&
                   limits.read().virtual_free_bytes() >= left) {
            piece = round_up(piece / 2, chunk_bytes);
        } else {
            for (const auto &region : entry.regions)
                limits.uncharge_virtual(region.bytes, region.token);
            entry.regions.clear();
            return false;
        }
    }
    return true;
}

// The charge of each unit in system RAM; none where they were not to be had so.
std::vector<std::uint64_t> memory::charges_by_unit(const held &entry)
{
    std::vector<std::uint64_t> tokens;
    const std::size_t count = entry.units.size() - entry.first_host_unit;
    if (entry.regions.size() != count)
        return tokens;
    for (std::size_t i = 0; i < count; i++) {
        if (entry.regions[i].bytes !=
            entry.units[entry.first_host_unit + i].bytes)
            return {};
        tokens.push_back(entry.regions[i].token);
    }
    return tokens;
}

// Charges and maps a whole range, or leaves nothing behind.
CUresult memory::back(CUdeviceptr base, int device, held &entry, bool use_vram)
{
    ledger &limits = budget_.ledger_of(device);
    const std::uint64_t bytes = entry.reserved_bytes;
    const std::uint64_t unit_bytes =
        unit_for(bytes, movers_.of(device) != nullptr);

    const std::uint64_t vram =
        use_vram ? budget_.charge_share_of_vram(device, bytes) : 0;
    std::uint64_t mapped = 0;
    CUresult result = CUDA_SUCCESS;
    if (vram > 0) {
        // A card that is full before the budget is: what it still has in
        // smaller pieces, and the rest spills.
        std::uint64_t piece = unit_bytes;
        do {
            const std::size_t before = entry.units.size();
            result = map_handles(
                calls_, properties_of(CU_MEM_LOCATION_TYPE_DEVICE, device),
                base + mapped, vram - mapped, piece, entry.units);
            for (std::size_t i = before; i < entry.units.size(); i++)
                mapped += entry.units[i].bytes;
            piece = round_up(piece / 2, chunk_bytes);
        } while (result == CUDA_ERROR_OUT_OF_MEMORY && piece > chunk_bytes);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            result = CUDA_SUCCESS;
        if (mapped < vram)
            limits.uncharge_physical(vram - mapped);
    }
    entry.physical_bytes = mapped;
    entry.first_host_unit = entry.units.size();
    if (result == CUDA_SUCCESS && mapped < bytes) {
        const std::uint64_t rest = bytes - mapped;
        host_.choose(device, limits);
        if (!charge_host(device, rest, unit_bytes, entry))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else
            result = host_.map(base + mapped, rest, unit_bytes, device,
                               limits.region_fd(), entry.regions[0].token,
                               entry.units);
    }
    const std::uint64_t handles = handle_bytes(entry);
    if (result == CUDA_SUCCESS && handles > 0)
        result = set_access(base, handles, device, entry.open_to);
    if (result == CUDA_SUCCESS && mapped < bytes)
        seams_.store(true, std::memory_order_release);
    if (result != CUDA_SUCCESS)
        drop(0, entry);
    return result;
}

// Unmaps and uncharges; frees the range as well unless base is 0.
CUresult memory::drop(CUdeviceptr base, held &entry)
{
    if (entry.made_by == maker::piece)
        return drop_piece(base, entry);
    ledger &limits = budget_.ledger_of(entry.device);
    CUresult result = CUDA_SUCCESS;
    mover::remains left;
    mover *const moves = base != 0 ? movers_.of(entry.device) : nullptr;
    if (moves != nullptr && moves->remove(base, left)) {
        entry.units = std::move(left.units);
        entry.physical_bytes = left.physical_bytes;
        for (const auto &more : left.charges)
            entry.regions.push_back({more.bytes, more.token});
    }
    for (std::size_t i = 0; i < entry.units.size(); i++) {
        const unit &each = entry.units[i];
        CUresult dropped = CUDA_SUCCESS;
        const bool in_host =
            left.host.empty() ? i >= entry.first_host_unit : left.host[i];
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
    entry.units.clear();
    if (base != 0) {
        const CUresult freed =
            calls_.cuMemAddressFree(base, entry.reserved_bytes);
        if (result == CUDA_SUCCESS)
            result = freed;
    }
    if (entry.physical_bytes > 0)
        limits.uncharge_physical(entry.physical_bytes);
    entry.physical_bytes = 0;
    for (const auto &region : entry.regions)
        limits.uncharge_virtual(region.bytes, region.token);
    entry.regions.clear();
    return result;
}

// Access is set on handles; registered pages have it.
std::uint64_t memory::handle_bytes(const held &entry) const
{
    return host_.by_handle() ? entry.reserved_bytes : entry.physical_bytes;
}

CUresult memory::set_access(CUdeviceptr base, std::uint64_t bytes, int device,
                            std::uint64_t &who)
{
    {
        const std::lock_guard guard(lock_);
        who = peers_[static_cast<unsigned>(device) % max_devices];
    }
    who |= std::uint64_t{1} << (static_cast<unsigned>(device) % max_devices);
    return open(base, bytes, who);
}

CUresult memory::open(CUdeviceptr base, std::uint64_t bytes,
                      std::uint64_t who) const
{
    CUmemAccessDesc access[max_devices];
    std::size_t count = 0;
    for (unsigned each = 0; each < max_devices; each++)
        if ((who >> each & 1) != 0)
            access[count++] = access_of(static_cast<int>(each));
    return count == 0 || bytes == 0
               ? CUDA_SUCCESS
               : calls_.cuMemSetAccess(base, bytes, access, count);
}

// Under the lock, as an allocation is entered among those that peer_enabled()
// finds: who was enabled while it was made.
std::uint64_t memory::new_peers(const held &entry) const
{
    return peers_[static_cast<unsigned>(entry.device) % max_devices] &
           ~entry.open_to;
}

void memory::peer_enabled(int device, int peer, bool enabled)
{
    // device now reads, or no longer reads, what lies on peer.
    if (device < 0 || peer < 0 || device >= static_cast<int>(max_devices) ||
        peer >= static_cast<int>(max_devices) || device == peer)
        return;
    // What another device reads is mapped for two, and its work is not
    // followed.
    if (mover *const moves = movers_.of(peer); enabled && moves != nullptr)
        moves->fix_all("the program gives a device access to another's");
    std::vector<std::pair<CUdeviceptr, std::uint64_t>> ranges;
    {
        const std::lock_guard guard(lock_);
        const std::uint64_t bit = std::uint64_t{1} << device;
        if (enabled)
            peers_[peer] |= bit;
        else
            peers_[peer] &= ~bit;
        const auto add = [&](CUdeviceptr base, const held &entry) {
            if (entry.made_by == maker::range && entry.device == peer &&
                handle_bytes(entry) > 0)
                ranges.emplace_back(base, handle_bytes(entry));
        };
        for (const auto &[base, entry] : held_)
            add(base, entry);
        for (const auto &[base, entry] : vacant_)
            add(base, entry);
        for (const auto &[base, chunk] : chunks_)
            add(base, chunk.whole);
    }
    CUmemAccessDesc access = access_of(device);
    if (!enabled)
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (const auto &[base, bytes] : ranges)
        calls_.cuMemSetAccess(base, bytes, &access, 1);
}

// ---- The table

bool memory::is_placed(CUdeviceptr pointer)
{
    const std::lock_guard guard(lock_);
    const auto found = held_.find(pointer);
    return found != held_.end() && found->second.placed();
}

void memory::remember(CUdeviceptr at, std::uint64_t bytes, int device,
                      const charge &taken, bool in_order)
{
    held made;
    made.in_order = in_order;
    made.reserved_bytes = in_order ? bytes : 0;
    made.bytes = bytes;
    made.device = device;
    made.taken = taken;
    made.context = current_context(calls_);
    const std::lock_guard guard(lock_);
    made.serial = next_serial_++;
    held_[at] = std::move(made);
}

void memory::remember_array(CUdeviceptr handle, std::uint64_t bytes, int device)
{
    held made;
    made.bytes = bytes;
    made.device = device;
    made.context = current_context(calls_);
    const std::lock_guard guard(lock_);
    made.serial = next_serial_++;
    arrays_[handle] = std::move(made);
}

bool memory::is_allocation(CUdeviceptr at, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    return any_within(held_, at, bytes,
                      [](const held &each) {
                          return each.made_by == maker::range
                                     ? each.reserved_bytes
                                     : 0;
                      }) ||
           any_within(chunks_, at, bytes,
                      [](const shared_chunk &) { return chunk_bytes; });
}

bool memory::find(CUdeviceptr address, range_view &view)
{
    {
        const std::lock_guard guard(lock_);
        const auto entry = around(held_, address, [](const held &each) {
            return each.placed() ? each.bytes : 0;
        });
        if (entry != held_.end()) {
            const held &found = entry->second;
            view = {entry->first,
                    found.bytes,
                    found.device,
                    found.context,
                    true,
                    found.made_by == maker::piece ||
                        found.physical_bytes < found.reserved_bytes,
                    found.serial};
            return true;
        }
    }
    return handles_.find(address, view);
}

// Under the lock. The range of ours that holds an address, or the end.
std::map<CUdeviceptr, memory::held>::const_iterator
memory::range_around(CUdeviceptr at) const
{
    return around(held_, at, [](const held &each) {
        return each.made_by == maker::range ? each.reserved_bytes : 0;
    });
}

// Handles in a row are one where they are of one kind; pages are as they were
// registered.
std::uint64_t memory::seam_after(const held &entry, CUdeviceptr at) const
{
    const auto &units = entry.units;
    const auto first_host =
        units.begin() + static_cast<std::ptrdiff_t>(entry.first_host_unit);
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

std::optional<memory::stretch> memory::stretch_around(CUdeviceptr at)
{
    stretch out;
    int device = 0;
    {
        const std::lock_guard guard(lock_);
        const auto entry = range_around(at);
        if (entry == held_.end())
            return {};
        const held &of = entry->second;
        device = of.device;
        out.left = of.reserved_bytes - (at - entry->first);
        out.bytes = seam_after(of, at);
        out.in_ram = std::any_of(
            of.units.begin() + static_cast<std::ptrdiff_t>(of.first_host_unit),
            of.units.end(),
            [at](const unit &each) { return at - each.at < each.bytes; });
    }
    // What moves lies elsewhere by now.
    mover *const moves = movers_.of(device);
    if (const auto now = moves != nullptr ? moves->stretch_at(at)
                                          : std::optional<mover::stretch>()) {
        out.bytes = now->bytes;
        out.in_ram = now->in_ram;
    }
    return out;
}

std::uint64_t memory::seam_after(CUdeviceptr at)
{
    const auto found = stretch_around(at);
    return found ? found->bytes : UINT64_MAX;
}

bool memory::crosses_seam(CUdeviceptr at, std::uint64_t bytes)
{
    const auto found = stretch_around(at);
    return found && bytes <= found->left && found->bytes < bytes;
}

bool memory::in_system_ram(CUdeviceptr at)
{
    const auto found = stretch_around(at);
    return found && found->in_ram;
}

void memory::show_info(int device, std::size_t &real_free,
                       std::size_t &real_total)
{
    collect(false);
    budget_.follow_footprint(device);
    std::uint64_t kept = 0;
    {
        const std::lock_guard guard(lock_);
        kept = vacancies_.bytes();
    }
    budget_.show_info(device, kept, real_free, real_total);
}

std::uint64_t memory::next_serial()
{
    const std::lock_guard guard(lock_);
    return next_serial_;
}

void memory::context_gone(CUcontext context, std::uint64_t before)
{
    for (mover *each : movers_)
        each->gone(context);
    budget_.forget_context(context);
    const auto lost = [=](const held &entry) {
        return entry.context == context && entry.serial < before;
    };
    std::vector<std::pair<CUdeviceptr, held>> entries;
    {
        const std::lock_guard guard(lock_);
        attached_.erase(context);
        vacancies_.take_if([&](const vacancies::vacancy &each) {
            return lost(vacant_[each.base]);
        });
        for (auto *table : {&held_, &arrays_, &vacant_})
            for (auto each = table->begin(); each != table->end();) {
                if (!lost(each->second)) {
                    ++each;
                    continue;
                }
                if (table == &held_ && each->second.placed())
                    count_use(each->second, false);
                if (table == &vacant_ && !each->second.placed())
                    count_use(each->second, true);
                entries.emplace_back(each->first, std::move(each->second));
                each = table->erase(each);
            }
        for (auto each = leaving_.begin(); each != leaving_.end();) {
            if (!lost(each->what)) {
                ++each;
                continue;
            }
            entries.emplace_back(each->base, std::move(each->what));
            each = leaving_.erase(each);
        }
    }
    for (auto &[base, entry] : entries) {
        if (entry.placed())
            drop(base, entry);
        else
            budget_.give_back(entry.device, entry.bytes, entry.taken);
    }
    budget_.shrink_footprints();
}

CUresult memory::create_handle(CUmemGenericAllocationHandle *handle,
                               std::size_t bytes,
                               const CUmemAllocationProp &properties,
                               unsigned long long flags)
{
    collect(false);
    return handles_.create(handle, bytes, properties, flags);
}

} // namespace emuv::cuda

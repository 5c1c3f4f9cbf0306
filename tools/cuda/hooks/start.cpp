// SPDX-License-Identifier: LGPL-2.1-or-later
// Starts the library: turns the settings into limits that are kept.
#include "account/file_room.hpp"
#include "account/tiers.hpp"
#include "base/size.hpp"
#include "base/summary.hpp"
#include "hooks/callers.hpp"
#include "hooks/process_vram.hpp"
#include "hooks/recording.hpp"
#include "hooks/session.hpp"
#include "interpose/message.hpp"
#include "movement/remembered.hpp"
#include "store/placement.hpp"
#include "store/store_choice.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

extern "C" void *emuv_resolve(unsigned index);

namespace emuv::cuda {

constinit thread_local int entry::depth_ = 0;

namespace {

std::atomic<state *> active;
std::mutex start_lock;
bool started;
CUresult start_result;
ledger_file *rows; // null with instances
std::vector<instance_ledger *> *clients;
bool one_process;              // limits that nobody else shares
bool lends;                    // other cards' VRAM
move_kind moving;              // as it is done, not as it was asked for
std::mutex giving;             // held while others are given VRAM
std::atomic<unsigned> refuted; // kernels that were proven, and should not be

// Notes the link's rate, as it was measured once, for all devices.
void note_link(double bytes_per_second)
{
    const state *const made = active.load(std::memory_order_acquire);
    if (made == nullptr || made->page.head() == nullptr)
        return;
    for (int i = 0; i < made->devices; i++)
        std::atomic_ref(
            made->page.device(static_cast<std::size_t>(i)).link_rate) =
            static_cast<std::uint64_t>(bytes_per_second);
}

void tell_spill(const spill_notice &notice)
{
    note_link(notice.link_bytes_per_second);
    char link[64] = "the link's rate could not be measured";
    if (notice.link_bytes_per_second > 0)
        std::snprintf(link, sizeof link, "the link moves %.1f GB/s",
                      notice.link_bytes_per_second / 1e9);
    char store[128];
    if (notice.trial == nullptr)
        std::snprintf(store, sizeof store, "%s", notice.store_name);
    else
        std::snprintf(store, sizeof store,
                      "%s, chosen in %.0f ms: copies at %.1f GB/s, %s at %.1f",
                      notice.store_name, notice.trial->seconds * 1e3,
                      notice.trial->rate / 1e9, notice.trial->other,
                      notice.trial->other_rate / 1e9);
    const char *way = "; kernels read it there, as nothing moves";
    if (moving == move_kind::on || moving == move_kind::always)
        way = "; it comes to VRAM ahead of its use";
    else if (moving == move_kind::check)
        way = "; nothing moves, and kernels are checked";
    say("%s of an allocation of %s went to %s (%s): VRAM in use %s of "
        "%s; %s%s%s",
        show_size(notice.spilled_bytes).text,
        show_size(notice.allocation_bytes).text,
        lends ? "other cards or system RAM" : "system RAM", store,
        show_size(notice.limits.physical_used_bytes).text,
        show_size(notice.limits.physical_bytes).text, link, way,
        one_process ? "; the limits hold for this process alone" : "");
}

// The advice to the user about a refusal.
void advise(const refusal_notice &notice, char *text, std::size_t length)
{
    const usage &limits = notice.limits;
    const size_text missing = show_size(notice.missing_bytes());
    const bool has_instance = clients != nullptr && !clients->empty();
    if (limits.file_bytes > 0 && notice.bytes > limits.physical_bytes +
                                                    limits.virtual_bytes -
                                                    limits.file_bytes)
        std::snprintf(text, length,
                      "It is larger than VRAM and system RAM together, and "
                      "work would need all of it there");
    else if (notice.missing_bytes() == 0)
        std::snprintf(text, length,
                      "The limits have room, but the card or this machine has "
                      "none: see nvidia-smi and free -h");
    else if (notice.only_vram)
        std::snprintf(text, length, "It can only be in VRAM: %s lacks %s there",
                      has_instance ? "the instance" : "--physical",
                      missing.text);
    else if (limits.virtual_bytes == 0)
        std::snprintf(text, length,
                      "No system RAM is granted: with %s of it, this would "
                      "spill (%s)",
                      missing.text,
                      has_instance ? "emuvctl create --virtual"
                                   : "emuvctl run --virtual");
    else
        std::snprintf(text, length,
                      "It lacks %s: a larger %s would take it, or hold less",
                      missing.text,
                      limits.file_bytes > 0 ? "file (--tier)"
                      : has_instance ? "instance (emuvctl create --virtual)"
                                     : "--virtual");
}

void tell_refusal(const refusal_notice &notice)
{
    char advice[160];
    advise(notice, advice, sizeof advice);
    say("refused %s: in use are %s of %s VRAM (%s by this process) and %s of "
        "%s %s. %s",
        show_size(notice.bytes).text,
        show_size(notice.limits.physical_used_bytes).text,
        show_size(notice.limits.physical_bytes).text,
        show_size(notice.own_vram_bytes).text,
        show_size(notice.limits.virtual_used_bytes).text,
        show_size(notice.limits.virtual_bytes).text,
        lends || notice.limits.file_bytes > 0 ? "beyond it" : "system RAM",
        advice);
}

void tell_footprint(std::uint64_t taken, std::uint64_t missing)
{
    say("CUDA itself takes %s of VRAM, for which the share has %s: it takes "
        "the rest all the same (EMUV_CHARGE=allocations does not count it)",
        show_size(taken).text, show_size(taken - missing).text);
}

// The child drops its parent's state. The driver does not work across a fork,
// and a child that starts anew must not share the parent's client.
void in_child()
{
    forward_after_fork();
    new (&start_lock) std::mutex;
    new (&giving) std::mutex;
    proofs::in_child();
    if (rows != nullptr)
        rows->close_after_fork();
    rows = nullptr;
    if (clients != nullptr)
        for (instance_ledger *client : *clients)
            client->close_after_fork();
    clients = nullptr;
    if (state *const was = active.load(std::memory_order_acquire)) {
        was->record.close_after_fork();
        if (was->file != nullptr)
            was->file->close_after_fork();
    }
    active.store(nullptr, std::memory_order_release);
    stop_recording_after_fork();
    started = false;
}

void fill(driver &calls)
{
#define EMUV_DRIVER_FILL(name)                                                 \
    calls.name = reinterpret_cast<decltype(calls.name)>(                       \
        emuv_resolve(static_cast<unsigned>(symbol::name)));
    EMUV_DRIVER_CALLS(EMUV_DRIVER_FILL)
#undef EMUV_DRIVER_FILL
}

// An instance that lends by default, and is not open to this user, is left out.
bool make_ledgers(settings &asked, const driver &calls, int devices,
                  std::vector<ledger *> &ledgers)
{
    char why[256] = "";
    clients = new std::vector<instance_ledger *>;
    for (std::size_t i = 0; i < asked.instances.size(); i++) {
        auto *instance = new instance_ledger;
        if (instance->open(asked.instances[i], why, sizeof why)) {
            ledgers.push_back(instance);
            clients->push_back(instance);
            continue;
        }
        delete instance;
        const std::size_t tiers = asked.tiers.cards.size();
        if (!asked.leave_out_lender(static_cast<int>(i))) {
            say("%s", why);
            return false;
        }
        if (asked.tiers.cards.size() < tiers)
            say("the tier on card %zu of the instance is not used: %s", i, why);
        else
            say("card %zu has no instance of its own: %s", i, why);
    }
    if (!ledgers.empty())
        return true;
    rows = new ledger_file;
    one_process = asked.ledger_path == nullptr;
    if (const int error = rows->open(asked.ledger_path); error != 0) {
        say("EMUV_LEDGER=%s: %s", one_process ? "(none)" : asked.ledger_path,
            std::strerror(error));
        return false;
    }
    for (int device = 0; device < devices; device++) {
        std::size_t card = 0;
        if (!asked.physical_bytes)
            calls.cuDeviceTotalMem_v2(&card, device);
        ledgers.push_back(new file_ledger(*rows, static_cast<unsigned>(device),
                                          asked.vram_limit(device, card),
                                          asked.virtual_bytes.value_or(0)));
    }
    return true;
}

bool has_host_numa(const driver &calls)
{
    int numa = 0;
    return calls.cuDeviceGetAttribute(
               &numa,
               CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
               0) == CUDA_SUCCESS &&
           numa != 0;
}

// How many devices, from the first, are the program's own. The others lend.
int own_devices(const settings &asked, int devices)
{
    for (const tier &each : asked.tiers.cards)
        devices = std::min(devices, each.device);
    return devices;
}

// Why a tier cannot be used; null if it can.
// @param ledgers  how many devices have one of their own
const char *why_unused(const tier &of, const settings &asked,
                       const driver &calls, int devices, std::size_t ledgers)
{
    const int own = own_devices(asked, devices);
    if (of.device >= devices)
        return "there is no such card";
    if (own == 0)
        return "no card is left that would use it";
    for (int device = 0; device < own; device++) {
        int reaches = 0;
        if (calls.cuDeviceCanAccessPeer(&reaches, device, of.device) !=
                CUDA_SUCCESS ||
            reaches == 0)
            return "this program's card does not reach that card's memory";
    }
    return static_cast<std::size_t>(of.device) < ledgers
               ? nullptr
               : "it has no instance: EMUV_INSTANCE names one for each card, "
                 "as 0,1";
}

// Leaves out tiers that the program was given by default, where they cannot be
// used: its user need not know of them.
void drop_unused_defaults(settings &asked, const driver &calls, int devices)
{
    if (asked.tiers_by != said_by::defaults)
        return;
    const std::size_t ledgers = asked.instances.empty()
                                    ? static_cast<std::size_t>(devices)
                                    : asked.instances.size();
    const bool numa = has_host_numa(calls);
    // Without one of them more cards are the program's own, and those may not
    // reach the others.
    std::size_t before = 0;
    do {
        before = asked.tiers.cards.size();
        const settings all = asked;
        std::erase_if(asked.tiers.cards, [&](const tier &each) {
            const char *const why =
                !numa ? "this card or driver has no HOST_NUMA memory"
                      : why_unused(each, all, calls, devices, ledgers);
            if (why != nullptr)
                say("the tier on card %d of the instance is not used: %s",
                    each.device, why);
            return why != nullptr;
        });
    } while (asked.tiers.cards.size() < before);
}

// Makes the file for memory beyond system RAM.
// @return false where it was asked for and cannot be had
bool open_file(const settings &asked, const std::vector<ledger *> &ledgers,
               state &made)
{
    if (!asked.tiers.has_file())
        return true;
    if (file_room(asked.tiers.file_bytes).kept_bytes() < max_moving_bytes) {
        say("EMUV_TIER=file: %s are too few: a quarter serves memory that "
            "changes places, and needs %s",
            show_size(asked.tiers.file_bytes).text,
            show_size(max_moving_bytes).text);
        return false;
    }
    // Work of one device could need another's memory, which only its own work
    // has come from there.
    if (own_devices(asked, made.devices) > 1) {
        say("EMUV_TIER=file: it serves one card, and the program sees %d: "
            "choose one by CUDA_VISIBLE_DEVICES",
            own_devices(asked, made.devices));
        return false;
    }
    const usage own = ledgers.empty() ? usage{} : ledgers.front()->read();
    if (own.virtual_bytes - own.file_bytes - own.lent_bytes == 0) {
        say("EMUV_TIER=file: memory comes from there by way of system RAM: "
            "give it some, with ram=");
        return false;
    }
    const char *const folder = asked.tiers.folder.c_str();
    auto *const file = new file_store;
    const int error = file->open(folder, asked.tiers.file_bytes);
    if (error == EOPNOTSUPP)
        say("EMUV_TIER=file:%s: its file system has no files without a name "
            "(O_TMPFILE)",
            folder);
    else if (error != 0)
        say("EMUV_TIER=file:%s: %s", folder, std::strerror(error));
    else if (!file->is_direct())
        say("EMUV_TIER=file:%s: its file system has no direct access "
            "(O_DIRECT), so its pages take system RAM",
            folder);
    made.file = file;
    return error == 0;
}

// Has the program's own devices use the VRAM of others, and a file.
bool lend(const settings &asked, const driver &calls, int devices,
          std::vector<ledger *> &ledgers)
{
    const int own = own_devices(asked, devices);
    std::vector<peer_tier> peers;
    for (const tier &each : asked.tiers.cards) {
        if (const char *const why =
                why_unused(each, asked, calls, devices, ledgers.size())) {
            say("EMUV_TIER=peer:%d: %s", each.device, why);
            return false;
        }
        peers.push_back({each.device, each.bytes,
                         ledgers[static_cast<std::size_t>(each.device)]});
    }
    // One file for all devices, and one room in it.
    file_room *const room = asked.tiers.has_file()
                                ? new file_room(asked.tiers.file_bytes)
                                : nullptr;
    if (!peers.empty() || room != nullptr)
        for (std::size_t device = 0;
             device < ledgers.size() && static_cast<int>(device) < own;
             device++)
            ledgers[device] = new tiered_ledger(*ledgers[device], peers, room);
    lends = !peers.empty();
    return true;
}

// Makes one for each ledger; the last serves all devices from there on.
std::vector<footprint *> make_footprints(const std::vector<ledger *> &ledgers,
                                         int devices)
{
    std::vector<footprint *> made;
    open_process_vram();
    const int last = static_cast<int>(ledgers.size()) - 1;
    for (int i = 0; i <= last && i < devices; i++)
        made.push_back(
            new footprint({.limits = *ledgers[static_cast<std::size_t>(i)],
                           .ask = process_vram,
                           .first_device = i,
                           .devices = i == last ? devices - i : 1,
                           .told = tell_footprint}));
    return made;
}

budget *make_budget(const settings &asked, const driver &calls,
                    const std::vector<ledger *> &ledgers, int devices)
{
    // Told to cache nothing, PyTorch does not ask again either.
    const bool reclaims =
        asked.reclaim &&
        std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") == nullptr;
    if (reclaims)
        prepare_callers();
    return new budget(
        {.calls = calls,
         .ledgers = ledgers,
         .footprints = asked.charged == charged_kind::allocations
                           ? std::vector<footprint *>()
                           : make_footprints(ledgers, devices),
         .report = asked.report,
         .asks_again = reclaims ? is_caching_allocator : nullptr});
}

store *make_store(const settings &asked, const driver &calls, int devices)
{
    const bool numa = has_host_numa(calls);
    if (asked.store == store_kind::numa && !numa) {
        say("EMUV_STORE=numa: this driver or device has no HOST_NUMA memory");
        return nullptr;
    }
    if (asked.tiers.needs_handles() && !numa) {
        say("EMUV_TIER: this driver or device has no HOST_NUMA memory, which "
            "tiers need");
        return nullptr;
    }
    // Copies between devices, of handles in system RAM, take a detour, since
    // they end the program inside the driver (580).
    const bool several = devices > 1 && !asked.moves() &&
                         asked.store == store_kind::automatic &&
                         !asked.tiers.needs_handles();
    if (asked.store == store_kind::pages || !numa || several)
        return new page_store(calls);
    auto *const handles = new numa_store(calls);
    if (asked.store == store_kind::numa || asked.moves() ||
        asked.tiers.needs_handles())
        return handles;
    return new store_choice(calls, *handles, *new page_store(calls));
}

// Once, however many devices there are.
void tell_stay(const char *why)
{
    static std::atomic<const char *> said;
    if (said.exchange(why) == why)
        return;
    say("memory stays where it is from now on: %s", why);
}

// Tells of a kernel that is checked, on any device.
void tell_reached(const char *kernel, bool proven, CUresult error)
{
    const state *const made = active.load(std::memory_order_acquire);
    known_kernels::launches about;
    if (kernel != nullptr && made != nullptr)
        about = made->kernels->launches_of(kernel);
    if (kernel == nullptr)
        kernel = "a copy";
    if (error == CUDA_ERROR_ILLEGAL_ADDRESS && proven) {
        refuted.fetch_add(1);
        say("A PROOF IS WRONG: %.320s reached memory that it was given no "
            "address of, though its code was proven. Please report this as a "
            "defect (EMUV_TRUST=proven,known,-NAME)",
            kernel);
    } else if (error == CUDA_ERROR_ILLEGAL_ADDRESS) {
        say("%.320s reached memory that it was given no address of: it is not "
            "to be trusted (EMUV_TRUST=proven,known,-NAME)",
            kernel);
        if (about.why[0] != '\0')
            say("its code is not proven: %s", about.why);
    } else
        say("the device reports error %d in %.320s", static_cast<int>(error),
            kernel);
}

const remembered *kept; // kernels that are not trusted; or null

// A fault while memory moved, on any device.
void tell_faulted(const std::vector<const char *> &kernels)
{
    constexpr int most = 72; // names of templates have no end
    char names[256] = "";
    std::size_t length = 0;
    std::size_t named = 0;
    for (const char *const each : kernels) {
        const int added = std::snprintf(
            names + length, sizeof names - length, "%s%.*s%s",
            named > 0 ? ", " : "", most, each,
            std::strlen(each) > static_cast<std::size_t>(most) ? "..." : "");
        if (added < 0 ||
            static_cast<std::size_t>(added) >= sizeof names - length) {
            names[length] = '\0';
            break;
        }
        length += static_cast<std::size_t>(added);
        named++;
    }
    char more[32] = "";
    if (named < kernels.size())
        std::snprintf(more, sizeof more, " and %zu more",
                      kernels.size() - named);
    say("a kernel may have reached memory that it was given no address of, "
        "while memory moved: one of %s%s",
        names, more);
    if (kept->add(kernels))
        say("they are not trusted from the next run on (%.320s)", kept->path());
    else
        say("they cannot be remembered: EMUV_TRUST=proven,known,-NAME does not "
            "trust them");
}

std::atomic<const char *> unseen; // why all memory stays where it is

// Tells at the program's end what was found out about its kernels.
void tell_checked(const check &checked)
{
    const check::result found = checked.so_far();
    if (!found.failed)
        say("checked: %" PRIu64
            " launches of %zu kernels reached nothing that might "
            "move but what they were given",
            found.launches, found.kernels);
    if (found.untrusted_launches > 0)
        say("not checked, since nobody vouches for them: %" PRIu64
            " launches of %zu kernels, during which nothing would move: %s",
            found.untrusted_launches, found.untrusted_kernels,
            found.untrusted.data());
}

// Writes what was launched, a kernel a line, the most launched first. Another
// process may have written its own before.
void write_launches(const known_kernels &kernels, const char *path)
{
    std::FILE *const file = std::fopen(path, "ae");
    if (file == nullptr) {
        say("EMUV_STATS=%s: %s", path, std::strerror(errno));
        return;
    }
    struct line
    {
        const char *name;
        known_kernels::launches made;
        std::uint64_t count() const
        {
            return made.proven + made.named + made.untrusted;
        }
    };
    std::vector<line> lines;
    kernels.each_launched(
        [&](const char *name, const known_kernels::launches &made) {
            lines.push_back({name, made});
        });
    std::sort(lines.begin(), lines.end(), [](const line &a, const line &b) {
        return a.count() > b.count();
    });
    std::fprintf(file, "proven\tnamed\tuntrusted\treason\tkernel\n");
    for (const line &each : lines)
        if (each.count() > 0)
            std::fprintf(
                file, "%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\n",
                each.made.proven, each.made.named, each.made.untrusted,
                each.made.why[0] != '\0' ? each.made.why : "-", each.name);
    std::fclose(file);
}

// Tells at the program's end why its kernels were trusted.
void tell_launches(const state &made)
{
    known_kernels::launches all;
    made.kernels->each_launched(
        [&](const char *, const known_kernels::launches &each) {
            all.proven += each.proven;
            all.named += each.named;
            all.untrusted += each.untrusted;
        });
    say("launches: %" PRIu64 " of proven kernels, %" PRIu64
        " of kernels trusted by name, %" PRIu64 " of untrusted ones",
        all.proven, all.named, all.untrusted);
    if (const unsigned wrong = refuted.load(); wrong > 0)
        say("proofs that are wrong: %u", wrong);
    if (made.asked.stats_path != nullptr)
        write_launches(*made.kernels, made.asked.stats_path);
}

// Tells at the program's end where its time went.
void tell_summary(const state &made)
{
    if (made.page.head() == nullptr)
        return;
    const mobility memory = made.page.head()->memory;
    for (int i = 0; i < made.devices; i++) {
        const summary all =
            summarize(made.page.device(static_cast<std::size_t>(i)), memory);
        if (!all.charged.any())
            continue;
        if (made.devices > 1)
            say("device %d:", i);
        for (const std::string &line : describe(all, memory))
            say("%s", line.c_str());
        if (!all.advice.empty())
            say("  advice: %s", all.advice.c_str());
    }
}

void stop_moving()
{
    const state *const made = active.load(std::memory_order_acquire);
    if (made == nullptr)
        return;
    for (mover *each : made->movers)
        each->leave();
    if (made->proving != nullptr)
        made->proving->leave();
    if (made->checked != nullptr)
        tell_checked(*made->checked);
    if (made->checked != nullptr || made->asked.stats_path != nullptr)
        tell_launches(*made);
    if (made->checked == nullptr && made->asked.stats_path != nullptr)
        tell_summary(*made);
}

// The architecture of all devices, as in 90; 0 if there are several.
unsigned architecture_of(const driver &calls, int devices)
{
    unsigned found = 0;
    for (CUdevice device = 0; device < devices; device++) {
        int major = 0;
        int minor = 0;
        calls.cuDeviceGetAttribute(
            &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
        calls.cuDeviceGetAttribute(
            &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
        const auto one = static_cast<unsigned>(10 * major + minor);
        if (device > 0 && one != found)
            return 0;
        found = one;
    }
    return found;
}

bool wants_proofs(const settings &asked)
{
    return (asked.moves() || asked.record_path != nullptr) &&
           known_kernels::asks_for_proofs(asked.trust);
}

proofs *make_proofs(const settings &asked, const driver &calls, int devices)
{
    const auto *const folder =
        new proof::cache::path_buffer(proof::cache::usual_folder());
    return new proofs(architecture_of(calls, devices), folder->path,
                      asked.move == move_kind::check);
}

// Gives other clients of an instance, while they wait for VRAM, what the
// driver's pools keep for later. It has no context, so it names no stream: the
// program's own threads give what we keep. Each instance has such a thread,
// which lives as long as the process. It trims once a second at most: the pools
// grow again.
struct giver
{
    instance_ledger &limits;
    pools &idle;
    memory &kept;
    const std::vector<mover *> &movers;
    int device; // the first of the instance
    thread runs = {};

    // A card that lends has no mover: all of them may have rooms there, also
    // for memory that is kept.
    void give_back_if_lent() const
    {
        if (static_cast<std::size_t>(device) < movers.size())
            return;
        for (std::size_t own = 0; own < movers.size(); own++) {
            kept.ask_for_kept(static_cast<int>(own));
            movers[own]->give_back_rooms(device);
        }
    }

    static void *run(void *self)
    {
        prctl(PR_SET_NAME, "emuv-giver");
        const giver &of = *static_cast<giver *>(self);
        while (of.limits.await_others()) {
            {
                const std::lock_guard guard(giving);
                of.idle.trim(of.device);
                of.kept.ask_for_kept(of.device);
                of.give_back_if_lent();
            }
            sleep(1);
        }
        return nullptr;
    }
};

// The driver ends after this. The lock is kept: nothing is given from now on. A
// device that does not end its work is not waited for.
void stop_giving()
{
    for (int i = 0; i < 1000 && !giving.try_lock(); i++)
        usleep(1000);
}

void start_giving(const state &made)
{
    if (clients->empty())
        return;
    const int last = static_cast<int>(clients->size()) - 1;
    for (int i = 0; i <= last && i < made.devices; i++) {
        auto *const gives =
            new giver{*(*clients)[static_cast<std::size_t>(i)],
                      made.shares->stream_pools(), *made.table, made.movers, i};
        gives->runs.start(giver::run, gives);
    }
    static bool registered;
    if (!registered)
        std::atexit(stop_giving);
    registered = true;
}

// The answer for such a store.
mobility mobility_of(const settings &asked, const driver &calls,
                     const store &host)
{
    // Memory that is registered in place cannot be mapped twice.
    if (asked.moves() && host.by_handle())
        return asked.move == move_kind::check ? mobility::checked
                                              : mobility::moves;
    if (asked.store == store_kind::pages)
        return mobility::pages;
    if (!has_host_numa(calls))
        return mobility::impossible;
    return asked.move_by == said_by::nobody ? mobility::unasked : mobility::off;
}

// Makes the page that tells others about this process.
void open_page(state &made, const std::vector<ledger *> &ledgers,
               mobility memory)
{
    // `emuvctl run --score` reads it once the process has ended, however it
    // did.
    const char *const stem = std::getenv("EMUV_SCORE");
    // Without a file others do not see it; the program's end does.
    made.page.open(static_cast<unsigned>(made.devices),
                   stem != nullptr && *stem != '\0' ? stem : nullptr);
    if (made.page.head() == nullptr)
        return;
    made.page.head()->memory = memory;
    for (int i = 0; i < made.devices; i++) {
        device_statistics &of = made.page.device(static_cast<std::size_t>(i));
        ledger &limits = of_device(ledgers, i);
        if (static_cast<std::size_t>(i) < ledgers.size())
            limits.show_in(of.charged);
        const usage now = limits.read();
        of.share_bytes = now.physical_bytes;
        of.virtual_bytes = now.virtual_bytes - now.lent_bytes - now.file_bytes;
        std::size_t card = 0;
        made.calls.cuDeviceTotalMem_v2(&card, i);
        of.card_bytes = card;
    }
}

// The page on which a mover publishes its figures; null if there is none.
device_statistics *page_of(const state &made, int device)
{
    return made.page.head() != nullptr
               ? &made.page.device(static_cast<std::size_t>(device))
               : nullptr;
}

// Says that a setting has no effect, loudly: nobody finds out otherwise.
[[gnu::format(printf, 2, 3)]] void tell_vain(state &made, const char *format,
                                             ...)
{
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    say("%s", text);
    made.page.vain(text);
}

// Settings that are right, and change nothing here.
void tell_vain_settings(state &made, mobility memory)
{
    const settings &asked = made.asked;
    if (asked.moves() && memory == mobility::impossible) {
        if (asked.move_by == said_by::user)
            tell_vain(made, "EMUV_MOVE has no effect: this card or driver has "
                            "no HOST_NUMA memory, and no other moves");
        else
            say("nothing moves: this card or driver has no HOST_NUMA memory. "
                "Kernels read over the link what spills; a larger share of "
                "VRAM spares that");
    }
    if (asked.move == move_kind::check && asked.away == away_kind::unmapped)
        tell_vain(made, "EMUV_AWAY has no effect with EMUV_MOVE=check");
    if (!asked.instances.empty() &&
        (asked.physical_bytes || asked.virtual_bytes))
        tell_vain(made, "EMUV_PHYSICAL and EMUV_VIRTUAL have no effect with "
                        "EMUV_INSTANCE");
    if (asked.reclaim &&
        std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr)
        tell_vain(made, "EMUV_RECLAIM has no effect: "
                        "PYTORCH_NO_CUDA_MEMORY_CACHING is set");
    const auto beyond = [&](int device) {
        const device_statistics &of =
            made.page.device(static_cast<std::size_t>(device));
        return of.card_bytes > 0 && of.share_bytes > of.card_bytes;
    };
    if (made.page.head() != nullptr && asked.physical_bytes && beyond(0))
        tell_vain(made, "EMUV_PHYSICAL=%s has no effect: the card has %s",
                  show_size(*asked.physical_bytes).text,
                  show_size(made.page.device(0).card_bytes).text);
}

// Records a tape, and keeps no limit.
CUresult record(const settings &asked)
{
    auto *const calls = new driver; // programs call it to the end
    fill(*calls);
    int devices = 0;
    EMUV_REAL(cuDeviceGetCount)(&devices);
    proofs *const proving =
        wants_proofs(asked) ? make_proofs(asked, *calls, devices) : nullptr;
    return start_recording(asked, *calls, proving)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OPERATING_SYSTEM;
}

// The result of a cuInit that the driver granted.
CUresult start_locked()
{
    settings asked = read_settings(std::getenv);
    if (asked.disabled)
        return CUDA_SUCCESS;
    if (asked.wrong_name != nullptr) {
        say("%s=%s %s", asked.wrong_name, asked.wrong_value, asked.wrong_why);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (asked.record_path != nullptr)
        return record(asked);
    if (!asked.limited())
        return CUDA_SUCCESS;
    // Lives as long as the process: programs free memory in their destructors.
    auto *made = new state;
    fill(made->calls);
    int devices = 0;
    EMUV_REAL(cuDeviceGetCount)(&devices);
    if (devices <= 0)
        return CUDA_SUCCESS;
    if (devices > static_cast<int>(max_devices))
        devices = max_devices;
    made->devices = devices;
    drop_unused_defaults(asked, made->calls, devices);
    std::vector<ledger *> ledgers;
    if (!make_ledgers(asked, made->calls, devices, ledgers) ||
        !lend(asked, made->calls, devices, ledgers) ||
        !open_file(asked, ledgers, *made))
        return CUDA_ERROR_OPERATING_SYSTEM;
    made->asked = asked;
    store *host = make_store(asked, made->calls, devices);
    if (host == nullptr)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (asked.trace_path != nullptr)
        if (const int error = made->record.open(asked.trace_path); error != 0) {
            say("EMUV_TRACE=%s: %s", asked.trace_path, std::strerror(error));
            return CUDA_ERROR_OPERATING_SYSTEM;
        }
    const mobility memory_is = mobility_of(asked, made->calls, *host);
    const bool can_move =
        memory_is == mobility::moves || memory_is == mobility::checked;
    moving = can_move ? asked.move : move_kind::off;
    open_page(*made, ledgers, memory_is);
    tell_vain_settings(*made, memory_is);
    made->shares = make_budget(asked, made->calls, ledgers, devices);
    made->executable = new graphs(made->calls, made->shares->stream_pools());
    made->beyond = host;
    kept = asked.moves() && asked.move != move_kind::check
               ? new remembered(remembered::usual_file())
               : nullptr;
    if (can_move && wants_proofs(asked))
        made->proving = make_proofs(asked, made->calls, devices);
    made->kernels =
        new known_kernels(asked.trust, made->record, kept, made->proving);
    if (can_move) {
        if (asked.move == move_kind::check)
            made->checked = new check(tell_reached);
        const int own = own_devices(asked, devices);
        for (int device = 0; device < own; device++)
            made->movers.push_back(new mover(
                {.calls = made->calls,
                 .shares = *made->shares,
                 .record = made->record,
                 .tell = tell_stay,
                 .faulted = tell_faulted,
                 .device = device,
                 .always = asked.move == move_kind::always,
                 .unmaps = asked.unmaps(),
                 .host = &made->host,
                 .checked = made->checked,
                 .page = page_of(*made, device),
                 .file = made->file,
                 .tell_of_tier =
                     [](const char *text) { say("EMUV_TIER: %s", text); },
                 .packed_bytes = asked.tiers.packed_bytes}));
        // The driver's own end comes later: its handlers are older.
        static bool registered;
        if (!registered)
            std::atexit(stop_moving);
        registered = true;
    }
    made->table =
        new memory({.calls = made->calls,
                    .host = *host,
                    .shares = *made->shares,
                    .counts_foreign = asked.charged == charged_kind::held,
                    .movers = made->movers,
                    .notice = tell_spill,
                    .refused = tell_refusal,
                    .exportable = asked.ipc});
    made->advice = new advised(*made->table);
    start_giving(*made);
    // Both sides store, then load (seq_cst): at least one sees the other and
    // calls fix_all().
    active.store(made);
    if (const char *const why = unseen.load())
        made->fix_all(why);
    return CUDA_SUCCESS;
}

} // namespace

CUresult start()
{
    // Not under our lock: a library that is opened may call cuInit().
    static std::atomic<bool> prepared;
    if (!prepared.exchange(true)) {
        if (wants_proofs(read_settings(std::getenv)))
            proof::find_zstandard();
        prepare_frameworks();
    }
    const std::lock_guard guard(start_lock);
    if (!started) {
        static bool registered;
        if (!registered)
            pthread_atfork(nullptr, nullptr, in_child);
        registered = true;
        start_result = start_locked();
        started = true;
    }
    return start_result;
}

void state::note_table(const void *words, std::size_t bytes) const
{
    const auto is_read = [&](reading result) {
        // Pinned memory is there: only a refusal keeps it from being read.
        if (result == reading::denied ||
            (result == reading::absent &&
             host.from(reinterpret_cast<CUdeviceptr>(words)).bytes > 0))
            fix_all(mover::unreadable_why);
        return result == reading::done;
    };
    std::vector<CUdeviceptr> some;
    const auto any_is_address = [&] {
        return std::any_of(movers.begin(), movers.end(), [&some](mover *each) {
            return each->any_is_address(some);
        });
    };
    if (bytes > table_window_bytes &&
        (!is_read(sample_table(words, bytes, some)) || !any_is_address()))
        return;
    for (std::size_t at = 0; at < bytes; at += table_window_bytes) {
        if (!is_read(read_table(static_cast<const char *>(words) + at,
                                std::min(bytes - at, table_window_bytes),
                                some)))
            return;
        for (mover *each : movers)
            each->note_table(some);
    }
}

void state::note_table(const void *words, std::size_t bytes, std::size_t pitch,
                       std::size_t rows) const
{
    if (pitch == bytes) {
        note_table(words, bytes * rows);
        return;
    }
    for (std::size_t row = 0; row < rows; row++)
        note_table(static_cast<const char *>(words) + row * pitch, bytes);
}

namespace {

// Each caller waits until all is mapped.
void tell_unseen(const char *before, const char *name, const char *after)
{
    static char why[128];
    static std::atomic<bool> named;
    if (!named.exchange(true)) {
        std::snprintf(why, sizeof why, "%s%s%s", before, name, after);
        unseen.store(why);
    }
    while (unseen.load() == nullptr) {
    }
    if (const state *made = active.load())
        made->fix_all(why);
}

} // namespace

void work_unseen(const char *name)
{
    tell_unseen("the program calls ", name,
                ", which is newer than this library");
}

void work_private(const char *library)
{
    tell_unseen("", library, " uses memory by functions that nobody follows");
}

state *current_state()
{
    return active.load(std::memory_order_acquire);
}

} // namespace emuv::cuda

// SPDX-License-Identifier: LGPL-2.1-or-later
// The page on which a process publishes, for `emuvctl why`, where its time goes
// and which memory crosses the link.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace emuv::cuda {

/// Devices that are limited and told of; later ones share the last's limits.
inline constexpr unsigned max_devices = 64;

/// VRAM of one card that lends it to another.
struct lent_bytes
{
    std::uint64_t limit = 0; ///< 0: it lends none
    std::uint64_t now = 0;
    std::uint64_t most = 0;
};

/// Bytes that a process is charged for on a device, at this moment and at most.
/// Written one by one, in any order.
struct charged_bytes
{
    std::uint64_t vram = 0;
    std::uint64_t ram = 0;
    std::uint64_t most_vram = 0;
    std::uint64_t most_ram = 0;
    std::uint64_t lends = 0; ///< of vram: memory of other devices
    std::uint64_t file = 0;
    std::uint64_t most_file = 0;
    std::uint64_t file_limit = 0; ///< 0: there is no file
    lent_bytes lent[max_devices] =
        {}; ///< beyond vram, by the card where it lies

    /// Charged on other cards, and at most.
    lent_bytes on_cards() const
    {
        lent_bytes all;
        for (const lent_bytes &each : lent) {
            all.limit += each.limit;
            all.now += each.now;
            all.most += each.most;
        }
        return all;
    }
    /// Charged beyond VRAM, and at most.
    std::uint64_t beyond() const { return ram + on_cards().now + file; }
    std::uint64_t most_beyond() const
    {
        return most_ram + on_cards().most + most_file;
    }
    /// True if anything was ever charged.
    bool any() const { return most_vram != 0 || most_beyond() != 0; }
};

/// Bytes that were copied between VRAM and one tier beyond it.
struct moved_bytes
{
    std::uint64_t fetched_bytes = 0; ///< to VRAM
    std::uint64_t evicted_bytes = 0; ///< from VRAM

    moved_bytes &operator+=(const moved_bytes &more)
    {
        fetched_bytes += more.fetched_bytes;
        evicted_bytes += more.evicted_bytes;
        return *this;
    }
    bool operator==(const moved_bytes &) const = default;
};

/// A sample: one step of a program's rhythm, or several short ones together.
struct step_figures
{
    std::uint64_t took_ns = 0;
    // Parts of that in which the device had nothing to run. A launch waited for
    // memory, for mappings, or for movement to stop; or there was no launch.
    std::uint64_t link_ns = 0;
    std::uint64_t mapping_ns = 0;
    std::uint64_t standing_ns = 0;
    std::uint64_t program_ns = 0;
    /// Kernels ran that are not trusted, so that nothing moved. Not a part of
    /// the others.
    std::uint64_t untrusted_ns = 0;
    std::uint64_t fetched_bytes = 0; ///< copied to VRAM
    std::uint64_t evicted_bytes = 0; ///< copied from VRAM
    moved_bytes with_cards = {};     ///< of those: from and to other cards
    std::uint64_t missed_bytes = 0;  ///< that work was given beyond VRAM
    std::uint64_t used_bytes = 0;    ///< of all units that work was given
    std::uint32_t steps = 0;         ///< that are together here
    std::uint32_t launches = 0;
    std::uint32_t untrusted_launches = 0;
    std::uint32_t reserved = 0;
};

/// An allocation, and what of it crossed the link.
struct crossing_allocation
{
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t ram_bytes = 0; ///< beyond VRAM at this moment
    std::uint64_t fetched_bytes = 0;
    std::uint64_t evicted_bytes = 0;
};

/// A kernel that is not trusted, and what it cost.
struct untrusted_kernel
{
    char name[192] = {}; ///< as much of it as has room
    char why[96] = {};   ///< the reason; empty where nobody knows
    std::uint64_t launches = 0;
    std::uint64_t busy_ns = 0;   ///< it ran, and nothing moved
    std::uint64_t waited_ns = 0; ///< the device waited for memory to be mapped
};

/// How the memory of a device is treated.
enum class treatment : std::uint32_t
{
    resident, ///< nothing has left VRAM, or nothing moves
    still,    ///< it stands still: that is faster, or being measured
    moving,
    arranged, ///< it was moved once, and stands still
    ended,    ///< movement ended for good: see stopped
};

/// Coded copies of units in system RAM, ever.
struct packed_bytes
{
    std::uint64_t raw_bytes = 0;     ///< of units that have got one
    std::uint64_t coded_bytes = 0;   ///< of the copies
    std::uint64_t refused_bytes = 0; ///< of units that are not worth one
    std::uint64_t fetched_bytes = 0; ///< coded ones, that crossed the link
    std::uint64_t saved_bytes = 0;   ///< that would have crossed it besides
};

/// All about one device. The figures are of one moment if turn is even, and the
/// same before and after they were read; charged is not among them.
struct device_statistics
{
    static constexpr std::size_t max_kept = 16;
    static constexpr std::size_t max_listed = 5;

    charged_bytes charged;
    std::uint64_t link_rate = 0; ///< bytes a second; 0: not measured
    std::uint64_t card_bytes = 0;
    std::uint64_t share_bytes = 0;   ///< of VRAM
    std::uint64_t virtual_bytes = 0; ///< of system RAM
    std::uint32_t turn = 0;
    treatment is = treatment::resident;
    /// Of the program's memory that can move: beyond VRAM, and of that on other
    /// cards.
    std::uint64_t in_ram_bytes = 0;
    std::uint64_t on_cards_bytes = 0;
    std::uint64_t in_file_bytes = 0; ///< and of that in the file
    std::uint64_t steps = 0;         ///< ever
    std::uint64_t round = 0;         ///< launches in a step; 0: no rhythm known
    /// The last ones, in a ring: samples ever, of which the last are kept.
    std::uint64_t samples = 0;
    step_figures kept[max_kept];
    /// Of how many steps both lists are.
    std::uint64_t listed_steps = 0;
    std::uint32_t allocations = 0;
    std::uint32_t kernels = 0;
    crossing_allocation most_crossing[max_listed];
    untrusted_kernel most_costly[max_listed];
    char stopped[160] = {};                  ///< why movement ended
    moved_bytes with_ram = {};               ///< ever
    moved_bytes with_card[max_devices] = {}; ///< ever, by the card that lends
    /// Ever, between system RAM and the file: read from it, and written to it.
    moved_bytes with_file = {};
    packed_bytes packed = {};
};

/// The answer to whether memory of a process can move, and why it cannot.
enum class mobility : std::uint32_t
{
    moves,
    unasked,    ///< nobody has said anything of it
    off,        ///< it was asked for that nothing moves
    pages,      ///< the store that was asked for does not move
    impossible, ///< the card or the driver has no HOST_NUMA memory
    checked,    ///< EMUV_MOVE=check
};

/// The head of a process's page. As many device_statistics follow.
struct statistics_head
{
    static constexpr std::uint64_t right_magic = 0x3161747356756d65; // emuVsta1
    static constexpr std::uint32_t right_version = 5;
    static constexpr std::size_t max_vain = 4;

    std::uint64_t magic = 0;
    std::uint32_t version = 0;
    std::uint32_t head_bytes = 0;
    std::uint32_t device_bytes = 0;
    std::uint32_t devices = 0;
    std::int32_t pid = 0; ///< in the process's own namespace
    mobility memory = mobility::unasked;
    char vain[max_vain][128] =
        {}; ///< settings without an effect, each with why
};

static_assert(std::is_trivially_copyable_v<statistics_head> &&
              std::is_trivially_copyable_v<device_statistics>);
static_assert(sizeof(statistics_head) % 8 == 0 &&
              sizeof(device_statistics) % 8 == 0);

/// The name of the file that a page is, or its begin.
inline constexpr char statistics_name[] = "emuv-statistics";

/// Copies text, as much as has room, with a NUL at its end.
template <std::size_t size>
void copy_text(char (&to)[size], const char *from)
{
    std::size_t length = 0;
    while (length + 1 < size && from[length] != '\0')
        length++;
    std::copy_n(from, length, to);
    std::fill(to + length, to + size, '\0');
}

/// A process's page, which other processes of its user read.
class statistics_page
{
public:
    statistics_page() = default;
    statistics_page(const statistics_page &) = delete;
    statistics_page &operator=(const statistics_page &) = delete;

    /// Makes the page, once. It lives as long as the process: memory that a
    /// file stands behind, or memory alone where that cannot be had. Others
    /// find the file in /proc/PID/fd. An anonymous one nobody can shorten; one
    /// that stays is to lie in a folder of its user's alone.
    /// @param stem  the path of a file that stays, but for its end: STEM.PID,
    /// or
    ///   STEM.PID.N of a process that has become another program. Null, or
    ///   where there can be none: an anonymous file
    /// @return 0, or why there is no such file
    int open(unsigned devices, const char *stem = nullptr);

    /// Null before open().
    statistics_head *head() const { return head_; }
    /// @param index  below the number of devices
    device_statistics &device(std::size_t index) const
    {
        return reinterpret_cast<device_statistics *>(head_ + 1)[index];
    }

    /// Notes a setting that has no effect, and why. Not from several threads.
    void vain(const char *text);

private:
    statistics_head *head_ = nullptr;
};

/// Held while a device's figures are written. One at a time.
class statistics_update
{
public:
    explicit statistics_update(device_statistics &of) : turn_(of.turn)
    {
        // Nothing of what follows is written before it.
        turn_.fetch_add(1, std::memory_order_acq_rel);
    }
    statistics_update(const statistics_update &) = delete;
    statistics_update &operator=(const statistics_update &) = delete;
    ~statistics_update() { turn_.fetch_add(1, std::memory_order_release); }

private:
    std::atomic_ref<std::uint32_t> turn_;
};

} // namespace emuv::cuda

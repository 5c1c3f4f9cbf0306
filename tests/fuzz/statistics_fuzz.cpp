// SPDX-License-Identifier: GPL-2.0-or-later
// Pages that a process publishes, as emuvctl why reads them: as they are, and
// behind a right head, so that what follows is reached.
#include "base/summary.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "fuzz.hpp"
#include "statistics_file.hpp"

#include <emuv/kernel_api.hpp>
#include <emuv/module.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace {

class nowhere final : public emuvctl::sink
{
public:
    void write(std::string_view) override {}
};

using emuv::cuda::device_statistics;
using emuv::cuda::statistics_head;

void read(const std::vector<std::uint8_t> &page)
{
    static const int file = ::memfd_create("emuv-statistics", MFD_CLOEXEC);
    fuzz::must(::ftruncate(file, 0) == 0 &&
                   ::pwrite(file, page.data(), page.size(), 0) ==
                       static_cast<ssize_t>(page.size()),
               "the page is written");
    nowhere out;
    emuvctl::environment env{out,
                             out,
                             emuv::kernel_api::system(),
                             emuv::module_api::system(),
                             "",
                             "",
                             "",
                             "",
                             [](double) { return false; },
                             [] { return 0.0; },
                             [] { return emuvctl::cuda_state(); },
                             {}};
    // Of a process that has ended, as emuvctl run --score does, no turn is
    // waited for.
    const auto by = page.empty() || page.back() % 2 == 0
                        ? emuvctl::writer::runs
                        : emuvctl::writer::ended;
    try {
        const auto made = emuvctl::read_statistics(file, env, by);
        fuzz::must(made.devices.size() * sizeof(device_statistics) <=
                       page.size(),
                   "no more devices than there are bytes");
        for (const auto &each : made.devices)
            for (const auto memory :
                 {emuv::cuda::mobility::moves, made.memory}) {
                const auto all = emuv::cuda::summarize(each, memory);
                fuzz::must(all.kernels.size() <= 5 &&
                               all.allocations.size() <= 5,
                           "lists end");
                for (const auto &line : emuv::cuda::describe(all, memory))
                    fuzz::must(line.size() < 512, "lines end");
            }
    } catch (const emuvctl::failure &) {
    }
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    read({data, data + size});
    statistics_head head;
    std::vector<std::uint8_t> page(sizeof head + sizeof(device_statistics));
    std::memcpy(page.data(), data, std::min(size, page.size()));
    std::memcpy(&head, page.data(), sizeof head);
    head.magic = statistics_head::right_magic;
    head.version = statistics_head::right_version;
    head.head_bytes = sizeof head;
    head.device_bytes = sizeof(device_statistics);
    head.devices = 1;
    std::memcpy(page.data(), &head, sizeof head);
    page[sizeof head + offsetof(device_statistics, turn)] &= 0xfe;
    read(page);
    return 0;
}

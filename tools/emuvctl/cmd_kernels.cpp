// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl kernels: which of the kernels in a file are proven to reach memory by
// their parameters alone.
#include "environment.hpp"
#include "failure.hpp"
#include "proof/cache.hpp"
#include "proof/cubin.hpp"
#include "proof/fatbin.hpp"
#include "verbs.hpp"

#include <emuv/error.hpp>
#include <emuv/profile.hpp>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuvctl {

namespace proof = emuv::cuda::proof;

namespace {

struct kernels_options
{
    std::vector<std::string> files;
    std::string sm;
    bool no_cache = false;
    output_options output;
};

constexpr std::array<column, 10> columns = {{
    {"sm", "SM", kind::number, "the architecture that the code is for"},
    {"verdict", "VERDICT", kind::text, "proven or refused"},
    {"reason", "REASON", kind::text, "why it was refused"},
    {"where", "WHERE", kind::text, "the place of that in the code"},
    {"bases", "BASES", kind::text,
     "offsets of the parameters that its accesses go by"},
    {"checked", "CHECKED", kind::text,
     "those of them that have to name known memory at a launch"},
    {"accesses", "ACCESSES", kind::number, "instructions that reach memory"},
    {"instructions", "INSTRUCTIONS", kind::number, "instructions in the code"},
    {"file", "FILE", kind::text, "the file"},
    {"kernel", "KERNEL", kind::text, "the kernel's name"},
}};

// A file in memory.
class mapped_file
{
public:
    explicit mapped_file(const std::string &path)
    {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat about = {};
        if (file < 0 || ::fstat(file, &about) != 0)
            give_up(path, file);
        if (!S_ISREG(about.st_mode)) {
            ::close(file);
            throw failure(fmt::format("{}: not a file", printable(path)));
        }
        size_ = static_cast<std::size_t>(about.st_size);
        if (size_ != 0) {
            at_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
            if (at_ == MAP_FAILED)
                give_up(path, file);
        }
        ::close(file);
    }
    mapped_file(const mapped_file &) = delete;
    mapped_file &operator=(const mapped_file &) = delete;
    ~mapped_file()
    {
        if (size_ != 0)
            ::munmap(at_, size_);
    }

    [[nodiscard]] proof::bytes content() const
    {
        return {static_cast<const unsigned char *>(at_), size_};
    }

private:
    [[noreturn]] static void give_up(const std::string &path, int file)
    {
        const int number = errno;
        if (file >= 0)
            ::close(file);
        throw failure(
            fmt::format("{}: {}", printable(path), emuv::errno_text(number)));
    }

    void *at_ = nullptr;
    std::size_t size_ = 0;
};

row row_of(const proof::kernel_code &kernel, const proof::verdict &what,
           const std::string &file)
{
    std::vector<std::string> bases;
    std::vector<std::string> checked;
    for (const auto &each : what.bases) {
        bases.push_back(fmt::format("{:#x}", each.offset));
        if (each.to_be_checked)
            checked.push_back(bases.back());
    }
    if (what.any_parameter)
        bases.emplace_back("any");
    if (what.by_descriptor)
        bases.emplace_back("descriptor");
    const bool proven = what.proven();
    row made;
    made.cells = {std::uint64_t{kernel.sm},
                  std::string(proven ? "proven" : "refused"),
                  proven ? cell() : cell(std::string(describe(what.why))),
                  proven ? cell() : cell(fmt::format("{:#x}", what.where)),
                  proven ? cell(std::move(bases)) : cell(),
                  proven ? cell(std::move(checked)) : cell(),
                  std::uint64_t{what.accesses},
                  std::uint64_t{what.instructions},
                  file,
                  printable(kernel.name)};
    return made;
}

row refused(unsigned sm, std::string why, const std::string &file)
{
    row made;
    made.cells = {sm != 0 ? cell(std::uint64_t{sm}) : cell(),
                  std::string("refused"),
                  std::move(why),
                  cell(),
                  cell(),
                  cell(),
                  cell(),
                  cell(),
                  file,
                  cell()};
    return made;
}

void cmd_kernels(const kernels_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"sm", "verdict", "reason",
                                                    "bases", "kernel"};
    printer print(options.output, columns, defaults);
    std::optional<unsigned> only;
    if (!options.sm.empty())
        only = parse_option("--sm", [&] {
            return static_cast<unsigned>(
                emuv::parse_integer(options.sm, 1, 999));
        });
    proof::cache known(options.no_cache ? ""
                                        : proof::cache::usual_folder().path);
    listing list;
    list.name = "kernels";
    list.columns = columns;
    std::uint64_t proven = 0;
    for (const auto &path : options.files) {
        const mapped_file file(path);
        const std::string name = printable(path);
        std::size_t images = 0;
        const auto take = [&](const proof::code_image &image) {
            images++;
            if (image.refused != nullptr) {
                list.rows.push_back(refused(image.sm, image.refused, name));
                return;
            }
            const auto code = proof::read_cubin(image.content);
            if (!code) {
                list.rows.push_back(refused(
                    image.sm, "machine code that makes no sense", name));
                return;
            }
            if (only && code->sm != *only)
                return;
            for (const auto &kernel : code->kernels) {
                const auto &what = proof::prove(kernel, known);
                proven += what.proven() ? 1 : 0;
                list.rows.push_back(row_of(kernel, what, name));
            }
        };
        proof::each_image(file.content(), take, [&](unsigned sm, bool) {
            return !only || sm == *only;
        });
        if (images == 0 && !only)
            list.rows.push_back(refused(0, "no code for a card in it", name));
    }
    known.save(); // a cache that cannot be kept is none
    list.beside = {{"proven", proven},
                   {"refused", std::uint64_t{list.rows.size()} - proven}};
    print.print(list, env);
}

} // namespace

verb kernels_verb()
{
    const auto options = std::make_shared<kernels_options>();
    verb kernels{
        "kernels", "Machine", "list which kernels are proven",
        "Reads the machine code in programs, libraries, cubins and fatbins. "
        "Lists each kernel, and whether all its accesses to memory are proven "
        "to go by its parameters. Verdicts are kept in the user's cache."};
    kernels.options.push_back({"--sm", "SM",
                               "only code for this architecture, as in 90",
                               &options->sm});
    kernels.options.push_back(flag("--no-cache", options->no_cache,
                                   "neither use nor keep earlier verdicts"));
    kernels.arguments = {"FILE", &options->files, offered::files, true};
    add_output(kernels, options->output, columns);
    kernels.action = [options](environment &env) {
        cmd_kernels(*options, env);
    };
    return kernels;
}

} // namespace emuvctl

// SPDX-License-Identifier: GPL-2.0-or-later
// The cost of proofs at a program's start. It proves so many kernels out of
// files of machine code, with an empty cache of verdicts and with a full one.
//
//   proof_bench [--kernels N] [--sm SM] FILE...
#include "proof/cache.hpp"
#include "proof/cubin.hpp"
#include "proof/fatbin.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <string>
#include <vector>

namespace proof = emuv::cuda::proof;

namespace {

using content = std::vector<unsigned char>;

struct found
{
    std::list<content> files;
    std::list<content> images;
    std::list<proof::cubin> code;
    std::vector<const proof::kernel_code *> kernels;
};

void read(const char *path, unsigned sm, found &into)
{
    std::ifstream file(path, std::ios::binary);
    into.files.push_back({std::istreambuf_iterator<char>(file), {}});
    proof::each_image(
        into.files.back(),
        [&](const proof::code_image &image) {
            if (image.refused != nullptr)
                return;
            into.images.push_back({image.content.begin(), image.content.end()});
            auto code = proof::read_cubin(into.images.back());
            if (!code || code->sm != sm)
                return;
            into.code.push_back(std::move(*code));
            for (const auto &kernel : into.code.back().kernels)
                into.kernels.push_back(&kernel);
        },
        [&](unsigned of, bool code) { return code && of == sm; });
}

// Milliseconds of a start, as the prover's thread has it.
double start(const found &of, const std::string &folder, std::size_t &proven)
{
    const auto begin = std::chrono::steady_clock::now();
    proof::cache known(folder);
    proven = 0;
    for (const proof::kernel_code *const each : of.kernels)
        proven += proof::prove(*each, known).proven() ? 1U : 0U;
    if (!known.save())
        std::fprintf(stderr, "cannot keep verdicts in %s\n", folder.c_str());
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    return taken.count();
}

} // namespace

int main(int count, char **arguments)
{
    std::size_t most = 500;
    unsigned sm = 90;
    found all;
    for (int i = 1; i < count; i++) {
        const bool last = i + 1 == count;
        if (std::strcmp(arguments[i], "--kernels") == 0 && !last)
            most = std::strtoul(arguments[++i], nullptr, 10);
        else if (std::strcmp(arguments[i], "--sm") == 0 && !last)
            sm = static_cast<unsigned>(
                std::strtoul(arguments[++i], nullptr, 10));
        else
            read(arguments[i], sm, all);
    }
    if (all.kernels.empty() || most == 0) {
        std::fprintf(stderr,
                     "Usage: proof_bench [--kernels N] [--sm SM] "
                     "FILE...\nThere is no kernel for sm_%u.\n",
                     sm);
        return 2;
    }
    // Those that are evenly spread among all.
    std::vector<const proof::kernel_code *> some;
    const std::size_t wanted = std::min(most, all.kernels.size());
    for (std::size_t i = 0; i < wanted; i++)
        some.push_back(all.kernels[i * all.kernels.size() / wanted]);
    all.kernels = std::move(some);
    std::size_t instructions = 0;
    for (const proof::kernel_code *const each : all.kernels)
        instructions += each->code.size() / 16;
    std::string folder =
        (std::filesystem::temp_directory_path() / "emuv-proofs-XXXXXX")
            .string();
    if (mkdtemp(folder.data()) == nullptr)
        return 1;
    std::size_t proven = 0;
    const double cold = start(all, folder + "/cache", proven);
    const double warm = start(all, folder + "/cache", proven);
    std::filesystem::remove_all(folder);
    std::printf("kernels %zu\ninstructions %zu\nproven %zu\ncold_ms %.1f\n"
                "warm_ms %.1f\n",
                all.kernels.size(), instructions, proven, cold, warm);
    return 0;
}

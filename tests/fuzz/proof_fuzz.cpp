// SPDX-License-Identifier: GPL-2.0-or-later
// Files of machine code, and the code itself, as the prover reads them.
#include "fuzz.hpp"
#include "proof/cubin.hpp"
#include "proof/fatbin.hpp"
#include "proof/prover.hpp"
#include "proof/sass_text.hpp"

namespace proof = emuv::cuda::proof;

namespace {

void look_at(const proof::kernel_code &kernel)
{
    const proof::verdict what = proof::prove(kernel);
    for (const proof::base &each : what.bases)
        fuzz::must(each.offset < kernel.parameter_bytes,
                   "an access goes by a parameter that there is");
    fuzz::must(what.proven() || (what.bases.empty() && !what.any_parameter),
               "what is not proven names no parameter");
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const proof::bytes input(data, size);
    proof::each_image(input, [](const proof::code_image &image) {
        if (image.refused != nullptr)
            return;
        const auto code = proof::read_cubin(image.content);
        if (code)
            for (const auto &kernel : code->kernels)
                look_at(kernel);
    });
    for (const unsigned sm : {80U, 89U, 90U})
        proof::each_image_for(sm, input, [](const proof::packed_image &image) {
            fuzz::must(image.refused != nullptr ||
                           image.is == proof::packed_image::kind::code,
                       "what is not refused is code");
        });
    // The rest is code, for the architecture that the first byte names.
    if (size < 17)
        return 0;
    static constexpr unsigned known[] = {80, 86, 89, 90, 100, 120};
    proof::kernel_code kernel;
    kernel.name = "fuzzed";
    kernel.sm = known[data[0] % 6];
    kernel.code = input.subspan(1, (size - 1) / 16 * 16);
    kernel.parameters = kernel.sm < 90    ? 0x160
                        : kernel.sm == 90 ? 0x210
                                          : 0x380;
    kernel.parameter_bytes = 64;
    kernel.addresses[0] = "__assertfail";
    kernel.addresses[8] = {};
    kernel.targets[32] = {0, 48};
    look_at(kernel);
    for (std::size_t at = 0; at < kernel.code.size(); at += 16)
        fuzz::must(
            !proof::describe(proof::decode(kernel.code.data() + at,
                                           proof::architecture_of(kernel.sm)))
                 .empty(),
            "an instruction can be shown");
    return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// A text through all recognisers.
#include "finding.hpp"
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>
#include <utility>

namespace emuv::diagnose {

namespace {

// A framework's message knows the program, and emuV's line the limits.
void join(diagnosis &of)
{
    const auto is_own = [](const finding &each) {
        return each.from == source::emuv;
    };
    const auto own =
        std::find_if(of.findings.begin(), of.findings.end(), is_own);
    if (own == of.findings.end())
        return;
    own->under_emuv = true;
    for (auto each = of.findings.begin(); each != own; ++each) {
        each->under_emuv = true;
        each->emuv_can_help = each->emuv_can_help && own->emuv_can_help;
        each->granted = own->granted;
        each->only_vram = own->only_vram;
        each->causes.insert(each->causes.begin(), own->causes.begin(),
                            own->causes.end());
        each->notes.insert(each->notes.end(), own->notes.begin(),
                           own->notes.end());
    }
}

// The most telling sources first: a killed program tells less than one that
// could say what it asked for.
constexpr std::optional<finding> (*recognisers[])(std::string_view) = {
    find_pytorch,    find_vllm,           find_xla,         find_tensorflow,
    find_ggml,       find_emuv,           find_host_arrays, find_workers,
    find_oom_killer, find_memory_summary, find_container,   find_cuda,
    find_shell,
};

} // namespace

diagnosis diagnose(std::string_view data)
{
    diagnosis made;
    double link_rate = 0;
    if (looks_like_pickle(data)) {
        if (auto found = find_snapshot(data, made.problem))
            made.findings.push_back(std::move(*found));
    } else {
        const std::string text = cleaned(data);
        link_rate = link_rate_of(text);
        for (const auto recognise : recognisers)
            if (auto found = recognise(text)) {
                // Words that a better message has, too.
                if (found->from == source::cuda && !made.findings.empty())
                    continue;
                made.findings.push_back(std::move(*found));
            }
    }
    join(made);
    for (finding &each : made.findings) {
        each.link_rate = link_rate;
        judge(each);
        advise(each);
    }
    return made;
}

const char *to_text(source of)
{
    switch (of) {
    case source::pytorch:
        return "PyTorch";
    case source::pytorch_host:
        return "PyTorch";
    case source::numpy:
        return "NumPy";
    case source::pytorch_workers:
        return "PyTorch's DataLoader";
    case source::pytorch_summary:
        return "PyTorch's memory summary";
    case source::pytorch_snapshot:
        return "PyTorch's memory snapshot";
    case source::xla:
        return "XLA (JAX)";
    case source::tensorflow:
        return "TensorFlow";
    case source::ggml:
        return "llama.cpp (ggml)";
    case source::vllm:
        return "vLLM";
    case source::cuda:
        return "CUDA";
    case source::emuv:
        return "emuV";
    case source::oom_killer:
        return "the kernel's OOM killer";
    case source::container:
        return "a container";
    case source::shell:
        return "a shell";
    }
    return "";
}

const char *to_text(memory_kind of)
{
    switch (of) {
    case memory_kind::vram:
        return "VRAM";
    case memory_kind::ram:
        return "RAM";
    case memory_kind::unknown:
        break;
    }
    return "unknown";
}

const char *to_text(phase of)
{
    switch (of) {
    case phase::loading:
        return "loading";
    case phase::attention:
        return "attention";
    case phase::logits:
        return "logits";
    case phase::backward:
        return "backward";
    case phase::optimizer:
        return "optimizer";
    case phase::unknown:
        break;
    }
    return "unknown";
}

const char *to_text(cause_kind of)
{
    switch (of) {
    case cause_kind::too_small:
        return "too small";
    case cause_kind::fragmentation:
        return "fragmentation";
    case cause_kind::oversized:
        return "one large tensor";
    case cause_kind::leak:
        return "a leak";
    case cause_kind::others:
        return "others";
    case cause_kind::limit:
        return "a limit";
    case cause_kind::unknown:
        break;
    }
    return "not told";
}

} // namespace emuv::diagnose

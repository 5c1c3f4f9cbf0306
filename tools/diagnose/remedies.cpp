// SPDX-License-Identifier: GPL-2.0-or-later
// Remedies, in order of cost. Each remedy is a line to type, and its price.
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

// Costs: the order of remedies.
enum cost
{
    look, // changes nothing
    free_of_charge,
    slight, // a few percent of time
    some,   // time, or a smaller context
    much,   // another result, or a much slower program
};

constexpr std::uint64_t GiB = std::uint64_t{1} << 30;

std::uint64_t gib_up(std::uint64_t bytes)
{
    return std::max<std::uint64_t>(plus(bytes, GiB - 1) / GiB, 1);
}

// The bytes that were missing, as far as they are known.
std::uint64_t missing(const finding &of)
{
    const std::uint64_t asked = of.asked ? of.asked->bytes : 0;
    if (of.free)
        return minus(asked, of.free->bytes) > 0 ? minus(asked, of.free->bytes)
                                                : asked;
    return asked;
}

bool has(const finding &of, cause_kind kind)
{
    return std::any_of(of.causes.begin(), of.causes.end(),
                       [=](const cause &each) { return each.kind == kind; });
}

bool is_pytorch(const finding &of)
{
    return of.from == source::pytorch || of.from == source::pytorch_summary ||
           of.from == source::pytorch_snapshot || of.from == source::cuda;
}

// The words that start a program of that origin.
std::string_view program_of(source from)
{
    switch (from) {
    case source::ggml:
        return "llama-server ...";
    case source::vllm:
        return "vllm serve NAME";
    default:
        return "python ...";
    }
}

class advice
{
public:
    explicit advice(finding &of) : of_(of) {}

    void give()
    {
        if (of_.memory == memory_kind::vram)
            vram();
        else
            ram();
        std::stable_sort(
            of_.remedies.begin(), of_.remedies.end(),
            [](const remedy &a, const remedy &b) { return a.cost < b.cost; });
    }

private:
    void add(cost order, std::string what, std::string price, std::string line)
    {
        of_.remedies.push_back(
            {order, std::move(what), std::move(price), std::move(line)});
    }

    void vram()
    {
        if (has(of_, cause_kind::others) || of_.from == source::cuda)
            add(look, "See who is on the card, and how full it is", "nothing",
                "nvidia-smi");
        if (has(of_, cause_kind::leak))
            add(look, "Keep numbers, not tensors with their graphs", "nothing",
                "total += loss.item()    # not: total += loss");
        if (is_pytorch(of_))
            pytorch();
        if (of_.from == source::xla)
            xla();
        if (of_.from == source::tensorflow)
            tensorflow();
        if (of_.from == source::ggml)
            ggml();
        if (of_.from == source::vllm)
            vllm();
        if (of_.ran_out && of_.emuv_can_help)
            emuv();
    }

    void pytorch()
    {
        if (has(of_, cause_kind::fragmentation))
            add(free_of_charge, "Let the allocator grow its segments",
                "nothing, or little time",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python ...");
        if ((has(of_, cause_kind::leak) ||
             of_.from == source::pytorch_summary) &&
            of_.from != source::pytorch_snapshot)
            add(look,
                "Record who holds what, save it by "
                "_dump_snapshot('mem.pickle'), and give that to this command",
                "time, while it records",
                "torch.cuda.memory._record_memory_history()");
        if (!of_.ran_out)
            return;
        if (of_.at == phase::attention || has(of_, cause_kind::oversized))
            add(free_of_charge,
                "Use attention that never builds the L×L matrix",
                "nothing; often faster",
                "model = AutoModel.from_pretrained(NAME, "
                "attn_implementation='sdpa')");
        if (of_.at == phase::optimizer)
            add(slight, "Keep the optimizer's states in 8 bits",
                "a quarter of their memory; slightly other steps",
                "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())");
        if (of_.at == phase::loading)
            add(slight, "Load in 16 bits", "half the memory; fewer digits",
                "model = AutoModel.from_pretrained(NAME, "
                "torch_dtype=torch.bfloat16)");
        if (of_.at == phase::logits)
            add(free_of_charge, "Compute logits where they are needed alone",
                "nothing", "logits = lm_head(hidden[:, -1:])");
        if (of_.at == phase::backward || of_.at == phase::attention ||
            of_.at == phase::unknown)
            add(some, "Train with checkpoints of activations",
                "one more forward pass: about a third more time",
                "model.gradient_checkpointing_enable()");
        add(some, "Halve the batch, and add up two of them",
            "the same result; less work at once",
            "--per_device_train_batch_size N/2 "
            "--gradient_accumulation_steps 2");
    }

    void xla()
    {
        // A TPU has no such setting.
        if (of_.emuv_can_help || of_.under_emuv)
            add(free_of_charge, "Let XLA take what it needs, not 75 % at once",
                "slower allocations, more fragmentation",
                "XLA_PYTHON_CLIENT_PREALLOCATE=false python ...");
        add(some, "Recompute activations instead of keeping them",
            "one more forward pass: about a third more time",
            "loss = jax.checkpoint(loss)");
    }

    void tensorflow()
    {
        add(free_of_charge, "Let TensorFlow take what it needs, not all",
            "more fragmentation", "TF_FORCE_GPU_ALLOW_GROWTH=true python ...");
        add(free_of_charge, "Take memory from CUDA's own pool",
            "little time; less fragmentation",
            "TF_GPU_ALLOCATOR=cuda_malloc_async python ...");
        add(some, "Halve the batch", "steps with noisier gradients",
            "model.fit(..., batch_size=N // 2)");
    }

    void ggml()
    {
        add(slight, "Use flash attention, and a KV cache of 8 bits",
            "half the cache; hardly another result",
            "llama-server ... -fa on -ctk q8_0 -ctv q8_0");
        add(some, "Shorten the context", "it forgets sooner",
            "llama-server ... -c 4096");
        add(some, "Compute smaller pieces of a prompt at once",
            "prompts are read more slowly", "llama-server ... -ub 128");
        add(much, "Leave some layers to the CPU",
            "tokens come at the speed of RAM for those layers",
            "llama-server ... -ngl 20");
    }

    void vllm()
    {
        if (has(of_, cause_kind::others) && of_.free && of_.total) {
            // In whole percents.
            const std::uint64_t part =
                of_.free->bytes /
                std::max<std::uint64_t>(of_.total->bytes / 100, 1);
            add(free_of_charge, "Let vLLM take what is free",
                "a smaller KV cache: fewer requests at once",
                fmt::format("vllm serve NAME --gpu-memory-utilization 0.{:02}",
                            std::min<std::uint64_t>(part, 99)));
            return;
        }
        if (of_.tokens_fit && *of_.tokens_fit > 0)
            add(some, "Limit the context to what fits",
                "longer requests are refused",
                fmt::format("vllm serve NAME --max-model-len {}",
                            *of_.tokens_fit));
        else
            add(some, "Limit the context", "longer requests are refused",
                "vllm serve NAME --max-model-len 4096");
        add(free_of_charge, "Give vLLM more of the card",
            "less for others there",
            "vllm serve NAME --gpu-memory-utilization 0.95");
        add(slight, "Keep the KV cache in 8 bits",
            "half the cache; slightly other results",
            "vllm serve NAME --kv-cache-dtype fp8");
        add(slight, "Do without CUDA graphs",
            "slower decoding, about a GiB less",
            "vllm serve NAME "
            "--enforce-eager");
    }

    void emuv()
    {
        // Twice of what is missing: this request is hardly the last one.
        const std::uint64_t lacks = missing(of_);
        const std::uint64_t ram =
            plus(std::max<std::uint64_t>(gib_up(times(lacks, 2)), 4),
                 of_.granted ? of_.granted->bytes / GiB : 0);
        std::string price =
            "spilled memory is read at the link's speed, not at VRAM's";
        // Arithmetic: out and in once a step, at the rate that emuV measured,
        // or PCIe 4.0's.
        const bool measured = of_.link_rate > 0;
        const double rate = measured ? of_.link_rate : 25e9;
        const std::string at = fmt::format("{:.3g} GB/s{}", rate / 1e9,
                                           measured ? " (measured here)" : "");
        if (lacks > 0 && lacks < 1024 * GiB)
            price = fmt::format(
                "moving {} out and in takes {:.0f} ms a step at {}, less what "
                "hides behind computing",
                size(lacks), 2 * static_cast<double>(lacks) / rate * 1e3, at);
        if (of_.only_vram && of_.limit) {
            add(some, "Grant it more VRAM", "less for others on the card",
                fmt::format("emuvctl run --physical {}G ...",
                            gib_up(plus(of_.limit->bytes, lacks))));
            return;
        }
        if (ram > 1024)
            return; // no machine has it
        if (of_.from == source::ggml && lacks > 0)
            price = fmt::format(
                "each token reads it over the link, {:.0f} ms at {}; -ngl is "
                "faster where RAM is faster than the link",
                static_cast<double>(lacks) / rate * 1e3, at);
        add(some,
            of_.under_emuv
                ? "Grant it more system RAM than now"
                : "Let it spill to system RAM, and move it ahead of use",
            price + fmt::format("; {} GiB of RAM", ram),
            fmt::format("emuvctl run --virtual {}G -- {}", ram,
                        program_of(of_.from)));
    }

    void ram()
    {
        if (of_.memory == memory_kind::unknown ||
            of_.from == source::oom_killer)
            add(look, "Ask the kernel who was killed, and why", "nothing",
                "sudo dmesg -T | grep -iE 'oom-kill|killed process'");
        switch (of_.from) {
        case source::pytorch_workers:
            add(free_of_charge, "Give the container a larger /dev/shm",
                "RAM, as it is used", "docker run --shm-size 8g ...");
            add(slight, "Use fewer workers", "data come more slowly",
                "DataLoader(..., num_workers=2)");
            break;
        case source::container:
            container();
            break;
        case source::oom_killer:
            if (has(of_, cause_kind::limit))
                container();
            break;
        case source::ggml:
            add(free_of_charge, "Do not pin host memory", "slower copies",
                "GGML_CUDA_NO_PINNED=1 llama-server ...");
            break;
        case source::pytorch_host:
        case source::numpy:
            add(free_of_charge, "Read large arrays from their file, in place",
                "the disk's speed where they are not cached",
                "numpy.load(FILE, mmap_mode='r')");
            add(some, "Work on it in parts", "code for the parts",
                "for part in numpy.array_split(rows, 16): ...");
            break;
        default:
            break;
        }
        if (of_.memory == memory_kind::ram && of_.from != source::ggml &&
            of_.from != source::pytorch_workers) {
            add(slight, "Use fewer workers: each holds a copy of what it reads",
                "data come more slowly", "DataLoader(..., num_workers=2)");
            add(free_of_charge, "Load a model's weights without a second copy",
                "nothing",
                "AutoModel.from_pretrained(NAME, low_cpu_mem_usage=True)");
            add(some, "Grant less system RAM to emuV's instances, if any",
                "less spills; VRAM is not more",
                "emuvctl list -o name,virtual_bytes");
        }
    }

    void container()
    {
        const std::uint64_t limit =
            of_.limit ? of_.limit->bytes : (of_.held ? of_.held->bytes : 0);
        const std::string more =
            limit > 0 ? fmt::format("{}", gib_up(plus(limit, limit / 2)))
                      : std::string("16");
        add(free_of_charge, "Raise the container's limit of RAM, in Docker",
            "RAM that others do not get",
            fmt::format("docker update --memory {0}g --memory-swap {0}g NAME",
                        more));
        add(free_of_charge, "Or in Kubernetes", "RAM that others do not get",
            fmt::format("kubectl set resources deployment NAME "
                        "--limits=memory={}Gi",
                        more));
    }

    finding &of_;
};

} // namespace

void advise(finding &of)
{
    advice(of).give();
}

} // namespace emuv::diagnose

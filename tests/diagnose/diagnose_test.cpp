// SPDX-License-Identifier: GPL-2.0-or-later
// Messages about memory that ran out, in the forms that programs print them.
#include "finding.hpp"
#include "text.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace emuv::diagnose;
using ::testing::HasSubstr;

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
constexpr std::uint64_t GiB = std::uint64_t{1} << 30;

std::string sample(const std::string &name)
{
    std::ostringstream all;
    all << std::ifstream(std::string(SAMPLES "/") + name, std::ios::binary)
               .rdbuf();
    EXPECT_FALSE(all.str().empty()) << name;
    return all.str();
}

finding first_of(const std::string &name)
{
    const diagnosis made = diagnose(sample(name));
    EXPECT_FALSE(made.findings.empty()) << name;
    return made.findings.empty() ? finding() : made.findings.front();
}

std::uint64_t in_mib(const std::optional<figure> &of)
{
    return of ? of->bytes / MiB : 0;
}

std::vector<std::string> kinds(const finding &of)
{
    std::vector<std::string> made;
    for (const cause &each : of.causes)
        made.emplace_back(to_text(each.kind));
    return made;
}

bool advises(const finding &of, std::string_view line)
{
    return std::any_of(of.remedies.begin(), of.remedies.end(),
                       [=](const remedy &each) {
                           return each.line.find(line) != std::string::npos;
                       });
}

struct expected
{
    const char *name;
    source from;
    memory_kind memory;
    std::uint64_t asked_mib;
    std::uint64_t held_mib;
    const char *cause; // the first one
    const char *line;  // of a remedy

    // For GoogleTest, which prints bytes otherwise.
    friend void PrintTo(const expected &of, std::ostream *to)
    {
        *to << of.name;
    }
};

constexpr auto vram = memory_kind::vram;
constexpr auto ram = memory_kind::ram;
constexpr auto unknown = memory_kind::unknown;

const expected all[] = {
    {"pytorch_new.txt", source::pytorch, vram, 4096, 9984, "one large tensor",
     "attn_implementation='sdpa'"},
    {"pytorch_old.txt", source::pytorch, vram, 2048, 6246, "fragmentation",
     "expandable_segments:True"},
    {"pytorch_oldest.txt", source::pytorch, vram, 20, 7372, "too small",
     "emuvctl run --virtual 4G --"},
    {"pytorch_shared.txt", source::pytorch, vram, 1536, 7782, "others",
     "nvidia-smi"},
    {"pytorch_leak.txt", source::pytorch, vram, 512, 7168, "a leak",
     "loss.item()"},
    {"host_array.txt", source::numpy, ram, 76288, 0, "not told", "mmap_mode"},
    {"host_pytorch.txt", source::pytorch_host, ram, 51200, 0, "not told",
     "low_cpu_mem_usage"},
    {"workers.txt", source::pytorch_workers, ram, 0, 0, "a limit",
     "--shm-size"},
    {"memory_summary.txt", source::pytorch_summary, vram, 0, 4200,
     "fragmentation", "_record_memory_history"},
    {"snapshot.pickle", source::pytorch_snapshot, vram, 512, 3072, "a leak",
     "loss.item()"},
    {"snapshot_devices.pickle", source::pytorch_snapshot, vram, 256, 1536,
     "not told", "emuvctl run --virtual 4G --"},
    {"jax.txt", source::xla, vram, 8704, 0, "not told",
     "XLA_PYTHON_CLIENT_PREALLOCATE"},
    {"tensorflow.txt", source::tensorflow, vram, 1280, 9318, "too small",
     "TF_GPU_ALLOCATOR"},
    {"llama.txt", source::ggml, vram, 1056, 11434, "not told", "-ngl"},
    {"vllm_blocks.txt", source::vllm, vram, 0, 0, "too small",
     "--gpu-memory-utilization 0.95"},
    {"vllm_length.txt", source::vllm, vram, 0, 0, "too small",
     "--max-model-len 7344"},
    {"vllm_request.txt", source::vllm, vram, 16384, 0, "too small",
     "--max-model-len 42672"},
    {"vllm_start.txt", source::vllm, vram, 21790, 0, "others",
     "--gpu-memory-utilization 0.42"},
    {"oom_killer.txt", source::oom_killer, ram, 0, 42794, "too small", "dmesg"},
    {"oom_cgroup.txt", source::oom_killer, ram, 0, 8110, "a limit",
     "docker update --memory 12g"},
    {"kubernetes.txt", source::container, ram, 0, 0, "a limit",
     "--limits=memory=6Gi"},
    {"docker.txt", source::container, unknown, 0, 0, "not told", "dmesg"},
    {"shell.txt", source::shell, unknown, 0, 0, "not told", "dmesg"},
    {"emuv.txt", source::emuv, vram, 2048, 12185, "a limit",
     "emuvctl run --virtual 12G"},
    {"emuv_and_pytorch.txt", source::pytorch, vram, 2048, 11468, "a limit",
     "emuvctl run --virtual 4G"},
    {"cuda.txt", source::cuda, vram, 0, 0, "not told", "nvidia-smi"},
};

class Message : public testing::TestWithParam<expected>
{};

TEST_P(Message, IsReadWithItsFiguresCauseAndRemedy)
{
    const expected &wanted = GetParam();
    const finding found = first_of(wanted.name);
    EXPECT_EQ(found.from, wanted.from);
    EXPECT_EQ(found.memory, wanted.memory);
    EXPECT_EQ(in_mib(found.asked), wanted.asked_mib);
    EXPECT_EQ(in_mib(found.held), wanted.held_mib);
    ASSERT_FALSE(found.causes.empty());
    EXPECT_EQ(kinds(found).front(), wanted.cause);
    EXPECT_TRUE(advises(found, wanted.line)) << wanted.line;
    EXPECT_TRUE(found.ran_out);
    // In order of cost, each with a price.
    EXPECT_TRUE(std::is_sorted(
        found.remedies.begin(), found.remedies.end(),
        [](const remedy &a, const remedy &b) { return a.cost < b.cost; }));
    for (const remedy &each : found.remedies)
        EXPECT_FALSE(each.price.empty() || each.line.empty()) << each.what;
}

TEST_P(Message, FitsOnAScreenOf80Columns)
{
    const std::string text = screen(diagnose(sample(GetParam().name)), 80);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 45) << text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        EXPECT_LE(std::count_if(line.begin(), line.end(),
                                [](char c) { return (c & 0xc0) != 0x80; }),
                  80)
            << line;
}

TEST_P(Message, IsReadInAPasteWithBrokenLinesAndColours)
{
    if (std::string_view(GetParam().name).ends_with(".pickle"))
        GTEST_SKIP() << "no text";
    std::string text = "\x1b[31m" + sample(GetParam().name) + "\x1b[0m";
    std::string windows;
    for (const char c : text)
        windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
    const diagnosis made = diagnose(windows);
    ASSERT_FALSE(made.findings.empty());
    EXPECT_EQ(made.findings.front().from, GetParam().from);
    EXPECT_EQ(in_mib(made.findings.front().asked), GetParam().asked_mib);
}

INSTANTIATE_TEST_SUITE_P(Diagnose, Message, testing::ValuesIn(all),
                         [](const auto &which) {
                             std::string name = which.param.name;
                             name.resize(name.find('.'));
                             return name;
                         });

TEST(Diagnose, EverySampleIsExpectedOrUnknown)
{
    std::set<std::string> expected_names = {"unknown.txt"};
    for (const expected &each : all)
        expected_names.insert(each.name);
    std::set<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(SAMPLES))
        names.insert(entry.path().filename());
    EXPECT_EQ(names, expected_names);
}

TEST(Diagnose, ALineToTypeStartsTheProgramThatRanOut)
{
    EXPECT_TRUE(advises(first_of("pytorch_oldest.txt"), "G -- python ..."));
    EXPECT_TRUE(advises(first_of("llama.txt"), "G -- llama-server ..."));
    EXPECT_TRUE(advises(first_of("vllm_blocks.txt"), "G -- vllm serve NAME"));
}

TEST(Diagnose, UnknownTextIsNotRecognised)
{
    for (const std::string &text :
         {sample("unknown.txt"), std::string(), std::string("Killed it"),
          std::string("I tried to allocate some time"),
          std::string("RESOURCE_EXHAUSTED: quota of requests"),
          std::string("\"OOMKilled\": false"), std::string(4096, '\0'),
          std::string("exit code 1"), std::string("RuntimeError: out of luck")})
        EXPECT_TRUE(diagnose(text).findings.empty()) << text;
}

TEST(Diagnose, ABrokenLineInTheMiddleOfAFigureIsJoined)
{
    std::string text = sample("pytorch_old.txt");
    text.replace(text.find("total capacity"), 14, "total\ncapacity");
    const diagnosis made = diagnose(text);
    ASSERT_FALSE(made.findings.empty());
    EXPECT_EQ(in_mib(made.findings.front().total), 12042u);
}

TEST(Diagnose, ThePlaceInTheProgramIsTold)
{
    const finding found = first_of("pytorch_new.txt");
    EXPECT_EQ(found.at, phase::attention);
    EXPECT_THAT(found.where, HasSubstr("model.py:42, in attention"));
}

TEST(Diagnose, AShapeThatIsNamedIsJudgedByItsSides)
{
    const finding found = first_of("jax.txt");
    EXPECT_EQ(found.tensor, "f32[2,32,4096,4096]");
    ASSERT_EQ(found.same_size.size(), 1u);
    EXPECT_THAT(found.same_size.front(), HasSubstr("over 4096 tokens"));
}

TEST(Diagnose, LogitsAreToldByTheirVocabulary)
{
    // 8192 tokens of 128256 words in 4 bytes.
    const diagnosis made =
        diagnose("CUDA out of memory. Tried to allocate 3.91 GiB (GPU 0; 24.00 "
                 "GiB total capacity; 20.00 GiB already allocated; 1.00 GiB "
                 "free; 20.10 GiB reserved in total by PyTorch)");
    ASSERT_FALSE(made.findings.empty());
    EXPECT_THAT(made.findings.front().same_size,
                testing::Contains(HasSubstr("B×L = 8192 and 128256 words")));
}

TEST(Diagnose, FreeMemoryThatWouldDoPointsToALimit)
{
    const diagnosis made = diagnose(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 4.00 GiB of which 2.80 GiB is free. Of the allocated "
        "memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by "
        "PyTorch but unallocated.");
    ASSERT_FALSE(made.findings.empty());
    EXPECT_EQ(kinds(made.findings.front()).front(), "a limit");
}

TEST(Diagnose, OfSeveralDevicesTheOneThatRefusedLastIsTold)
{
    const diagnosis made = diagnose(sample("snapshot_devices.pickle"));
    ASSERT_EQ(made.findings.size(), 1u);
    EXPECT_EQ(made.findings[0].device, "GPU 1");
    EXPECT_THAT(made.findings[0].notes,
                testing::Contains("On GPU 0: 6 GiB held, 0 bytes cached."));
}

TEST(Diagnose, FiguresMayHaveCommas)
{
    const auto bytes_of = [](const char *text) {
        const auto made = read_figure(text);
        return made ? made->bytes : 0;
    };
    EXPECT_EQ(bytes_of("1,073,741,824 bytes"), 1073741824u);
    EXPECT_EQ(bytes_of("1,900.50 MiB"), 1900u * MiB + MiB / 2);
    EXPECT_EQ(bytes_of("1,900 MiB"), 1900u * MiB);
    EXPECT_EQ(bytes_of("1900,50 MiB"), 1900u * MiB + MiB / 2);
    EXPECT_EQ(bytes_of("1,500 GiB"), 1536u * MiB) << "a fraction";
    EXPECT_EQ(bytes_of("0,500 MiB"), MiB / 2) << "a fraction";
    EXPECT_EQ(bytes_of("12,5 GiB"), 12800u * MiB);
    EXPECT_EQ(bytes_of("12,3456"), 12u) << "neither";
    const auto before =
        figure_before("in use are 1,234,567,890 bytes of 7", " of 7");
    ASSERT_TRUE(before);
    EXPECT_EQ(before->bytes, 1234567890u);
}

TEST(Diagnose, TheLinksRateIsTheOneThatWasMeasured)
{
    const std::string refused =
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 12.00 GiB of which 100.00 MiB is free. Of the allocated "
        "memory 11.50 GiB is allocated by PyTorch, and 0 bytes is reserved by "
        "PyTorch but unallocated.";
    EXPECT_THAT(screen(diagnose(refused), 200), HasSubstr("at 25 GB/s,"));
    const std::string spilled =
        "emuV: 1.5 GiB of an allocation of 2 GiB went to system RAM (HOST_NUMA "
        "memory): VRAM in use 12 GiB of 12 GiB; the link moves 52.4 GB/s\n";
    EXPECT_THAT(screen(diagnose(spilled + refused), 200),
                HasSubstr("at 52.4 GB/s (measured here)"));
    EXPECT_THAT(screen(diagnose("the link moves 1e99 GB/s\n" + refused), 200),
                HasSubstr("at 25 GB/s,"));
}

TEST(Diagnose, SeveralMessagesAreAllNamed)
{
    const diagnosis made =
        diagnose(sample("pytorch_old.txt") + sample("oom_killer.txt"));
    ASSERT_EQ(made.findings.size(), 2u);
    EXPECT_EQ(made.findings[0].from, source::pytorch);
    EXPECT_EQ(made.findings[1].from, source::oom_killer);
    EXPECT_THAT(screen(made, 80),
                HasSubstr("Also: System RAM ran out, says the kernel's"));
}

TEST(Diagnose, ATableOfAProgramThatGoesOnSaysSo)
{
    std::string text = sample("memory_summary.txt");
    text.replace(text.find("OOMs: 1"), 7, "OOMs: 0");
    const diagnosis made = diagnose(text);
    ASSERT_FALSE(made.findings.empty());
    EXPECT_FALSE(made.findings.front().ran_out);
    EXPECT_THAT(screen(made, 80), HasSubstr("nothing ran out here"));
}

TEST(Diagnose, ClaimedNumbersAreOnlyNumbers)
{
    const diagnosis made = diagnose(
        "OOM when allocating tensor with "
        "shape[18446744073709551615,18446744073709551615,99999999999999999999] "
        "and type double on /job:x/device:GPU:0 by allocator GPU_0_bfc\n"
        "CUDA out of memory. Tried to allocate 99999999999999999999999999.99 "
        "PiB (GPU 0; 1.00 GiB total capacity; 1 bytes already allocated; 0 "
        "bytes free; 1 bytes reserved in total by PyTorch)");
    ASSERT_FALSE(made.findings.empty());
    EXPECT_FALSE(screen(made, 80).empty());
}

TEST(Diagnose, NoCardButCudasIsSentToEmuV)
{
    for (const char *text :
         {"HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
          "capacity of 4.00 GiB of which 1.00 GiB is free.",
          "ggml_gallocr_reserve_n: failed to allocate ROCm0 buffer of size "
          "1107821568",
          "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used "
          "20.00G of 15.48G hbm. Exceeded hbm capacity by 4.52G."}) {
        const diagnosis made = diagnose(text);
        ASSERT_EQ(made.findings.size(), 1u) << text;
        EXPECT_EQ(made.findings.front().memory, memory_kind::vram) << text;
        EXPECT_FALSE(made.findings.front().remedies.empty()) << text;
        EXPECT_FALSE(advises(made.findings.front(), "emuvctl")) << text;
        EXPECT_FALSE(advises(made.findings.front(), "PREALLOCATE")) << text;
    }
}

TEST(Diagnose, NoLargerLimitIsAdvisedWhereTheLimitsHaveRoom)
{
    const diagnosis made = diagnose(
        "emuV: refused 24 MiB: in use are 2 MiB of 24 GiB VRAM (2 MiB by this "
        "process) and 0 bytes of 16 GiB system RAM. The limits have room, but "
        "the card or this machine has none: see nvidia-smi and free -h\n");
    ASSERT_EQ(made.findings.size(), 1u);
    EXPECT_TRUE(advises(made.findings.front(), "nvidia-smi"));
    EXPECT_FALSE(advises(made.findings.front(), "emuvctl run"));
}

TEST(Diagnose, TheCpusDeviceOfXlaAndTensorFlowIsSystemRam)
{
    for (const char *text :
         {"RESOURCE_EXHAUSTED: Out of memory allocating 68719476736 bytes.",
          "Allocator (cpu) ran out of memory trying to allocate 64.00GiB"}) {
        const diagnosis made = diagnose(text);
        ASSERT_EQ(made.findings.size(), 1u) << text;
        EXPECT_EQ(made.findings.front().memory, memory_kind::ram) << text;
    }
}

TEST(Diagnose, AWarningOfWhatIsNoFailureIsNone)
{
    EXPECT_TRUE(
        diagnose("Allocator (GPU_0_bfc) ran out of memory trying to allocate "
                 "3.37GiB with freed_by_count=0. The caller indicates that "
                 "this is not a failure, but this may mean that there could "
                 "be performance gains")
            .findings.empty());
}

TEST(Diagnose, AnEarlierGroupsLimitIsNotTheLastOnesCause)
{
    const diagnosis made =
        diagnose(sample("oom_cgroup.txt") + sample("oom_killer.txt"));
    ASSERT_EQ(made.findings.size(), 1u);
    EXPECT_EQ(kinds(made.findings.front()).front(), "too small");
    EXPECT_FALSE(made.findings.front().limit);
    const diagnosis other =
        diagnose(sample("oom_killer.txt") + sample("oom_cgroup.txt"));
    ASSERT_EQ(other.findings.size(), 1u);
    EXPECT_EQ(kinds(other.findings.front()).front(), "a limit");
    EXPECT_TRUE(other.findings.front().limit);
}

TEST(Diagnose, TheLengthOfALineCostsNoSquareOfIt)
{
    // Looking for the ends of the line at each word would take minutes.
    std::string killed;
    std::string buffers = "ggml ";
    for (int i = 0; i < 300'000; i++) {
        killed += "Killed ";
        buffers += " buffer size = 1 ";
    }
    EXPECT_TRUE(diagnose(killed).findings.empty());
    buffers +=
        "\nallocating 1056.50 MiB on device 0: cudaMalloc failed: out of "
        "memory";
    EXPECT_EQ(diagnose(buffers).findings.size(), 1u);
}

// A small generator, so that each run tries the same.
class dice
{
public:
    explicit dice(std::uint64_t seed) : state_(seed) {}
    std::uint64_t roll(std::uint64_t below)
    {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return (state_ >> 33) % below;
    }

private:
    std::uint64_t state_;
};

TEST(Diagnose, MutatedInputsEndInAnAnswer)
{
    dice random(33);
    for (const expected &each : all) {
        const std::string whole = sample(each.name);
        for (int round = 0; round < 200; round++) {
            std::string text = whole;
            const auto changes = random.roll(6) + 1;
            for (std::uint64_t i = 0; i < changes && !text.empty(); i++) {
                const auto at =
                    static_cast<std::size_t>(random.roll(text.size()));
                switch (random.roll(5)) {
                case 0:
                    text[at] = static_cast<char>(random.roll(256));
                    break;
                case 1:
                    text.resize(at);
                    break;
                case 2:
                    text.insert(at, "99999999999999999999");
                    break;
                case 3:
                    text.erase(at, random.roll(40));
                    break;
                default:
                    text.insert(at, text.substr(0, random.roll(200)));
                    break;
                }
            }
            const diagnosis made = diagnose(text);
            for (const finding &found : made.findings)
                ASSERT_FALSE(found.causes.empty());
            ASSERT_EQ(made.findings.empty(), screen(made, 80).empty());
        }
    }
}

} // namespace

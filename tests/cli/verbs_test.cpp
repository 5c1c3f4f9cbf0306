// SPDX-License-Identifier: GPL-2.0-or-later
// The verbs that change something, against a driver in memory.
#include "cards.hpp"
#include "environment.hpp"
#include "fake_kernel.hpp"
#include "process_container.hpp"

#include <emuv/client.hpp>
#include <emuv/control.hpp>
#include <emuv/error.hpp>
#include <emuv/sysfs.hpp>
#include <emuv/unique_fd.hpp>
#include <emuv/version.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <memory>
#include <sstream>
#include <thread>

#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/emuv.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace {

using emuv_test::fake_kernel;
using emuv_test::write_file;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr std::uint64_t gib = 1ULL << 30;

class string_sink final : public emuvctl::sink
{
public:
    void write(std::string_view more) override
    {
        if (closed)
            throw emuvctl::closed_pipe();
        text += more;
    }
    [[nodiscard]] bool terminal() const override { return columns != 0; }
    [[nodiscard]] unsigned width() const override { return columns; }
    std::string text;
    bool closed = false;
    unsigned columns = 0; // of a terminal
};

struct outcome
{
    int status = -1;
    std::string out;
    std::string err;
};

class verbs : public testing::Test
{
protected:
    void SetUp() override { kernel_.insert(); }

    outcome run_words(const std::vector<std::string> &arguments)
    {
        string_sink out;
        string_sink err;
        out.closed = closed_;
        emuvctl::environment env{out,
                                 err,
                                 kernel_,
                                 kernel_,
                                 kernel_.sys(),
                                 kernel_.proc(),
                                 kernel_.dev(),
                                 kernel_.root() / "run",
                                 [this](double seconds) {
                                     now_ += seconds;
                                     waits_++;
                                     if (on_wait_)
                                         on_wait_();
                                     return waits_ < interrupted_at_;
                                 },
                                 [this] { return now_; },
                                 [this] { return cuda_; },
                                 {}};
        out.columns = columns_;
        env.nvml = [this] { return nvml_; };
        env.no_color = no_color_;
        env.etc = kernel_.root() / "etc";
        outcome result;
        result.status = emuvctl::run(arguments, env);
        result.out = out.text;
        result.err = err.text;
        return result;
    }

    // All of a line but the instance and the program.
    std::string start_with_library() const
    {
        const auto library = kernel_.root() / "lib";
        write_file(library / "libcuda.so.1", "");
        return "run --library " + library.string() + " --instance ";
    }

    // The words of a line without quotes.
    outcome run(const std::string &line)
    {
        std::istringstream words(line);
        std::vector<std::string> arguments;
        for (std::string word; words >> word;)
            arguments.push_back(word);
        return run_words(arguments);
    }

    std::string profiles(const std::string &text)
    {
        const auto path = kernel_.root() / "profiles.conf";
        write_file(path, text);
        return path.string();
    }

    // A GeForce RTX 4070 on the PCI bus.
    void add_card(const std::string &width = "16",
                  const std::string &device = "0x2786")
    {
        const auto card = kernel_.sys() / "bus/pci/devices/0000:01:00.0";
        write_file(card / "vendor", "0x10de\n");
        write_file(card / "device", device + "\n");
        write_file(card / "class", "0x030000\n");
        write_file(card / "current_link_speed", "2.5 GT/s PCIe\n");
        write_file(card / "max_link_speed", "16.0 GT/s PCIe\n");
        write_file(card / "current_link_width", width + "\n");
        write_file(card / "max_link_width", "16\n");
    }

    [[nodiscard]] std::string node(int id) const
    {
        return (kernel_.dev() / ("emuv" + std::to_string(id))).string();
    }

    static std::string message(const std::string &verb, const std::string &text)
    {
        return "emuvctl: " + verb + ": " + text + "\n";
    }

    fake_kernel kernel_;
    emuvctl::cuda_state cuda_{false, "there is none", 0, 0};
    emuvctl::nvml_state nvml_{false, "there is none", "", {}};
    unsigned columns_ = 0; // of the terminal
    bool no_color_ = false;
    std::function<void()> on_wait_;
    bool closed_ = false;
    double now_ = 0;
    int waits_ = 0;
    int interrupted_at_ = 1000000;
};

const std::string two_profiles = "[a]\n"
                                 "gpu_model=4070\n"
                                 "physical_vram_gb=6\n"
                                 "virtual_vram_gb=2\n"
                                 "count=2\n"
                                 "[b]\n"
                                 "gpu_model=4090\n"
                                 "physical_vram_gb=8\n"
                                 "virtual_vram_gb=1\n"
                                 "instance_id=0\n";

// create

TEST_F(verbs, create_prints_the_node_it_made)
{
    const auto result = run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out, node(0) + "\n");
    EXPECT_EQ(result.err, "");
    const auto info = emuv::control(kernel_.dev(), kernel_).query(0);
    EXPECT_EQ(info.gpu_model, "4070");
    EXPECT_EQ(info.physical_bytes, 12 * gib) << "the card's own";
    EXPECT_EQ(info.virtual_bytes, 2 * gib);
}

TEST_F(verbs, create_passes_every_option_on)
{
    const auto result =
        run_words({"create", "--gpu-model", "my own card", "--physical", "1.5G",
                   "--virtual", "64M", "--id", "7", "--numa-node", "0",
                   "--pci-device-id", "0x2786", "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    const auto document = json::parse(result.out);
    EXPECT_EQ(document["schema"], 1);
    const auto &one = document["instances"].at(0);
    EXPECT_EQ(one["name"], "emuv7");
    EXPECT_EQ(one["node"], node(7));
    EXPECT_EQ(one["gpu_model"], "my own card");
    EXPECT_EQ(one["physical_bytes"], gib + gib / 2);
    EXPECT_EQ(one["virtual_bytes"], 64U << 20U);
    EXPECT_EQ(one["numa_node"], 0);
    EXPECT_EQ(one["pci_device_id"], "0x2786");
}

TEST_F(verbs, refuse_a_module_of_another_abi_in_one_line)
{
    ASSERT_EQ(run("create --gpu-model 4070 --virtual 2G").status, 0);
    kernel_.abi = EMUV_ABI_VERSION + 1;
    for (const auto &line :
         {std::string("create --gpu-model 4070 --virtual 2G"),
          std::string("destroy 0"), start_with_library() + "0 -- true"}) {
        const auto result = run(line);
        EXPECT_EQ(result.status, line.starts_with("run ") ? 125 : 1) << line;
        EXPECT_THAT(result.err,
                    HasSubstr("speaks ABI 2, this program 1: install newer "
                              "tools"))
            << line;
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
            << line;
    }
    kernel_.abi = EMUV_ABI_VERSION;
    EXPECT_EQ(run("destroy 0").status, 0) << "and nothing had been done";
}

TEST_F(verbs, create_makes_what_a_profile_says)
{
    const auto file = profiles(two_profiles);
    EXPECT_EQ(run("create --config " + file + " --profile a").out,
              node(0) + "\n" + node(1) + "\n");
    EXPECT_EQ(run("create --config " + file + " --profile b --id 5").out,
              node(5) + "\n");
    EXPECT_EQ(run("create --config " + file + " --profile a --count 1").out,
              node(2) + "\n");
    const auto unknown = run("create --config " + file + " --profile c");
    EXPECT_EQ(unknown.status, 1);
    EXPECT_EQ(unknown.err, message("create", "no profile 'c'; there are a, b"));
}

TEST_F(verbs, create_says_that_an_id_is_taken)
{
    run("create --gpu-model 4070 --virtual 2G --id 3");
    const auto result = run("create --gpu-model 4070 --virtual 2G --id 3");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, message("create", "emuv3: already exists"));
}

TEST_F(verbs, create_of_several_makes_all_or_none)
{
    run("create --gpu-model 4070 --virtual 2G --id 3");
    const auto result =
        run("create --gpu-model 4070 --virtual 2G --id 1 --count 4");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, message("create", "emuv3: already exists"));
    EXPECT_EQ(kernel_.instance_count(), 1U);
    kernel_.fail(EMUV_IOC_CREATE, ENOMEM, 2);
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G --count 5").status, 1);
    EXPECT_EQ(kernel_.instance_count(), 1U);
}

TEST_F(verbs, create_says_what_it_could_not_take_back)
{
    kernel_.fail(EMUV_IOC_CREATE, ENOSPC, 1);
    kernel_.fail(EMUV_IOC_DESTROY, EBUSY);
    const auto result = run("create --gpu-model 4070 --virtual 2G --count 2");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err,
              message("create", "emuv0: could not be taken back: device or "
                                "resource busy") +
                  message("create", "no id is free: 1024 instances exist"));
}

TEST_F(verbs, create_tells_of_memory_that_cannot_be_promised)
{
    kernel_.promisable = 3 * gib;
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G").status, 0);
    const auto result = run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err,
              message("create", "2 GiB of the 31 GiB that the host can back "
                                "are promised already; --overcommit promises "
                                "more all the same"));
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G --overcommit").status,
              0);
}

TEST_F(verbs, create_bounds_what_one_client_may_allocate)
{
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G --client-virtual 512M")
                  .status,
              0);
    EXPECT_THAT(run("info").out, HasSubstr("512 MiB"));
    const auto text = run("export").out;
    EXPECT_THAT(text, HasSubstr("client_virtual_mb=512"));
    const auto file = profiles(text);
    EXPECT_EQ(run("assert --config " + file).status, 0);
    run("destroy --all");
    run("create --gpu-model 4070 --virtual 2G");
    EXPECT_NE(run("assert --config " + file).status, 0);
    EXPECT_EQ(
        run("create --gpu-model 4070 --virtual 2G --client-virtual 3M").status,
        2);
}

TEST_F(verbs, create_reserves_ram_for_what_is_guaranteed)
{
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G --guaranteed").status,
              0);
    EXPECT_THAT(run("info").out, HasSubstr("2 GiB more, guaranteed"));
    const auto text = run("export").out;
    EXPECT_THAT(text, HasSubstr("guaranteed=yes"));
    const auto file = profiles(text);
    EXPECT_EQ(run("assert --config " + file).status, 0);
    run("destroy --all");
    EXPECT_EQ(run("apply --config " + file).status, 0);
    EXPECT_EQ(run("export").out, text);

    run("destroy --all");
    run("create --gpu-model 4070 --virtual 2G --id 0");
    EXPECT_EQ(run("assert --config " + file).status, 1)
        << "an instance that reserves nothing is another one";
}

TEST_F(verbs, create_refuses_swap_files_that_cannot_be)
{
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G --swap /tmp "
                  "--guaranteed")
                  .status,
              2);
    const auto result =
        run("create --gpu-model 4070 --virtual 2G --swap /nowhere/at/all");
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("/nowhere/at/all"));
    EXPECT_EQ(run("list").out, "");
}

TEST_F(verbs, create_binds_to_a_node_that_is_named)
{
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G --numa-bind").status,
              2);
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G --numa-bind "
                  "--numa-node 0")
                  .status,
              0);
}

TEST_F(verbs, profiles_bind_to_a_node)
{
    const auto file = profiles("[p]\ngpu_model=4070\nphysical_vram_gb=1\n"
                               "virtual_vram_gb=2\nnuma_node=0\n"
                               "numa_bind=yes\ninstance_id=0\n");
    EXPECT_EQ(run("apply --config " + file).status, 0);
    EXPECT_THAT(run("info").out, HasSubstr("NUMA node:      0 only"));
    EXPECT_EQ(run("assert --config " + file).status, 0);
    EXPECT_THAT(run("export").out, HasSubstr("numa_node=0\nnuma_bind=yes\n"));
    run("destroy --all");
    run("create --profile p --numa-bind --config " + file);
    EXPECT_EQ(run("assert --config " + file).status, 0);
    run("destroy --all");
    run("create --gpu-model 4070 --physical 1G --virtual 2G --numa-node 0 "
        "--id 0");
    const auto differs = run("assert --config " + file);
    EXPECT_EQ(differs.status, 1);
    EXPECT_THAT(differs.out, HasSubstr("NUMA node 0 only"));
}

TEST_F(verbs, profiles_have_swap_files)
{
    const auto folder = (kernel_.root() / "swapping").string();
    std::filesystem::create_directory(folder);
    const std::string plain = "[p]\ngpu_model=4070\nphysical_vram_gb=1\n"
                              "virtual_vram_gb=2\ninstance_id=0\n";
    const auto swapping = plain + "swap=" + folder + "\n";
    const auto file = profiles(swapping);
    EXPECT_THAT(run("create --profile p --dry-run --config " + file).out,
                HasSubstr("swapping to " + folder));
    EXPECT_THAT(
        run("create --profile p --swap /dev/null --dry-run --config " + file)
            .out,
        HasSubstr("swapping to /dev/null"));
    EXPECT_THAT(run("profile list -o profile,swap --config " + file).out,
                HasSubstr(folder));
    const emuv::unique_fd direct(::open(
        folder.c_str(), O_RDWR | O_DIRECT | O_TMPFILE | O_CLOEXEC, 0600));
    if (direct.get() < 0)
        GTEST_SKIP() << "no direct I/O in " << folder;
    EXPECT_EQ(run("apply --config " + file).status, 0);
    EXPECT_THAT(run("info").out, HasSubstr("In swap file"));
    EXPECT_EQ(run("assert --config " + file).status, 0);
    const auto exported = run("export");
    EXPECT_EQ(exported.status, 0);
    EXPECT_THAT(exported.err, HasSubstr("emuv0 has a swap file"));
    profiles(plain);
    const auto differs = run("assert --config " + file);
    EXPECT_EQ(differs.status, 1);
    EXPECT_THAT(differs.out, HasSubstr("with a swap file"));
    run("destroy --all");
    EXPECT_EQ(run("apply --config " + file).status, 0);
    profiles(swapping);
    EXPECT_EQ(run("assert --config " + file).status, 1);
}

TEST_F(verbs, tiers_of_an_instance_are_what_run_begins_with)
{
    const auto library = kernel_.root() / "library";
    std::filesystem::create_directory(library);
    write_file(library / "libcuda.so.1", "");
    const auto begin = [&](const std::string &more) {
        return run("run --library " + library.string() + " --instance " + more +
                   " --dry-run -- true");
    };
    run("create --gpu-model 4070 --virtual 2G --tier emuv2=1G,lender=2G");
    run("create --gpu-model 4070 --virtual 2G");
    run("create --gpu-model 4070 --virtual 2G");
    EXPECT_THAT(run("list -o name,tier").out,
                HasSubstr("emuv2=1GiB,lender=2GiB"));
    EXPECT_THAT(run("info emuv0").out, HasSubstr("Tiers:"));
    EXPECT_THAT(begin("0").err, HasSubstr("no instance is called 'lender'"));
    run("create --gpu-model 4070 --virtual 2G --name lender");
    auto said = begin("0");
    EXPECT_EQ(said.status, 0) << said.err;
    EXPECT_THAT(said.out, AllOf(HasSubstr("EMUV_INSTANCE=0,2,3\n"),
                                HasSubstr("EMUV_TIER=peer:1=1073741824,"
                                          "peer:2=2147483648\n")));
    // A card that is named already lends there.
    EXPECT_THAT(begin("0,1,2").out,
                AllOf(HasSubstr("EMUV_INSTANCE=0,1,2,3\n"),
                      HasSubstr("EMUV_TIER=peer:2=1073741824,"
                                "peer:3=2147483648\n")));
    EXPECT_THAT(
        begin("0 --tier none").out,
        AllOf(HasSubstr("EMUV_INSTANCE=0\n"), HasSubstr("EMUV_TIER=none\n")));
    EXPECT_THAT(begin("0 --tier peer:1=1G").out,
                AllOf(HasSubstr("EMUV_INSTANCE=0\n"),
                      HasSubstr("EMUV_TIER=peer:1=1G\n")));
    EXPECT_THAT(begin("1").out, Not(HasSubstr("EMUV_TIER")));
    EXPECT_THAT(begin("0 --store pages").err, HasSubstr("--tier none"));
    EXPECT_THAT(begin("0 --disable").out, Not(HasSubstr("EMUV_TIER")));
    ::setenv("EMUV_STORE", "pages", 1);
    EXPECT_THAT(begin("0").err, HasSubstr("--tier none"));
    ::unsetenv("EMUV_STORE");
    ::setenv("EMUV_TIER", "peer:7=1G", 1); // of a program around this one
    EXPECT_THAT(begin("0").out, HasSubstr("EMUV_TIER=peer:1=1073741824,"));
    EXPECT_THAT(begin("1").out, Not(HasSubstr("EMUV_TIER")));
    ::unsetenv("EMUV_TIER");
    // They go with their instance.
    const auto uuid =
        json::parse(run("info emuv0 --json").out)["instances"][0]["uuid"]
            .get<std::string>();
    const auto file = kernel_.root() / "run/emuv/tiers" / uuid;
    EXPECT_TRUE(std::filesystem::exists(file));
    write_file(file, "no tiers\n");
    EXPECT_THAT(begin("0").out, Not(HasSubstr("EMUV_TIER")));
    EXPECT_EQ(run("destroy emuv0").status, 0);
    EXPECT_FALSE(std::filesystem::exists(file));
    for (const auto &[tiers, why] : std::map<std::string, std::string>{
             {"emuv0=1G", "emuv0 has itself as its tier"},
             {"emuv3=1G,lender=1G", "emuv0 has emuv3 as its tier twice"},
             {"emuv9=1G", "a tier of emuv0: emuv9: no such instance"}}) {
        run("create --gpu-model 4070 --virtual 2G --id 0 --tier " + tiers);
        const auto refused = begin("0");
        EXPECT_EQ(refused.status, 125);
        EXPECT_THAT(refused.err, HasSubstr(why));
        run("destroy emuv0");
    }
}

TEST_F(verbs, a_batch_tells_frameworks_as_run_does_unless_they_are_to_be_left)
{
    const auto root = kernel_.root();
    const auto library = (root / "lib").string();
    write_file(root / "lib/libcuda.so.1", "");
    write_file(root / "items", (root / "found").string() + "\n");
    ::unsetenv("XLA_PYTHON_CLIENT_ALLOCATOR");
    const auto found = [&](const std::vector<std::string> &more) {
        std::vector<std::string> line = {"batch",  "--library",    library,
                                         "--from", root / "items", "--physical",
                                         "1G"};
        line.insert(line.end(), more.begin(), more.end());
        for (const std::string word :
             {"--", "sh", "-c",
              "echo ${XLA_PYTHON_CLIENT_ALLOCATOR-unset} > \"$0\"", "{}"})
            line.push_back(word);
        const auto done = run_words(line);
        EXPECT_EQ(done.status, 0) << done.err;
        return emuv::read_line_file(root / "found").value_or("");
    };
    EXPECT_EQ(found({}), "cuda_async");
    EXPECT_EQ(found({"--leave-frameworks"}), "unset");
    EXPECT_EQ(found({"--move=off"}), "unset");
}

TEST_F(verbs, workers_of_a_batch_begin_with_the_tiers_of_their_instances)
{
    const auto root = kernel_.root();
    write_file(root / "lib/libcuda.so.1", "");
    write_file(root / "items", (root / "found").string() + "\n");
    const auto begin = [&](std::vector<std::string> more, bool dry = false) {
        std::filesystem::remove(root / "journal");
        std::vector<std::string> line = {
            "batch",        "--library", root / "lib",    "--from",
            root / "items", "--journal", root / "journal"};
        line.insert(line.end(), more.begin(), more.end());
        if (dry)
            line.emplace_back("--dry-run");
        for (const std::string word :
             {"--", "sh", "-c",
              "echo $EMUV_INSTANCE ${EMUV_TIER-unset}$EMUV_TIER_DEFAULT > "
              "\"$0\"",
              "{}"})
            line.push_back(word);
        return run_words(line);
    };
    const auto found = [&](const std::vector<std::string> &more) {
        const auto done = begin(more);
        EXPECT_EQ(done.status, 0) << done.err;
        return emuv::read_line_file(root / "found").value_or("");
    };
    run("create --gpu-model 4070 --physical 1G --virtual 2G --tier lender=4G");
    EXPECT_THAT(begin({"--instances", "0"}, true).err,
                HasSubstr("a tier of emuv0: no instance is called 'lender'"));
    run("create --gpu-model 4070 --physical 1G --virtual 2G --name lender");
    ::setenv("EMUV_TIER", "peer:7=1G", 1); // of a program around this one
    ::setenv("EMUV_TIER_DEFAULT", "peer:7=1G", 1);
    EXPECT_EQ(found({"--instances", "0"}), "0,1 peer:1=4294967296");
    // They count as memory of the instance.
    const auto noted = emuv::read_line_file(root / "journal").value_or("");
    EXPECT_EQ(
        json::parse(noted.substr(noted.rfind('\n') + 1)).at("share_bytes"),
        7516192768);
    EXPECT_EQ(found({"--instances", "1"}), "1 unset");
    ::unsetenv("EMUV_TIER");
    ::unsetenv("EMUV_TIER_DEFAULT");
    EXPECT_EQ(found({"--instances", "0", "--tier", "none"}), "0 none");
    EXPECT_EQ(found({"--instances", "0", "--disable"}), "0 unset");
    EXPECT_THAT(begin({"--instances", "0", "--store", "pages"}, true).err,
                HasSubstr("the tiers of emuv0 need the numa store"));
}

TEST_F(verbs, profiles_have_tiers)
{
    const std::string plain = "[a]\ngpu_model=4070\nphysical_vram_gb=1\n"
                              "virtual_vram_gb=2\n";
    const auto file = profiles(plain + "tier=b=4G\n[b]\n" + plain.substr(4));
    EXPECT_THAT(run("create --profile a --dry-run --config " + file).out,
                HasSubstr("with b=4GiB as its tier"));
    EXPECT_THAT(
        run("create --profile a --tier b=8G --dry-run --config " + file).out,
        HasSubstr("with b=8GiB as its tier"));
    EXPECT_THAT(run("start a --dry-run --config " + file).out,
                HasSubstr("with b=4GiB as its tier"));
    EXPECT_THAT(run("profile list -o profile,tier --config " + file).out,
                HasSubstr("b=4GiB"));
    const std::string told = " --raw --noheadings -o name,tier --config ";
    EXPECT_EQ(run("apply --dry-run" + told + file).out,
              "emuv0 b=4GiB\nemuv1 -\n");
    EXPECT_EQ(run("apply --dry-run --config " + file).err,
              message("apply", "emuv0: its tiers would be b=4GiB"));
    const auto applied = run("apply" + told + file);
    EXPECT_EQ(applied.status, 0);
    EXPECT_EQ(applied.out, "emuv0 b=4GiB\nemuv1 -\n");
    EXPECT_EQ(applied.err, "");
    EXPECT_THAT(run("list -o given_name,tier").out, HasSubstr("b=4GiB"));
    EXPECT_THAT(run("export").out, HasSubstr("\ntier=b=4GiB\n"));
    EXPECT_THAT(run("define c --from a --dry-run --config " + file).out,
                HasSubstr("\ntier=b=4GiB\n"));
    EXPECT_THAT(
        run("define c --from a --tier none --dry-run --config " + file).out,
        Not(HasSubstr("tier=")));
    // Those of an instance that stays follow its profile.
    profiles(plain + "tier=b=6G\n[b]\n" + plain.substr(4));
    EXPECT_THAT(run("apply --dry-run --config " + file).err,
                HasSubstr("its tiers are b=4GiB, and would be b=6GiB"));
    EXPECT_THAT(run("apply --config " + file).err,
                HasSubstr("its tiers were b=4GiB, and are now b=6GiB"));
    profiles(plain + "[b]\n" + plain.substr(4));
    EXPECT_THAT(run("apply --config " + file).err,
                HasSubstr("its tiers were b=6GiB, and are now none"));
    EXPECT_EQ(run("apply --config " + file).err, "");
    profiles(plain + "tier=b=4G\n[b]\n" + plain.substr(4));
    run("destroy --all");
    EXPECT_EQ(run("start a --config " + file).status, 0);
    EXPECT_THAT(run("list -o given_name,tier").out, HasSubstr("b=4GiB"));
    EXPECT_THAT(
        run("create --gpu-model 4070 --virtual 2G --tier peer:1=4G").err,
        HasSubstr("--tier: 'peer:1=4G' is no tier"));
}

TEST_F(verbs, apply_gives_a_profile_s_tiers_anew_once_their_lender_is_another)
{
    const std::string plain = "gpu_model=4070\nphysical_vram_gb=1\n"
                              "virtual_vram_gb=2\n";
    const auto file = profiles("[a]\n" + plain + "tier=emuv1=4G\n[b]\n" +
                               plain + "instance_id=1\n");
    EXPECT_EQ(run("apply --config " + file).status, 0);
    const auto tiers = [&] {
        return run("list --raw --noheadings -o tier").out;
    };
    EXPECT_EQ(tiers(), "emuv1=4GiB\n-\n");
    EXPECT_EQ(run("apply --config " + file).err, "");
    run("destroy 1");
    run("create --gpu-model 4070 --physical 1G --virtual 2G --id 1");
    EXPECT_EQ(tiers(), "-\n-\n");
    EXPECT_THAT(run("apply --config " + file).err,
                HasSubstr("its tiers were none, and are now emuv1=4GiB"));
    EXPECT_EQ(tiers(), "emuv1=4GiB\n-\n");
}

TEST_F(verbs, create_explains_that_ram_cannot_be_reserved_now)
{
    kernel_.fail(EMUV_IOC_CREATE, ENOMEM);
    const auto result =
        run("create --gpu-model 4070 --virtual 2G --guaranteed");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err,
              message("create", "the host cannot reserve 2 GiB of RAM now; "
                                "without --guaranteed it is taken when it is "
                                "touched"));
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G --guaranteed "
                  "--overcommit")
                  .status,
              2);
}

TEST_F(verbs, create_repeats_what_the_kernels_log_says)
{
    write_file(kernel_.dev() / "kmsg", "6,1,1,-;emuv: an old line\n");
    kernel_.log_on_failure = "3,2,2,-;emuv: gpu_model: not like that\n";
    kernel_.fail(EMUV_IOC_CREATE, EINVAL);
    const auto result = run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(result.err,
              message("create", "the driver refuses these values") +
                  message("create", "the kernel's log says: emuv: gpu_model: "
                                    "not like that"));
}

TEST_F(verbs, create_warns_of_more_vram_than_the_card_has)
{
    const auto result =
        run("create --gpu-model 4060 --physical 16G --virtual 0");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out, node(0) + "\n");
    EXPECT_EQ(result.err,
              message("create", "warning: 16 GiB of physical VRAM is more than "
                                "the 8 GiB that NVIDIA GeForce RTX 4060 has"));
    EXPECT_EQ(run("create --gpu-model 3080 --physical 12G --virtual 0").err, "")
        << "the larger of the cards of that name has as much";
}

TEST_F(verbs, create_waits_for_the_node)
{
    kernel_.make_nodes = false;
    on_wait_ = [this] { write_file(node(0), ""); };
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G").status, 0);
    EXPECT_EQ(waits_, 1);
}

TEST_F(verbs, create_gives_up_on_a_node_that_never_comes)
{
    kernel_.make_nodes = false;
    const auto result = run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("did not appear"));
    EXPECT_EQ(kernel_.instance_count(), 0U);
    EXPECT_LT(now_, 6);
}

TEST_F(verbs, create_waits_for_udev_but_not_forever)
{
    const auto queue = kernel_.root() / "run/udev/queue";
    write_file(queue, "");
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G").status, 0);
    EXPECT_GT(now_, 1);
    EXPECT_LT(now_, 3);
}

TEST_F(verbs, create_loads_the_module_if_need_be)
{
    kernel_.remove();
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 2G").status, 0);
    EXPECT_EQ(kernel_.loaded_with, "");
    kernel_.remove();
    kernel_.file.reset();
    const auto result = run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err,
              message("create", "there is no module emuv for the running "
                                "kernel; install it, or name its file with "
                                "--module"));
}

TEST_F(verbs, create_takes_a_module_that_somebody_else_loads_meanwhile)
{
    kernel_.remove();
    kernel_.fail_load(EEXIST);
    // The other one's module comes a moment later than its name is taken.
    const auto result = run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("the emuv module is not loaded"));
}

TEST_F(verbs, create_needs_the_control_node)
{
    kernel_.remove();
    kernel_.insert();
    std::filesystem::remove(kernel_.dev() / "emuv-control");
    const auto result = run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("is devtmpfs mounted there?"));
}

TEST_F(verbs, create_with_dry_run_changes_nothing)
{
    const auto result =
        run("create --gpu-model 4070 --virtual 2G --count 2 --dry-run");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out, "would create " + node(0) +
                              ": 4070, 12 GiB + 2 GiB\n" + "would create " +
                              node(1) + ": 4070, 12 GiB + 2 GiB\n");
    EXPECT_EQ(kernel_.instance_count(), 0U);
    EXPECT_EQ(kernel_.open_files(), 0U);
}

// destroy

TEST_F(verbs, destroy_removes_what_it_names)
{
    run("create --gpu-model 4070 --virtual 2M --count 4");
    const auto result =
        run_words({"destroy", "emuv0", "2", "/dev/emuv3", "emuv0"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out + result.err, "");
    EXPECT_EQ(kernel_.instance_count(), 1U);
    EXPECT_EQ(run("destroy --all").status, 0);
    EXPECT_EQ(kernel_.instance_count(), 0U);
    EXPECT_EQ(run("destroy --all").status, 0);
}

TEST_F(verbs, destroy_says_that_there_is_no_such_instance)
{
    run("create --gpu-model 4070 --virtual 2M");
    const auto result = run("destroy 0 emuv3");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err, message("destroy", "emuv3: no such instance"));
    EXPECT_EQ(kernel_.instance_count(), 1U) << "all or none";
}

TEST_F(verbs, destroy_says_who_uses_an_instance)
{
    run("create --gpu-model 4070 --virtual 2M --count 2");
    const int first = kernel_.open_as(1, 100, "python");
    const int second = kernel_.open_as(1, 200, "bad\x1bname");
    const auto result = run("destroy 0 1");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err, message("destroy", "emuv1: in use by 2 clients: 100 "
                                             "python, 200 bad?name"));
    EXPECT_EQ(kernel_.instance_count(), 2U) << "all or none";
    kernel_.close(first);
    kernel_.close(second);
    EXPECT_EQ(run("destroy 0 1").status, 0);
}

TEST_F(verbs, destroy_says_that_memory_is_held_without_a_client)
{
    run("create --gpu-model 4070 --virtual 2M");
    kernel_.fail(EMUV_IOC_DESTROY, EBUSY);
    const auto result = run("destroy 0");
    EXPECT_EQ(result.err, message("destroy", "emuv0: in use: a mapping or an "
                                             "exported region holds memory of "
                                             "it"));
}

TEST_F(verbs, destroy_with_dry_run_changes_nothing)
{
    run("create --gpu-model 4070 --virtual 2M");
    const auto result = run("destroy --all --dry-run");
    EXPECT_EQ(result.out, "would destroy emuv0: 4070, 12 GiB + 2 MiB\n");
    EXPECT_EQ(kernel_.instance_count(), 1U);
}

TEST_F(verbs, destroy_with_force_takes_instances_from_their_users)
{
    run("create --gpu-model 4070 --virtual 2M --count 2");
    const int user = kernel_.open_as(1, 100, "python");
    EXPECT_EQ(run("destroy --force --all --dry-run").out,
              "would destroy emuv0: 4070, 12 GiB + 2 MiB\n"
              "would destroy emuv1: 4070, 12 GiB + 2 MiB, used by 1 client: "
              "100 python\n");
    EXPECT_EQ(kernel_.instance_count(), 2U);
    const auto result = run("destroy --force 1");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out + result.err, "");
    EXPECT_EQ(kernel_.instance_count(), 1U);
    kernel_.close(user);
    EXPECT_EQ(run("destroy --force emuv1").err,
              message("destroy", "emuv1: no such instance"));
}

TEST_F(verbs, resize_changes_the_sizes_that_are_given)
{
    run("create --gpu-model 4070 --virtual 2G --count 2");
    const auto sizes = [this] {
        return run("list -o physical_bytes,virtual_bytes --raw --noheadings 1")
            .out;
    };
    auto result = run("resize 1 --physical 16G");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out + result.err, "");
    EXPECT_EQ(sizes(), "16G 2G\n");
    EXPECT_EQ(run("modify emuv1 --virtual 48G").status, 0);
    EXPECT_EQ(sizes(), "16G 48G\n");
    EXPECT_EQ(run("resize 1 --virtual 0 --physical 1G").status, 0);
    EXPECT_EQ(sizes(), "1G 0\n");
    EXPECT_EQ(run("resize 1 --virtual 4M --physical 3G --dry-run").out,
              "would resize emuv1: 1 GiB + 0 to 3 GiB + 4 MiB\n");
    EXPECT_EQ(sizes(), "1G 0\n");
}

TEST_F(verbs, resize_changes_tiers_by_themselves_and_with_sizes)
{
    run("create --gpu-model 4070 --physical 1G --virtual 2G");
    const auto tiers = [&] {
        return run("list --raw --noheadings -o physical_bytes,tier").out;
    };
    EXPECT_EQ(run("resize 0 --tier b=4G --dry-run").out,
              "would change the tiers of emuv0: none to b=4GiB\n");
    EXPECT_EQ(tiers(), "1G -\n");
    EXPECT_EQ(run("resize 0 --tier b=4G").status, 0);
    EXPECT_EQ(tiers(), "1G b=4GiB\n");
    EXPECT_EQ(run("resize 0 --physical 2G --tier b=6G --dry-run").out,
              "would resize emuv0: 1 GiB + 2 GiB to 2 GiB + 2 GiB\n"
              "would change the tiers of emuv0: b=4GiB to b=6GiB\n");
    EXPECT_EQ(run("resize 0 --physical 2G --tier b=6G").status, 0);
    EXPECT_EQ(tiers(), "2G b=6GiB\n");
    EXPECT_EQ(run("resize 0 --physical 3G").status, 0);
    EXPECT_EQ(tiers(), "3G b=6GiB\n");
    EXPECT_EQ(run("resize 0 --tier b").status, 2);
    EXPECT_EQ(run("resize 0 --virtual 3M --tier none").status, 2);
    EXPECT_EQ(tiers(), "3G b=6GiB\n");
    EXPECT_EQ(run("resize 0 --tier none").status, 0);
    EXPECT_EQ(tiers(), "3G -\n");
}

TEST_F(verbs, resize_says_what_is_wrong)
{
    run("create --gpu-model 4070 --virtual 64M");
    EXPECT_EQ(run("resize").status, 2);
    EXPECT_EQ(run("resize 0").status, 2);
    EXPECT_EQ(run("resize --virtual 2M").status, 2);
    EXPECT_EQ(run("resize 0 --virtual 3M").status, 2);
    EXPECT_EQ(run("resize 0 --virtual 0 --physical 0").status, 2);
    EXPECT_EQ(run("resize 7 --virtual 2M").err,
              message("resize", "emuv7: no such instance"));
    emuv::client own(0, kernel_.dev(), kernel_);
    own.charge(3 * gib);
    const auto region = own.alloc(32 << 20);
    EXPECT_EQ(run("resize 0 --physical 2G").err,
              message("resize", "emuv0: 3 GiB of physical VRAM are in use, and "
                                "stay so until they are freed"));
    EXPECT_EQ(run("resize 0 --virtual 16M").err,
              message("resize", "emuv0: 32 MiB of virtual VRAM are in use, and "
                                "stay so until they are freed"));
    kernel_.fail(EMUV_IOC_RESIZE, EBUSY);
    EXPECT_EQ(run("resize 0 --virtual 32M").err,
              message("resize", "emuv0: memory is in use that the new sizes "
                                "leave no place for; it never moves, and must "
                                "be freed first"));
    kernel_.promisable = 1 << 30;
    EXPECT_THAT(run("resize 0 --virtual 2G").err,
                HasSubstr("the host cannot back so much more virtual VRAM"));
    kernel_.fail(EMUV_IOC_RESIZE, ENOTTY);
    EXPECT_THAT(run("resize 0 --virtual 128M").err, HasSubstr("older"));
    EXPECT_EQ(run("resize 0 --virtual 32M --physical 3G").status, 0);
}

// containers

TEST_F(verbs, destroy_and_unload_offer_no_container_what_is_gone)
{
    run("create --gpu-model 4070 --virtual 2G --name team-a");
    run("create --gpu-model 4070 --virtual 2G --name team-b");
    const auto library = kernel_.root() / "lib";
    write_file(library / "libcuda.so.1", "");
    for (const std::string folder : {"etc/cdi", "run/cdi"})
        ASSERT_EQ(run("cdi generate --library " + library.string() +
                      " --output " + (kernel_.root() / folder).string())
                      .status,
                  0);
    const auto devices = [this] {
        std::vector<std::string> names;
        const auto document = json::parse(run("cdi list --json").out);
        for (const auto &row : document["devices"])
            names.push_back(row["device"]);
        return names;
    };
    EXPECT_EQ(devices().size(), 8U);
    const auto result = run("destroy team-a");
    EXPECT_EQ(result.out + result.err, "");
    // The name does not reach the next one with that number.
    run("create --gpu-model 4070 --virtual 2G --name team-c");
    EXPECT_THAT(devices(), testing::ElementsAre(
                               "emuv.dev/vgpu=emuv1", "emuv.dev/vgpu=team-b",
                               "emuv.dev/vgpu=emuv1", "emuv.dev/vgpu=team-b"));
    EXPECT_EQ(run("unload").status, 0);
    EXPECT_FALSE(std::filesystem::exists(kernel_.root() / "etc/cdi/emuv.json"));
    EXPECT_FALSE(std::filesystem::exists(kernel_.root() / "run/cdi/emuv.json"));
}

TEST_F(verbs, create_has_names_in_files_of_before_lead_to_their_instances)
{
    const auto library = kernel_.root() / "lib";
    write_file(library / "libcuda.so.1", "");
    for (const std::string name : {"team-a", "team-b"})
        run("create --gpu-model 4070 --virtual 2G --name " + name);
    run("create --gpu-model 4070 --virtual 2G --count 3");
    ASSERT_EQ(run("cdi generate --library " + library.string() + " --output " +
                  (kernel_.root() / "etc/cdi").string())
                  .status,
              0);
    const auto devices = [this] {
        std::vector<std::string> rows;
        const auto document = json::parse(run("cdi list --json").out);
        for (const auto &row : document["devices"])
            rows.push_back(row["device"].get<std::string>().substr(14) + " " +
                           row["instance"].get<std::string>() + " " +
                           row["state"].get<std::string>());
        return rows;
    };
    // A restart: all instances are gone, and the file stays.
    emuv::control control(kernel_.dev(), kernel_);
    for (int id = 0; id < 5; id++)
        control.destroy(id);
    // By emuv0 a container of team-a's would reach team-b's memory.
    run("create --gpu-model 4070 --virtual 2G --name team-b");
    EXPECT_THAT(devices(),
                testing::ElementsAre("emuv0 emuv0 ok", "emuv1 emuv1 gone",
                                     "team-b emuv0 ok", "emuv2 emuv2 gone",
                                     "emuv3 emuv3 gone", "emuv4 emuv4 gone"));
    // A removal drops all devices without instances.
    run("destroy team-b");
    EXPECT_FALSE(std::filesystem::exists(kernel_.root() / "etc/cdi/emuv.json"));
}

TEST_F(verbs, containers_begin_with_the_tiers_that_resize_has_given)
{
    const auto library = kernel_.root() / "lib";
    write_file(library / "libcuda.so.1", "");
    run("create --gpu-model 4070 --virtual 2G --count 2");
    const auto file = kernel_.root() / "run/cdi/emuv.json";
    ASSERT_EQ(run("cdi generate --library " + library.string() + " --output " +
                  file.parent_path().string())
                  .status,
              0);
    const auto variables = [&] {
        return json::parse(
            emuv_test::read_whole(file))["devices"][0]["containerEdits"]["env"];
    };
    EXPECT_EQ(run("resize 0 --tier emuv1=1G").err, "");
    EXPECT_EQ(variables(), json({"EMUV_INSTANCE=0,1",
                                 "EMUV_TIER_DEFAULT=peer:1=1073741824"}));
    EXPECT_EQ(run("resize 0 --tier none").err, "");
    EXPECT_EQ(variables(), json({"EMUV_INSTANCE=0"}));
    const auto lent =
        json({"EMUV_INSTANCE=0,1", "EMUV_TIER_DEFAULT=peer:1=1073741824"});
    run("resize 0 --tier emuv1=1G");
    EXPECT_EQ(variables(), lent);
    run("destroy 1");
    EXPECT_EQ(variables(), json({"EMUV_INSTANCE=0"}));
    // The next one with that number has lent nothing.
    run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(variables(), json({"EMUV_INSTANCE=0"}));
    const auto begin = [&] {
        return run("run --library " + library.string() +
                   " --instance 0 --dry-run -- true");
    };
    const std::string why =
        "a tier of emuv0: emuv1: another instance has that number now";
    EXPECT_EQ(begin().status, 125);
    EXPECT_THAT(begin().err, HasSubstr(why + "; --tier none"));
    EXPECT_THAT(run("container-args --library " + library.string() + " 0").err,
                HasSubstr(why + "; its containers begin without tiers"));
    EXPECT_THAT(run("export").out, Not(HasSubstr("tier=")));
    // By whoever made and destroyed it.
    emuv::control(kernel_.dev(), kernel_).destroy(1);
    run("resize 0 --tier emuv1=1G");
    run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(variables(), lent) << "an instance need not exist before";
    emuv::control(kernel_.dev(), kernel_).destroy(1);
    run("create --gpu-model 4070 --virtual 2G");
    EXPECT_EQ(variables(), json({"EMUV_INSTANCE=0"}));
    run("resize 0 --tier emuv1=1G");
    EXPECT_EQ(variables(), lent) << "it lends from now on";
    EXPECT_EQ(begin().status, 0);
}

TEST_F(verbs, what_create_cannot_take_back_is_reached_by_nobody_else_s_name)
{
    const auto library = kernel_.root() / "lib";
    write_file(library / "libcuda.so.1", "");
    run("create --gpu-model 4070 --virtual 2G --name team-a");
    ASSERT_EQ(run("cdi generate --library " + library.string() + " --output " +
                  (kernel_.root() / "etc/cdi").string())
                  .status,
              0);
    // A restart.
    emuv::control(kernel_.dev(), kernel_).destroy(0);
    kernel_.fail(EMUV_IOC_CREATE, ENOSPC, 1);
    kernel_.fail(EMUV_IOC_DESTROY, EBUSY);
    ASSERT_EQ(run("create --gpu-model 4070 --virtual 2G --count 2").status, 1);
    ASSERT_EQ(kernel_.instance_count(), 1U);
    const auto rows = json::parse(run("cdi list --json").out)["devices"];
    ASSERT_EQ(rows.size(), 1U) << rows;
    EXPECT_EQ(rows[0]["device"], "emuv.dev/vgpu=emuv0");
}

TEST_F(verbs, destroy_leaves_a_file_alone_that_somebody_else_wrote)
{
    run("create --gpu-model 4070 --virtual 2G");
    const auto file = kernel_.root() / "etc/cdi/emuv.json";
    write_file(file, "{}");
    const auto result = run("destroy 0");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err,
              message("destroy", "warning: containers may still be offered "
                                 "what is gone: " +
                                     file.string() +
                                     ": this is no specification of "
                                     "emuv.dev/vgpu; it is left alone"));
    EXPECT_EQ(emuv_test::read_whole(file), "{}");
}

TEST_F(verbs, info_tells_the_container_of_a_client)
{
    run("create --gpu-model 4070 --virtual 2G");
    const int inside = kernel_.open_as(0, 77, "trainer");
    const int outside = kernel_.open_as(0, 78, "top");
    const std::string id(64, 'a');
    write_file(kernel_.proc() / "77/cgroup",
               "0::/machine.slice/libpod-" + id + ".scope/container\n");
    write_file(kernel_.proc() / "78/cgroup",
               "0::/user.slice/session-1.scope\n");
    const auto list =
        json::parse(run("info --json").out)["instances"][0]["client_list"];
    EXPECT_EQ(list[0]["container"], "podman aaaaaaaaaaaa");
    EXPECT_EQ(list[1]["container"], nullptr);
    EXPECT_THAT(run("info").out,
                AllOf(HasSubstr("    77 trainer: 0 VRAM, 0 RAM, in podman "
                                "aaaaaaaaaaaa\n"),
                      HasSubstr("    78 top: 0 VRAM, 0 RAM\n")));
    kernel_.close(inside);
    kernel_.close(outside);
}

TEST(process_container, is_found_by_each_engine_s_control_groups)
{
    const std::string id = "0123456789abcdef0123456789abcdef"
                           "0123456789abcdef0123456789abcdef";
    const std::string pod = "0::/kubepods.slice/kubepods-pod1.slice/";
    for (const auto &[text, expected] :
         std::vector<std::pair<std::string, std::string>>{
             {"0::/machine.slice/libpod-ID.scope/container", "podman ID"},
             {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/"
              "libpod-ID.scope/container",
              "podman ID"},
             {"0::/libpod_parent/libpod-ID", "podman ID"},
             {"0::/system.slice/docker-ID.scope", "docker ID"},
             {"12:devices:/docker/ID\n11:memory:/docker/ID", "docker ID"},
             {"1:name=systemd:/\n0::/docker/ID", "docker ID"},
             {pod + "cri-containerd-ID.scope", "containerd ID"},
             {pod + "crio-ID.scope", "cri-o ID"},
             {"0::/kubepods/burstable/pod12-34/ID", "kubernetes ID"},
             {"0::/system.slice/docker-" + std::string(64, 'b') +
                  ".scope/docker/ID",
              "docker ID"}, // the inner one
             {"0::/lxc.payload.web/init.scope", "lxc web"},
             {"0::/machine.slice/systemd-nspawn@deb.service/payload",
              "nspawn deb"},
             {"0::/machine.slice/libpod-conmon-ID.scope", ""},
             {"0::/machine.slice/libpod-12ab.scope", ""},
             {"0::/user.slice/ID", ""},
             {"0::/", ""},
             {"", ""},
             {"text", ""}}) {
        std::string group = text;
        for (std::size_t at = 0;
             (at = group.find("ID", at)) != std::string::npos;)
            group.replace(at, 2, id);
        std::string shown = expected;
        if (const auto at = shown.find("ID"); at != std::string::npos)
            shown.replace(at, 2, id.substr(0, 12));
        EXPECT_EQ(emuvctl::parse_cgroup(group).text(), shown) << group;
    }
}

// load and unload

TEST_F(verbs, load_passes_parameters_and_prints_the_nodes)
{
    kernel_.remove();
    const auto result =
        run("load gpu_model=4070 physical_vram_gb=12 virtual_vram_gb=2");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, node(0) + "\n");
    EXPECT_EQ(kernel_.loaded_with,
              "gpu_model=4070 physical_vram_gb=12 virtual_vram_gb=2");
}

TEST_F(verbs, load_without_parameters_makes_no_instance)
{
    kernel_.remove();
    const auto result = run("load");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(json::parse(run("list --json").out)["instances"].size(), 0U);
}

TEST_F(verbs, load_quotes_values_with_blanks)
{
    kernel_.remove();
    run_words({"load", "gpu_model=RTX 4070", "virtual_vram_gb=2"});
    EXPECT_EQ(kernel_.loaded_with, "gpu_model=\"RTX 4070\" virtual_vram_gb=2");
}

TEST_F(verbs, load_refuses_parameters_that_the_module_does_not_have)
{
    kernel_.remove();
    const auto result = run("load gpu=4070");
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(
        result.err,
        StartsWith(message("load", "unknown parameter 'gpu'; the module has "
                                   "gpu_model, physical_vram_gb, "
                                   "virtual_vram_gb")));
    EXPECT_EQ(run_words({"load", "gpu_model=a\"b"}).status, 2);
    EXPECT_EQ(kernel_.loaded_with, "");
}

TEST_F(verbs, load_says_that_the_module_is_there)
{
    const auto again = run("load");
    EXPECT_EQ(again.status, 0);
    EXPECT_EQ(again.err,
              message("load", "the module is loaded already (0.1.0)"));
    const auto other = run("load gpu_model=4070");
    EXPECT_EQ(other.status, 1) << "its parameters would be ignored";
    EXPECT_THAT(other.err, HasSubstr("takes parameters only when it is "
                                     "loaded"));
}

TEST_F(verbs, load_words_what_the_kernel_says)
{
    const std::vector<std::pair<int, std::string>> cases = {
        {EPERM, "takes root's rights"},
        {EKEYREJECTED, "refuses its signature"},
        {ENOKEY, "refuses its signature"},
        {ENOEXEC, "not a module for the running kernel"},
        {ENOENT, "built for another one"},
        {ENOSYS, "without loadable modules"},
        {EINVAL, "refuses its parameters"},
        {ENOMEM, "cannot allocate memory"},
    };
    for (const auto &[errnum, text] : cases) {
        kernel_.remove();
        kernel_.fail_load(errnum);
        const auto result = run("load");
        EXPECT_EQ(result.status, 1);
        EXPECT_THAT(result.err,
                    AllOf(StartsWith("emuvctl: load: "), HasSubstr(text)));
    }
}

TEST_F(verbs, load_with_dry_run_changes_nothing)
{
    kernel_.remove();
    EXPECT_EQ(run("load --dry-run gpu_model=4070").out,
              "would load /lib/modules/6.1.0-test/extra/emuv.ko with "
              "gpu_model=4070\n");
    EXPECT_FALSE(emuv::sysfs(kernel_.sys()).loaded());
}

TEST_F(verbs, unload_takes_idle_instances_with_it)
{
    run("create --gpu-model 4070 --virtual 2M --count 2");
    const auto result = run("unload");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_FALSE(emuv::sysfs(kernel_.sys()).loaded());
    const auto again = run("unload");
    EXPECT_EQ(again.status, 0);
    EXPECT_EQ(again.err, message("unload", "the module is not loaded"));
}

TEST_F(verbs, unload_says_who_uses_which_instance)
{
    run("create --gpu-model 4070 --virtual 2M --count 3");
    const int first = kernel_.open_as(0, 100, "python");
    const int second = kernel_.open_as(2, 200, "train");
    const auto result = run("unload");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err,
              message("unload", "in use: emuv0 (1 client: 100 python), emuv2 "
                                "(1 client: 200 train)"));
    EXPECT_EQ(kernel_.instance_count(), 3U);
    const auto dry = run("unload --dry-run");
    EXPECT_EQ(dry.status, 1) << "what would fail";
    EXPECT_EQ(dry.err, result.err);
    EXPECT_EQ(dry.out, "");
    kernel_.close(first);
    kernel_.close(second);
}

// apply, assert, export

TEST_F(verbs, apply_makes_what_is_missing_and_only_that)
{
    const auto file = profiles(two_profiles);
    const auto first = run("apply --config " + file + " --raw");
    EXPECT_EQ(first.status, 0) << first.err;
    EXPECT_EQ(first.out, "ACTION NAME PROFILE MODEL PHYSICAL VIRTUAL\n"
                         "create emuv1 a 4070 6G 2G\n"
                         "create emuv2 a 4070 6G 2G\n"
                         "create emuv0 b 4090 8G 1G\n");
    const auto again = run("apply --config " + file + " --raw");
    EXPECT_EQ(again.status, 0);
    EXPECT_EQ(again.out, "ACTION NAME PROFILE MODEL PHYSICAL VIRTUAL\n"
                         "keep emuv1 a 4070 6G 2G\n"
                         "keep emuv2 a 4070 6G 2G\n"
                         "keep emuv0 b 4090 8G 1G\n");
    run("destroy emuv1");
    EXPECT_THAT(run("apply --config " + file + " --raw").out,
                AllOf(HasSubstr("keep emuv2 a"), HasSubstr("create emuv1 a"),
                      HasSubstr("keep emuv0 b")));
    EXPECT_EQ(run("assert --config " + file).status, 0);
}

TEST_F(verbs, apply_undoes_what_it_made_when_it_fails)
{
    const auto file = profiles(two_profiles);
    kernel_.fail(EMUV_IOC_CREATE, ENOSPC, 2);
    const auto result = run("apply --config " + file);
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(kernel_.instance_count(), 0U);
}

TEST_F(verbs, apply_changes_nothing_where_an_id_is_taken_otherwise)
{
    run("create --gpu-model 4070 --virtual 2M --id 0");
    const auto result = run("apply --config " + profiles(two_profiles));
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err,
              message("apply", "emuv0: [b] wants 4090, 8 GiB + 1 GiB, and it "
                               "is 4070, 12 GiB + 2 MiB") +
                  message("apply", "nothing was changed; 'emuvctl destroy' "
                                   "makes room"));
    EXPECT_EQ(kernel_.instance_count(), 1U);
}

TEST_F(verbs, apply_knows_a_card_by_all_its_names)
{
    run_words({"create", "--gpu-model", "GeForce RTX 4070", "--physical", "6G",
               "--virtual", "2G", "--count", "2"});
    const auto result =
        run("apply --raw --noheadings -o action,name --config " +
            profiles(two_profiles.substr(0, two_profiles.find("[b]"))));
    EXPECT_EQ(result.out, "keep emuv0\nkeep emuv1\n");
}

TEST_F(verbs, apply_with_dry_run_says_what_it_then_does)
{
    const auto file = profiles(two_profiles);
    const auto plan =
        json::parse(run("apply --dry-run --json --config " + file).out);
    EXPECT_EQ(plan["dry_run"], true);
    EXPECT_EQ(kernel_.instance_count(), 0U);
    const auto done = json::parse(run("apply --json --config " + file).out);
    EXPECT_EQ(done["dry_run"], false);
    EXPECT_EQ(plan["actions"], done["actions"]);
    EXPECT_EQ(done["actions"].size(), 3U);
}

TEST_F(verbs, apply_loads_the_module_only_if_something_is_missing)
{
    kernel_.remove();
    EXPECT_EQ(run("apply --config " + profiles("")).status, 0);
    EXPECT_FALSE(emuv::sysfs(kernel_.sys()).loaded());
    EXPECT_EQ(run("apply --config " + profiles(two_profiles)).status, 0);
    EXPECT_TRUE(emuv::sysfs(kernel_.sys()).loaded());
}

TEST_F(verbs, apply_tells_all_errors_of_the_file_and_changes_nothing)
{
    const auto file = profiles(two_profiles + "foo=1\nbar\n");
    const auto result = run("apply --config " + file);
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(
        result.err,
        AllOf(HasSubstr("emuvctl: apply: " + file + ":11: unknown key 'foo'"),
              HasSubstr("emuvctl: apply: " + file + ":12: neither")));
    EXPECT_EQ(kernel_.instance_count(), 0U);
}

TEST_F(verbs, assert_fails_and_lists_each_difference)
{
    const auto file = profiles(two_profiles);
    run("apply --config " + file);
    run("destroy emuv0 emuv2");
    run("create --gpu-model 4090 --physical 1G --virtual 2M --id 0");
    run("create --gpu-model 4060 --virtual 2M --id 9");
    const auto result = run("assert --json --config " + file);
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("in 3 places"));
    const auto document = json::parse(result.out);
    EXPECT_EQ(document["match"], false);
    std::map<std::string, json> by_kind;
    for (const auto &one : document["differences"])
        by_kind[one["difference"]] = one;
    EXPECT_EQ(by_kind["missing"]["profile"], "a");
    EXPECT_EQ(by_kind["different"]["name"], "emuv0");
    EXPECT_EQ(by_kind["different"]["wanted"], "4090, 8 GiB + 1 GiB");
    EXPECT_EQ(by_kind["different"]["found"], "4090, 1 GiB + 2 MiB");
    EXPECT_EQ(by_kind["extra"]["name"], "emuv9");
}

TEST_F(verbs, export_and_apply_are_an_identity)
{
    run_words({"create", "--gpu-model", "RTX 4070 Ti", "--physical", "1000",
               "--virtual", "6M", "--id", "3", "--pci-device-id", "0x2782"});
    run("create --gpu-model 4090 --virtual 2G --numa-node 0 --count 2");
    run_words({"create", "--gpu-model", "x=[y]: z", "--physical", "1.5T",
               "--virtual", "0"});
    const auto exported = run("export");
    ASSERT_EQ(exported.status, 0);
    const auto file = profiles(exported.out);
    EXPECT_EQ(run("assert --config " + file).status, 0);
    EXPECT_EQ(run("destroy --all").status, 0);
    EXPECT_EQ(run("assert --config " + file).status, 1);
    EXPECT_EQ(run("apply --config " + file).status, 0);
    EXPECT_EQ(run("assert --config " + file).status, 0);
    EXPECT_EQ(run("export").out, exported.out);
}

TEST_F(verbs, export_asks_for_overcommit_where_the_host_has_too_little)
{
    // The host has 32 GiB, and the floor is 1 GiB.
    run("create --gpu-model 4070 --virtual 31G");
    EXPECT_EQ(run("export").out.find("overcommit"), std::string::npos);
    run("create --gpu-model 4070 --virtual 2M --overcommit");
    run("create --gpu-model 4070 --virtual 0");
    const auto text = run("export").out;
    kernel_.promisable = 31 * gib;
    run("destroy --all");
    EXPECT_EQ(run("apply --config " + profiles(text)).status, 0);
    EXPECT_EQ(run("export").out, text);
}

TEST_F(verbs, what_was_exported_can_be_applied_in_any_order_of_promises)
{
    kernel_.promisable = 31 * gib;
    ASSERT_EQ(
        run("create --gpu-model 4070 --virtual 40G --overcommit --id 0").status,
        0);
    run("destroy emuv0");
    ASSERT_EQ(
        run("create --gpu-model 4070 --virtual 20G --guaranteed --id 5").status,
        0);
    ASSERT_EQ(
        run("create --gpu-model 4070 --virtual 40G --overcommit --id 0").status,
        0);
    const auto text = run("export").out;
    run("destroy --all");
    const auto again = run("apply --config " + profiles(text));
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(run("export").out, text);
    // One alone fits, but not beside those that are there still.
    run("destroy emuv0");
    run("create --gpu-model 4070 --virtual 12G --overcommit --id 0");
    const auto one = run("export emuv0").out;
    run("destroy emuv0");
    EXPECT_EQ(run("apply --config " + profiles(one)).status, 0) << one;
    run("destroy emuv0");
    run("apply --config " + profiles(text));
    // Another machine has a little less, or something of it is there already.
    run("destroy emuv0");
    EXPECT_EQ(run("apply --config " + profiles(text)).status, 0);
}

TEST_F(verbs, apply_leaves_an_id_to_the_profile_that_wants_it)
{
    const auto result =
        run("apply --raw --config " +
            profiles("[must]\ngpu_model=4070\nphysical_vram_gb=6\n"
                     "virtual_vram_gb=2\ninstance_id=0\novercommit=yes\n"
                     "[any]\ngpu_model=4070\nphysical_vram_gb=6\n"
                     "virtual_vram_gb=2\n"));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("create emuv0 must"),
                                  HasSubstr("create emuv1 any")));
}

TEST_F(verbs, apply_names_the_profile_that_the_host_cannot_back)
{
    kernel_.promisable = 31 * gib;
    const std::string section = "[large]\ngpu_model=4070\nphysical_vram_gb=6\n"
                                "virtual_vram_gb=64\n";
    for (const std::string more : {"", " --dry-run"}) {
        const auto result =
            run("apply --config " + profiles(two_profiles + section) + more);
        EXPECT_EQ(result.status, 1);
        EXPECT_EQ(result.err,
                  message("apply",
                          "[large] wants 64 GiB of virtual VRAM: of the 31 GiB "
                          "that the host can back, 5 GiB are promised to "
                          "others; 'overcommit=yes' in [large] promises it all "
                          "the same"));
        EXPECT_EQ(kernel_.instance_count(), 0U);
    }
    // The advice works.
    const auto result =
        run("apply --config " +
            profiles(two_profiles + section + "overcommit=yes\n"));
    EXPECT_EQ(result.status, 0) << result.err;
}

// The card that is here

TEST_F(verbs, create_takes_model_and_vram_of_the_card_that_is_here)
{
    const auto none = run("create --virtual 2G");
    EXPECT_EQ(none.status, 2);
    EXPECT_THAT(none.err, HasSubstr("there is no NVIDIA card here"));
    add_card();
    ASSERT_EQ(run("create --virtual 2G").status, 0);
    auto info = emuv::control(kernel_.dev(), kernel_).query(0);
    EXPECT_EQ(info.gpu_model, "NVIDIA GeForce RTX 4070");
    EXPECT_EQ(info.physical_bytes, 12 * gib);
    // NVML knows exactly what there is.
    nvml_ = {true,
             "",
             "580.159.03",
             {{"0000:01:00.0", "NVIDIA GeForce RTX 4070", 12282ULL << 20U,
               0x2786, 0}}};
    ASSERT_EQ(run("create --virtual 2G").status, 0);
    info = emuv::control(kernel_.dev(), kernel_).query(1);
    EXPECT_EQ(info.physical_bytes, 12282ULL << 20U);
    ASSERT_EQ(run("create --physical 1G --virtual 2G").status, 0);
    info = emuv::control(kernel_.dev(), kernel_).query(2);
    EXPECT_EQ(info.gpu_model, "NVIDIA GeForce RTX 4070");
    EXPECT_EQ(info.physical_bytes, gib);
}

TEST_F(verbs, create_asks_which_card_where_they_differ)
{
    add_card();
    nvml_.cards = {
        {"0000:02:00.0", "NVIDIA H200", 143771ULL << 20U, 0x2335, 1}};
    const auto result = run("create --virtual 2G");
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("the cards here differ (NVIDIA GeForce RTX "
                                "4070, 12 GiB; NVIDIA H200, 140.4 GiB)"),
                      HasSubstr("give --gpu-model")));
}

TEST_F(verbs, create_settles_what_a_name_leaves_open_by_the_card_that_is_here)
{
    EXPECT_EQ(run("create --gpu-model 3080 --virtual 2G").status, 2);
    add_card("16", "0x220a");
    ASSERT_EQ(run("create --gpu-model 3080 --virtual 2G").status, 0);
    EXPECT_EQ(emuv::control(kernel_.dev(), kernel_).query(0).physical_bytes,
              12 * gib);
}

TEST_F(verbs, profiles_may_leave_model_and_vram_to_the_card)
{
    const auto file = profiles("[small]\nvirtual_vram_gb=2\n"
                               "[other]\ngpu_model=4090\nvirtual_vram_gb=1\n");
    const auto none = run("apply --config " + file);
    EXPECT_EQ(none.status, 1);
    EXPECT_THAT(none.err, HasSubstr("[small] at " + file +
                                    ":1 has no gpu_model, and there is no "
                                    "NVIDIA card here"));
    EXPECT_EQ(run("profile list --config " + file + " --raw").status, 0);
    EXPECT_EQ(run("profile show --config " + file + " small").out,
              "[small]\nvirtual_vram_gb=2\n");
    add_card();
    ASSERT_EQ(run("apply --config " + file).status, 0);
    const auto info = emuv::control(kernel_.dev(), kernel_).query(0);
    EXPECT_EQ(info.gpu_model, "NVIDIA GeForce RTX 4070");
    EXPECT_EQ(info.physical_bytes, 12 * gib);
    EXPECT_EQ(emuv::control(kernel_.dev(), kernel_).query(1).physical_bytes,
              24 * gib);
    EXPECT_EQ(run("assert --config " + file).status, 0);
    EXPECT_EQ(run("create --config " + file + " --profile small").status, 0);
}

TEST_F(verbs, gpu_list_marks_the_card_that_is_here)
{
    EXPECT_THAT(run("gpu list 4070 --raw").out, Not(HasSubstr("HERE")));
    add_card();
    const auto result = run("gpu list rtx --raw -o name,here");
    EXPECT_THAT(result.out,
                AllOf(HasSubstr("NVIDIA\\x20GeForce\\x20RTX\\x204070 "
                                "your\\x20card\n"),
                      HasSubstr("4070\\x20SUPER -\n")));
    EXPECT_THAT(run("gpu list 4070").out, HasSubstr("your card"));
}

// load: of what is no module

class module_file : public verbs
{
protected:
    void SetUp() override
    {
        verbs::SetUp();
        kernel_.remove();
    }

    // The sections of a module's file, with this .modinfo, or with none.
    static std::string object(const std::string &info)
    {
        const std::string names("\0.modinfo\0.shstrtab\0", 20);
        Elf64_Ehdr head = {};
        std::memcpy(head.e_ident, ELFMAG, SELFMAG);
        head.e_ident[EI_CLASS] = ELFCLASS64;
        head.e_ident[EI_DATA] = ELFDATA2LSB;
        head.e_type = ET_REL;
        head.e_machine = EM_X86_64;
        head.e_shentsize = sizeof(Elf64_Shdr);
        head.e_shoff = sizeof(head) + names.size() + info.size();
        std::vector<Elf64_Shdr> sections(info.empty() ? 2 : 3);
        head.e_shnum = static_cast<Elf64_Half>(sections.size());
        head.e_shstrndx = 1;
        sections[1].sh_name = 10;
        sections[1].sh_type = SHT_STRTAB;
        sections[1].sh_offset = sizeof(head);
        sections[1].sh_size = names.size();
        if (!info.empty()) {
            sections[2].sh_name = 1;
            sections[2].sh_type = SHT_PROGBITS;
            sections[2].sh_offset = sizeof(head) + names.size();
            sections[2].sh_size = info.size();
        }
        std::string text(reinterpret_cast<const char *>(&head), sizeof(head));
        text += names + info;
        text.append(reinterpret_cast<const char *>(sections.data()),
                    sections.size() * sizeof(Elf64_Shdr));
        return text;
    }

    static std::string info(const std::string &name, const std::string &release)
    {
        return "license=GPL" + std::string(1, '\0') + "name=" + name +
               std::string(1, '\0') + "vermagic=" + release + " SMP " +
               std::string(1, '\0');
    }

    std::string told_of(const std::string &text)
    {
        const auto path = kernel_.root() / "some.ko";
        write_file(path, text);
        const auto result = run("load --module " + path.string());
        EXPECT_EQ(kernel_.loaded_with, "");
        const std::string start = "emuvctl: load: " + path.string() + ": ";
        EXPECT_THAT(result.err, StartsWith(start));
        EXPECT_EQ(result.status, 1);
        return result.err.substr(std::min(start.size(), result.err.size()));
    }
};

TEST_F(module_file, load_says_what_a_file_is_that_is_no_module)
{
    EXPECT_EQ(told_of(""), "an empty file\n");
    EXPECT_EQ(told_of("root:x:0:0\n"), "no ELF file, so not a kernel module\n");
    EXPECT_EQ(told_of("#!/bin/sh\n"), "a script, not a kernel module\n");
    EXPECT_EQ(told_of(object("")),
              "an object file, not a kernel module: it has no .modinfo\n");
    EXPECT_EQ(told_of(object(info("ext4", "6.1.0-test"))),
              "the kernel module ext4, not emuV's\n");
    std::string program = object("");
    program[offsetof(Elf64_Ehdr, e_type)] = ET_DYN;
    EXPECT_EQ(told_of(program),
              "a program or shared library of x86-64, not a kernel module\n");
    EXPECT_EQ(run("load --module " + kernel_.root().string()).err,
              message("load", kernel_.root().string() +
                                  ": a folder, not a kernel module"));
}

TEST_F(module_file, load_says_that_a_module_is_cut_off)
{
    const std::string whole = object(info("emuv", "6.1.0-test"));
    for (const std::size_t bytes :
         {std::size_t{10}, std::size_t{100}, whole.size() - 1})
        EXPECT_THAT(told_of(whole.substr(0, bytes)),
                    StartsWith("an ELF file that is cut off: it has " +
                               std::to_string(bytes) + " of at least "));
}

// A kernel with versions of symbols takes modules of another release.
TEST_F(module_file, load_leaves_the_release_to_the_kernel)
{
    const std::string other = object(info("emuv", "6.12.1"));
    kernel_.fail_load(ENOEXEC);
    EXPECT_EQ(told_of(other),
              "emuV's module for 6.12.1, and 6.1.0-test is running\n");
    const auto path = kernel_.root() / "some.ko";
    const auto result = run("load --module " + path.string());
    EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(module_file, load_takes_a_module_for_this_kernel)
{
    const auto path = kernel_.root() / "emuv.ko";
    write_file(path, object(info("emuv", "6.1.0-test")));
    const auto result = run("load --module " + path.string());
    EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(module_file, no_damage_to_a_file_is_taken_for_a_module)
{
    const std::string whole = object(info("emuv", "6.1.0-test"));
    for (std::size_t i = 0; i < whole.size(); i++)
        for (const char by : {'\0', '\xff'}) {
            std::string damaged = whole;
            damaged[i] = by;
            const auto path = kernel_.root() / "some.ko";
            write_file(path, damaged);
            // No crash, and one line at most.
            const auto result = run("load --dry-run --module " + path.string());
            EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 1)
                << i;
        }
}

// Sorted, filtered and coloured listings

TEST_F(verbs, list_sorts_and_filters)
{
    run("create --gpu-model 4070 --virtual 2G --id 10");
    run("create --gpu-model 4090 --virtual 4G --id 2");
    run("create --gpu-model 4090 --virtual 2G --id 3");
    const std::string list = "list --raw --noheadings -o name ";
    EXPECT_EQ(run(list + "--sort name").out, "emuv2\nemuv3\nemuv10\n");
    EXPECT_EQ(run(list + "--sort=-virtual_bytes,-name").out,
              "emuv2\nemuv10\nemuv3\n");
    EXPECT_EQ(run(list + "--filter virtual_bytes>=4G").out, "emuv2\n");
    EXPECT_EQ(run(list + "--filter gpu_model=4090,virtual<3G").out, "emuv3\n");
    EXPECT_EQ(run(list + "--filter gpu~4070").out, "emuv10\n");
    EXPECT_EQ(run(list + "--filter numa!=0 --sort id").out,
              "emuv2\nemuv3\nemuv10\n")
        << "what has no value is not 0";
    EXPECT_EQ(run("list --filter id=3 --json -o id").out,
              "{\n  \"schema\": 1,\n  \"instances\": [\n    {\n      \"id\": "
              "3\n    }\n  ]\n}\n");
    for (const std::string wrong :
         {"id", "=3", "id!3", "id=three", "gpu_model<3", "id~3", "nothing=1"}) {
        const auto result = run("list --filter " + wrong);
        EXPECT_EQ(result.status, 2) << wrong;
        EXPECT_THAT(result.err, HasSubstr("--filter: ")) << wrong;
    }
    EXPECT_EQ(run("list --sort size").status, 2);
}

TEST_F(verbs, list_tells_how_much_is_used_in_percent)
{
    run("create --gpu-model 4070 --physical 6G --virtual 2G");
    const int fd = kernel_.open_as(0, 77, "trainer");
    emuv_charge charge = {};
    charge.size = sizeof(charge);
    charge.bytes = 6 * gib;
    ASSERT_EQ(kernel_.ioctl(fd, EMUV_IOC_CHARGE, &charge), 0);
    EXPECT_EQ(run("list --raw --noheadings -o used%").out, "75.0%\n");
    EXPECT_EQ(run("list --query=emuv.used_percent --format=csv").out,
              "emuv.used_percent [%]\n75.0 %\n");
    EXPECT_THAT(run("info").out, HasSubstr("8 GiB (6 GiB used, 75.0 %)"));
    kernel_.close(fd);
}

TEST_F(verbs, output_all_is_every_column)
{
    run("create --gpu-model 4070 --virtual 2G");
    const auto result = run("list --raw -o all");
    EXPECT_THAT(result.out, AllOf(HasSubstr("UUID"), HasSubstr("STALLED")));
    const auto text = run("list --json").out;
    EXPECT_EQ(run("list --json -o all").out, text);
}

TEST_F(verbs, colours_are_for_terminals_whose_user_wants_them)
{
    run("create --gpu-model 4070 --virtual 2G");
    const auto colored = testing::HasSubstr("\033[");
    EXPECT_THAT(run("list").out, Not(colored)) << "no terminal";
    EXPECT_THAT(run("list --color always").out, colored);
    EXPECT_THAT(run("list --color always --raw").out, Not(colored));
    EXPECT_THAT(run("list --color always --json").out, Not(colored));
    columns_ = 80;
    EXPECT_THAT(run("list").out, colored);
    EXPECT_THAT(run("doctor").out, colored);
    EXPECT_THAT(run("list --color never").out, Not(colored));
    no_color_ = true;
    EXPECT_THAT(run("list").out, Not(colored));
    EXPECT_THAT(run("doctor").out, Not(colored));
    const auto wrong = run("list --color sometimes");
    EXPECT_EQ(wrong.status, 2);
    EXPECT_THAT(wrong.err, HasSubstr("--color: 'sometimes' is none of auto, "
                                     "always, never"));
}

TEST_F(verbs, query_takes_the_names_of_nvidia_smi_as_that_means_them)
{
    run("create --gpu-model 3080 --physical 10G --virtual 2G --pci-device-id "
        "0x2206");
    EXPECT_EQ(run("list --query=index,name,pci.device_id,memory.total "
                  "--format=csv,noheader")
                  .out,
              "0, NVIDIA GeForce RTX 3080, 0x220610DE, 12288 MiB\n");
    EXPECT_EQ(run("list --query=emuv.name,emuv.pci_device_id --format=csv").out,
              "emuv.name, emuv.pci_device_id\nemuv0, 0x2206\n");
    EXPECT_EQ(run("stats --query=name,emuv.name --format=csv,noheader").out,
              "NVIDIA GeForce RTX 3080, emuv0\n");
    EXPECT_EQ(run("list -o name --raw --noheadings").out, "emuv0\n")
        << "-o goes by our names";
}

TEST_F(verbs, info_has_the_clients_in_json_too)
{
    run("create --gpu-model 4070 --virtual 2G");
    const int other = kernel_.open_as(0, 77, "trainer");
    const auto clients = [this] {
        const auto document = json::parse(run("info --json").out);
        return document["instances"].at(0)["client_list"];
    };
    ASSERT_EQ(clients().size(), 1U);
    EXPECT_EQ(clients()[0]["pid"], 77);
    EXPECT_EQ(clients()[0]["comm"], "trainer");
    EXPECT_EQ(clients()[0]["virtual_used_bytes"], 0);
    kernel_.close(other);
    EXPECT_EQ(clients(), json::array());
    EXPECT_THAT(run("info --raw").out, Not(HasSubstr("trainer")));
}

TEST_F(verbs, info_says_what_a_clients_memory_is_doing)
{
    run("create --gpu-model 4070 --virtual 2G");
    const int other = kernel_.open_as(0, 77, "trainer");
    EXPECT_THAT(run("info").out, HasSubstr("    77 trainer: 0 VRAM, 0 RAM\n"));
    kernel_.set_memory(0, 300 << 20, 0, 0);
    EXPECT_THAT(run("info").out,
                HasSubstr("77 trainer: 0 VRAM, 0 RAM (300 MiB backed)\n"));
    kernel_.set_memory(0, 300 << 20, 4 << 20, 6 << 20);
    EXPECT_THAT(run("info").out,
                HasSubstr("0 RAM (300 MiB backed, 4 MiB pinned), 6 MiB freed "
                          "but pinned\n"));
    const auto document = json::parse(run("info --json").out);
    const auto &client = document["instances"].at(0)["client_list"].at(0);
    EXPECT_EQ(client["resident_bytes"], 300U << 20U);
    EXPECT_EQ(client["pinned_bytes"], 4U << 20U);
    EXPECT_EQ(client["lingering_bytes"], 6U << 20U);
    kernel_.close(other);
}

TEST_F(verbs, stats_says_that_clients_are_left_out)
{
    run("create --gpu-model 4070 --virtual 2G --count 2");
    const int other = kernel_.open_as(1, 77, "trainer");
    // As for a user who may open neither.
    std::filesystem::remove(kernel_.dev() / "emuv-control");
    std::filesystem::remove(node(1));
    const auto result = run("stats -i 1 -c 2");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err,
              message("stats", "the clients of emuv1 are left out: only root "
                               "and the node's group may see them; "
                               "--no-clients asks for none"))
        << "once";
    EXPECT_EQ(run("stats --no-clients").err, "");
    EXPECT_TRUE(json::parse(run("stats --json").out)["instances"]
                    .at(1)["client_list"]
                    .is_null());
    kernel_.close(other);
}

// Names

TEST_F(verbs, instances_are_called_by_the_name_that_create_gave)
{
    ASSERT_EQ(run("create --gpu-model 4070 --virtual 2G").status, 0);
    EXPECT_THAT(run("list").out, Not(HasSubstr("CALLED")));
    const auto made =
        run("create --gpu-model 4070 --virtual 2G --name team-a --json");
    ASSERT_EQ(made.status, 0) << made.err;
    EXPECT_EQ(json::parse(made.out)["instances"].at(0)["given_name"], "team-a");
    EXPECT_THAT(run("list --raw").out, AllOf(HasSubstr("NAME CALLED MODEL"),
                                             HasSubstr("emuv1 team-a 4070"),
                                             HasSubstr("emuv0 - 4070")));
    EXPECT_EQ(run("list team-a --raw --noheadings -o name").out, "emuv1\n");
    EXPECT_THAT(run("info team-a").out, HasSubstr("Called:         team-a\n"));
    EXPECT_EQ(run("stats team-a --raw --noheadings -o name").out, "emuv1\n");
    EXPECT_THAT(run(start_with_library() + "emuv0,team-a --dry-run true").out,
                HasSubstr("EMUV_INSTANCE=0,1\n"));
    const auto unknown = run("list team-b");
    EXPECT_EQ(unknown.status, 1);
    EXPECT_EQ(unknown.err, message("list", "no instance is called 'team-b'"));
    ASSERT_EQ(run("destroy team-a").status, 0);
    EXPECT_EQ(kernel_.instance_count(), 1U);
    EXPECT_TRUE(std::filesystem::is_empty(kernel_.root() / "run/emuv/names"));
}

TEST_F(verbs, a_name_is_of_one_instance_at_a_time)
{
    const std::string create = "create --gpu-model 4070 --virtual 2G --name ";
    ASSERT_EQ(run(create + "a").status, 0);
    const auto taken = run(create + "a");
    EXPECT_EQ(taken.status, 1);
    EXPECT_EQ(taken.err, message("create", "the name 'a' is taken by emuv0"));
    EXPECT_EQ(kernel_.instance_count(), 1U);
    // One that went without this tool leaves its name behind.
    emuv::control(kernel_.dev(), kernel_).destroy(0);
    EXPECT_EQ(run("list a").status, 1);
    const auto again = run(create + "a");
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(run("list a").status, 0);
    for (const std::string wrong : {"7", "emuv7", "emuv07", "emuv99999999999",
                                    "../x", "-", "a/b", "a,b"}) {
        const auto result = run(create + wrong);
        EXPECT_EQ(result.status, 2) << wrong;
    }
    EXPECT_EQ(run(create + "b --count 2").status, 2);
    EXPECT_EQ(kernel_.instance_count(), 1U);
}

TEST_F(verbs, everybody_may_read_the_names_whatever_the_umask)
{
    const auto before = ::umask(0077);
    const auto result = run("create --gpu-model 4070 --virtual 2G --name a");
    ::umask(before);
    ASSERT_EQ(result.status, 0) << result.err;
    const auto names = kernel_.root() / "run/emuv/names";
    for (const auto &[path, mode] :
         {std::pair(names.parent_path(), 0755U), std::pair(names, 0755U),
          std::pair(names / "a", 0644U)}) {
        struct stat about = {};
        ASSERT_EQ(::stat(path.c_str(), &about), 0);
        EXPECT_EQ(about.st_mode & 07777U, mode) << path;
    }
    // A name that an instance left behind is no reason for a column.
    emuv::control(kernel_.dev(), kernel_).destroy(0);
    run("create --gpu-model 4070 --virtual 2G");
    EXPECT_THAT(run("list").out, Not(HasSubstr("CALLED")));
}

TEST_F(verbs, an_instance_goes_again_if_its_name_cannot_be_kept)
{
    write_file(kernel_.root() / "run/emuv", "no folder");
    const auto result =
        run("create --gpu-model 4070 --virtual 2G --name team-a");
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("run/emuv/names: not a directory"));
    EXPECT_EQ(kernel_.instance_count(), 0U);
}

TEST_F(verbs, names_of_instances_that_have_gone_go_with_the_next_one)
{
    const std::string create = "create --gpu-model 4070 --virtual 2G --name ";
    ASSERT_EQ(run(create + "a").status, 0);
    ASSERT_EQ(run(create + "b").status, 0);
    emuv::control(kernel_.dev(), kernel_).destroy(0);
    const auto names = kernel_.root() / "run/emuv/names";
    ASSERT_TRUE(std::filesystem::exists(names / "a"));
    ASSERT_EQ(run(create + "c").status, 0);
    EXPECT_FALSE(std::filesystem::exists(names / "a"));
    emuv::control(kernel_.dev(), kernel_).destroy(1);
    ASSERT_EQ(run("destroy c").status, 0);
    EXPECT_TRUE(std::filesystem::is_empty(names));
}

// Otherwise somebody could destroy the instance meanwhile, and give its number
// and its name to another one.
TEST_F(verbs, nobody_else_destroys_while_a_name_is_looked_up)
{
    ASSERT_EQ(run("create --gpu-model 4070 --virtual 2G --name a").status, 0);
    const auto names = kernel_.root() / "run/emuv/names";
    // A reader of all names waits here until somebody writes.
    const auto gate = names / "gate";
    ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
    outcome result;
    std::thread destroying([&] { result = run("destroy a"); });
    emuv::unique_fd reached(::open(gate.c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_TRUE(reached);
    ::unlink(gate.c_str());
    {
        const auto file = names.parent_path() / "names.lock";
        const emuv::unique_fd lock(::open(file.c_str(), O_RDWR | O_CLOEXEC));
        EXPECT_TRUE(lock);
        EXPECT_NE(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    }
    EXPECT_EQ(::write(reached.get(), "\n", 1), 1);
    reached.reset();
    destroying.join();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(kernel_.instance_count(), 0U);
}

// Instances that last

class lasting : public verbs
{
protected:
    const std::string config_ = (kernel_.root() / "profiles.conf").string();
    const std::filesystem::path folder_ = config_ + ".d";

    outcome with_config(const std::string &line)
    {
        return run(line + " --config " + config_);
    }
    std::string names()
    {
        return run("list --raw --noheadings -o name,given_name").out;
    }
    std::string profile_names()
    {
        return with_config("profile list --raw --noheadings -o profile").out;
    }
};

const std::string define = "define --gpu-model 4070 --virtual 2G ";

TEST_F(lasting, start_makes_what_define_wrote)
{
    const auto defined = with_config(define + "team-a");
    EXPECT_EQ(defined.status, 0) << defined.err;
    EXPECT_EQ(defined.out, (folder_ / "team-a.conf").string() + "\n");
    EXPECT_EQ(kernel_.instance_count(), 0U) << "it is not started";
    EXPECT_EQ(profile_names(), "team-a\n");
    const auto dry = with_config("start team-a --dry-run");
    EXPECT_THAT(dry.out, HasSubstr("would create " +
                                   (kernel_.dev() / "emuv0").string()));
    EXPECT_EQ(kernel_.instance_count(), 0U);
    const auto started = with_config("start team-a");
    EXPECT_EQ(started.status, 0) << started.err;
    EXPECT_EQ(started.out, (kernel_.dev() / "emuv0").string() + "\n");
    EXPECT_EQ(names(), "emuv0 team-a\n");
    const auto again = with_config("start team-a");
    EXPECT_EQ(again.status, 1);
    EXPECT_EQ(again.err, message("start", "team-a is there already: emuv0"));
    EXPECT_EQ(with_config("assert").status, 0);
}

TEST_F(lasting, start_makes_all_or_none)
{
    with_config(define + "a");
    with_config(define + "b");
    kernel_.fail(EMUV_IOC_CREATE, ENOSPC, 1);
    EXPECT_EQ(with_config("start a b").status, 1);
    EXPECT_EQ(kernel_.instance_count(), 0U);
    EXPECT_TRUE(std::filesystem::is_empty(kernel_.root() / "run/emuv/names"));
    const auto unknown = with_config("start a c");
    EXPECT_EQ(unknown.status, 1);
    EXPECT_THAT(unknown.err, HasSubstr("no profile 'c'"));
    EXPECT_EQ(kernel_.instance_count(), 0U);
    ASSERT_EQ(with_config("start a b").status, 0);
    EXPECT_EQ(names(), "emuv0 a\nemuv1 b\n");
}

TEST_F(lasting, stop_keeps_the_profile)
{
    with_config(define + "team-a");
    with_config("start team-a");
    const int user = kernel_.open_as(0, 100, "python");
    const auto busy = with_config("stop team-a");
    EXPECT_EQ(busy.status, 1);
    EXPECT_THAT(busy.err, HasSubstr("emuv0: in use by 1 client: 100 python"));
    kernel_.close(user);
    EXPECT_THAT(with_config("stop team-a --dry-run").out,
                StartsWith("would stop emuv0: 4070"));
    EXPECT_EQ(kernel_.instance_count(), 1U);
    const auto stopped = with_config("stop emuv0");
    EXPECT_EQ(stopped.status, 0) << stopped.err;
    EXPECT_EQ(kernel_.instance_count(), 0U);
    EXPECT_EQ(profile_names(), "team-a\n");
    EXPECT_EQ(with_config("start team-a").status, 0);
}

TEST_F(lasting, stop_leaves_an_instance_that_nothing_would_bring_back)
{
    run("create --gpu-model 4070 --virtual 2G --name passing");
    run("create --gpu-model 4070 --virtual 2G");
    for (const std::string one : {"passing", "emuv1"}) {
        const auto result = with_config("stop " + one);
        EXPECT_EQ(result.status, 1);
        EXPECT_THAT(result.err, HasSubstr("no profile has its name"));
    }
    EXPECT_EQ(kernel_.instance_count(), 2U);
}

TEST_F(lasting, undefine_forgets_and_leaves_the_instance)
{
    with_config(define + "a");
    with_config(define + "b");
    with_config("start a");
    EXPECT_EQ(with_config("undefine a --dry-run").out,
              "would remove " + (folder_ / "a.conf").string() + "\n");
    EXPECT_EQ(with_config("undefine a c").status, 1);
    EXPECT_EQ(profile_names(), "a\nb\n") << "all or none";
    const auto result = with_config("undefine a");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(profile_names(), "b\n");
    EXPECT_EQ(names(), "emuv0 a\n");
    EXPECT_EQ(with_config("undefine b").status, 0);
    EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(lasting, undefine_leaves_what_people_wrote)
{
    const std::string own = "[mine]\ngpu_model=4070\nvirtual_vram_gb=1\n";
    profiles(own);
    write_file(folder_ / "two.conf", "[two]\nvirtual_vram_gb=1\n"
                                     "[three]\nvirtual_vram_gb=1\n");
    for (const std::string name : {"mine", "two"}) {
        const auto result = with_config("undefine " + name);
        EXPECT_EQ(result.status, 1) << name;
        EXPECT_THAT(result.err,
                    HasSubstr("[" + name + "] was written by hand; remove it"));
    }
    EXPECT_EQ(profile_names(), "mine\ntwo\nthree\n");
}

TEST_F(lasting, a_definition_replaces_the_one_before_as_a_whole)
{
    const auto before = ::umask(0077);
    with_config(define + "a --id 3");
    ::umask(before);
    struct stat about = {};
    ASSERT_EQ(::stat((folder_ / "a.conf").c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777U, 0644U);
    const auto result = with_config("define a --virtual 4G");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(with_config("profile show a").out, "[a]\nvirtual_vram_gb=4\n")
        << "what the card has is asked when it is made";
    const auto files =
        std::distance(std::filesystem::directory_iterator(folder_), {});
    EXPECT_EQ(files, 1) << "no draft is left";
}

TEST_F(lasting, define_refuses_what_apply_would)
{
    profiles("[mine]\ngpu_model=4070\nvirtual_vram_gb=1\ninstance_id=4\n"
             "count=2\n");
    const std::vector<std::pair<std::string, std::string>> wrong = {
        {define + "emuv3", "is the number of an instance"},
        {define + "a/b", "is no name"},
        {define + "a b", "give one name"},
        {"define a --gpu-model 4070", "--virtual is missing"},
        {define + "a --guaranteed --overcommit", "--guaranteed and"},
        {define + "a --numa-bind", "--numa-bind: needs --numa-node"},
        {define + "a --physical 1G --from emuv0", "--from"},
        {define + "mine", "[mine] is in " + config_ + ":1; change it there"},
        {define + "a --id 5", "wants emuv5, too"},
        {"define a --virtual 3M", "multiple"},
    };
    for (const auto &[line, why] : wrong) {
        const auto result = with_config(line);
        EXPECT_NE(result.status, 0) << line;
        EXPECT_THAT(result.err, HasSubstr(why)) << line;
        EXPECT_FALSE(std::filesystem::exists(folder_)) << line;
    }
    EXPECT_EQ(run(define + "a --config -").status, 2);
    write_file(folder_ / "b.conf", "[c]\ngpu_model=4070\nvirtual_vram_gb=1\n");
    const auto result = with_config(define + "b");
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err,
                HasSubstr("has the profile [c], and would lose it"));
    EXPECT_EQ(profile_names(), "mine\nc\n");
}

TEST_F(lasting, define_takes_the_values_of_an_instance)
{
    run("create --gpu-model 4070 --physical 6G --virtual 2G --id 5");
    const auto result = with_config("define a --from emuv5");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(with_config("profile show a").out,
              "[a]\ngpu_model=4070\nphysical_vram_gb=6\nvirtual_vram_gb=2\n");
}

TEST_F(lasting, create_with_persist_makes_and_defines)
{
    const std::string create =
        "create --gpu-model 4070 --virtual 2G --persist --config " + config_;
    EXPECT_EQ(run(create).status, 2) << "it needs a name";
    const auto made = run(create + " --name a");
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_EQ(names(), "emuv0 a\n");
    EXPECT_EQ(with_config("profile show a").out,
              "[a]\ngpu_model=4070\nphysical_vram_gb=12\n"
              "virtual_vram_gb=2\n");
    with_config("stop a");
    const auto again = run(create + " --name a");
    EXPECT_EQ(again.status, 1);
    EXPECT_THAT(again.err, HasSubstr("a is defined already; 'emuvctl start a' "
                                     "makes it"));
    EXPECT_EQ(kernel_.instance_count(), 0U);
}

TEST_F(lasting, create_with_persist_makes_and_defines_with_tiers)
{
    const auto made = run("create --gpu-model 4070 --virtual 2G --name a "
                          "--persist --tier b=4G,emuv7=1G --config " +
                          config_);
    EXPECT_EQ(made.status, 0) << made.err;
    const std::string text = "b=4GiB,emuv7=1GiB";
    EXPECT_THAT(run("list -o given_name,tier").out, HasSubstr(text));
    EXPECT_EQ(with_config("profile show a").out,
              "[a]\ngpu_model=4070\nphysical_vram_gb=12\n"
              "virtual_vram_gb=2\ntier=" +
                  text + "\n");
    with_config("stop a");
    EXPECT_EQ(with_config("apply").status, 0);
    EXPECT_THAT(run("list -o given_name,tier").out, HasSubstr(text));
}

TEST_F(lasting, create_with_persist_takes_back_what_cannot_be_written)
{
    write_file(folder_, "no folder");
    const auto result = run("create --gpu-model 4070 --virtual 2G --persist "
                            "--name a --config " +
                            config_);
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(kernel_.instance_count(), 0U);
    EXPECT_TRUE(std::filesystem::is_empty(kernel_.root() / "run/emuv/names"));
}

TEST_F(lasting, apply_brings_back_the_same_ones_under_their_names)
{
    for (const std::string name : {"a", "b", "c"})
        with_config(define + name);
    ASSERT_EQ(with_config("apply").status, 0);
    EXPECT_EQ(names(), "emuv0 a\nemuv1 b\nemuv2 c\n");
    // All have the same values: names tell which one is missing.
    with_config("stop b");
    EXPECT_EQ(
        with_config("apply --raw --noheadings -o action,name,profile").out,
        "keep emuv0 a\ncreate emuv1 b\nkeep emuv2 c\n");
    EXPECT_EQ(names(), "emuv0 a\nemuv1 b\nemuv2 c\n");
}

TEST_F(lasting,
       apply_keeps_an_instance_that_was_defined_anew_and_makes_the_rest)
{
    with_config(define + "a");
    with_config("start a");
    with_config("define a --gpu-model 4070 --virtual 4G");
    with_config(define + "b");
    const auto dry = with_config("apply --dry-run");
    EXPECT_EQ(dry.status, 0) << dry.err;
    EXPECT_EQ(kernel_.instance_count(), 1U);
    const auto result = with_config("apply --raw");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, dry.err);
    EXPECT_EQ(result.err,
              message("apply", "emuv0: [a] wants 4070, 12 GiB + 4 GiB, and it "
                               "is 4070, 12 GiB + 2 GiB; it is kept so. "
                               "'emuvctl stop a' and 'start a' make it anew"));
    EXPECT_EQ(result.out, "ACTION NAME PROFILE MODEL PHYSICAL VIRTUAL\n"
                          "keep emuv0 a 4070 12G 2G\n"
                          "create emuv1 b 4070 12G 2G\n");
    EXPECT_EQ(names(), "emuv0 a\nemuv1 b\n");
    EXPECT_EQ(json::parse(with_config("assert --json").out)["differences"].at(
                  0)["name"],
              "emuv0");
    with_config("stop a");
    const auto anew = with_config("apply");
    EXPECT_EQ(anew.status, 0);
    EXPECT_EQ(anew.err, "");
}

TEST_F(lasting, apply_keeps_an_instance_that_was_resized_whatever_tells_it)
{
    with_config(define + "a");
    with_config(define + "b --id 7");
    ASSERT_EQ(with_config("apply").status, 0);
    ASSERT_EQ(run("resize a --virtual 4G").status, 0);
    ASSERT_EQ(run("resize b --virtual 6G").status, 0);
    with_config(define + "c");
    const auto result = with_config("apply --raw --noheadings");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "keep emuv0 a 4070 12G 4G\n"
                          "keep emuv7 b 4070 12G 6G\n"
                          "create emuv1 c 4070 12G 2G\n");
    // Under that number, but of another name: it is somebody else's.
    with_config("stop b");
    run("create --gpu-model 4070 --virtual 4G --id 7 --name theirs");
    const auto taken = with_config("apply");
    EXPECT_EQ(taken.status, 1);
    EXPECT_THAT(taken.err, HasSubstr("emuv7: [b] wants 4070, 12 GiB + 2 GiB"));
    EXPECT_THAT(taken.err, Not(HasSubstr("it is kept so")));
}

// Otherwise another emuvctl could put a profile into the file meanwhile, which
// would be lost.
TEST_F(lasting, nobody_else_defines_while_a_definition_is_looked_at)
{
    with_config(define + "a");
    // A reader of all profiles waits here until somebody writes.
    const auto gate = folder_ / "gate.conf";
    ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
    outcome result;
    std::thread forgetting([&] { result = with_config("undefine a"); });
    emuv::unique_fd reached(::open(gate.c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_TRUE(reached);
    ::unlink(gate.c_str());
    {
        const auto file = kernel_.root() / "run/emuv/names.lock";
        const emuv::unique_fd lock(::open(file.c_str(), O_RDWR | O_CLOEXEC));
        EXPECT_TRUE(lock);
        EXPECT_NE(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    }
    reached.reset();
    forgetting.join();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(lasting, undefine_takes_a_name_twice_for_once)
{
    with_config(define + "a");
    const auto result = with_config("undefine a a");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(lasting, the_folder_of_definitions_may_be_a_link)
{
    const auto elsewhere = kernel_.root() / "elsewhere";
    std::filesystem::create_directory(elsewhere);
    std::filesystem::create_directory_symlink(elsewhere, folder_);
    const auto defined = with_config(define + "a");
    EXPECT_EQ(defined.status, 0) << defined.err;
    EXPECT_EQ(profile_names(), "a\n");
    const auto forgotten = with_config("undefine a");
    EXPECT_EQ(forgotten.status, 0) << forgotten.err;
    EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
}

// Files may not become larger than so many bytes.
class file_limit
{
public:
    explicit file_limit(rlim_t bytes)
    {
        was_ignored_ = std::signal(SIGXFSZ, SIG_IGN);
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit now = {bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &now);
    }
    file_limit(const file_limit &) = delete;
    file_limit &operator=(const file_limit &) = delete;
    ~file_limit()
    {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, was_ignored_);
    }

private:
    rlimit before_ = {};
    void (*was_ignored_)(int) = nullptr;
};

TEST_F(lasting, why_only_a_part_was_written_is_said)
{
    outcome result;
    {
        const file_limit some(10);
        result = with_config(define + "a");
    }
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr(".a.new: file too large\n"));
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "no draft is left";
}

// The command line

TEST_F(verbs, run_takes_no_options_behind_the_program)
{
    ASSERT_EQ(run("create --gpu-model 4070 --virtual 2G").status, 0);
    const std::string start = start_with_library();
    const auto result =
        run(start +
            "0 --dry-run python x.py --ipc --move=check --instance 7 -- -x");
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out,
                AllOf(HasSubstr("\npython x.py --ipc --move=check --instance 7 "
                                "-- -x\n"),
                      HasSubstr("EMUV_INSTANCE=0\n"),
                      Not(HasSubstr("EMUV_MOVE=check")),
                      Not(HasSubstr("EMUV_IPC"))));
    EXPECT_EQ(run(start + "0 --dry-run -- list --ipc").out,
              run(start + "0 --dry-run list --ipc").out);
    // Brackets make no list of what is one word of the program's.
    for (const std::string word : {"[a,b]", "[]", "[1]", "[[a],[b]]", "{}"})
        for (const std::string dashes : {"", "-- "})
            EXPECT_THAT(
                run(start + "0 --dry-run " + dashes + "echo " + word + " x")
                    .out,
                HasSubstr("\necho '" + word + "' x\n"))
                << dashes;
}

TEST_F(verbs, export_refuses_a_label_that_no_profile_file_can_hold)
{
    emuv::instance_spec spec;
    spec.gpu_model = "4070 ; mine";
    spec.physical_bytes = gib;
    emuv::control(kernel_.dev(), kernel_).create(spec);
    const auto result = run("export");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("emuv0: its gpu_model cannot be written "
                                      "to a profile file"));
}

// list, info, stats

TEST_F(verbs, list_without_instances_says_so_and_prints_nothing)
{
    const auto result = run("list");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("there are no instances"));
    EXPECT_EQ(run("list --json").err, "");
}

TEST_F(verbs, list_quotes_commas_in_csv)
{
    run_words({"create", "--gpu-model", "a, b", "--physical", "1G", "--virtual",
               "0"});
    EXPECT_EQ(run("list --query=gpu_model --format=csv,noheader").out,
              "\"a, b\"\n");
}

TEST_F(verbs, stats_shows_clients_below_their_instance)
{
    run("create --gpu-model 4070 --virtual 2G --count 2");
    emuv::client own(1, kernel_.dev(), kernel_);
    own.charge(3 * gib);
    const auto region = own.alloc(512 << 20);
    own.report({gib, 2 * gib, 3, 4, 5, 6, 7});
    const auto result = run("stats");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, testing::MatchesRegex(
                                "NAME +VRAM +RAM +RESIDENT +FETCHED +EVICTED "
                                "+SPILLS +FAULTS\n"
                                "emuv0 +0 +0 +0 +0 +0 +0 +0\n"
                                "emuv1 +3G +512M +0 +1G +2G +3 +4\n"
                                ".*[0-9]+ .+ +3G +512M +- +1G +2G +3 +4\n"));
    const auto document = json::parse(run("stats --json emuv1").out);
    const auto &one = document["instances"].at(0);
    EXPECT_EQ(one["clients"], 1);
    ASSERT_EQ(one["client_list"].size(), 1U);
    const auto &client = one["client_list"].at(0);
    EXPECT_EQ(client["pid"], ::getpid());
    EXPECT_EQ(client["physical_used_bytes"], 3 * gib);
    EXPECT_EQ(client["virtual_used_bytes"], 512U << 20U);
    EXPECT_EQ(client["fetched_bytes"], gib);
    EXPECT_FALSE(one.contains("pid"));
    EXPECT_FALSE(client.contains("resident_bytes"));
    EXPECT_EQ(json::parse(run("stats --json --no-clients 1").out)["instances"]
                  .at(0)["client_list"]
                  .size(),
              0U);
}

TEST_F(verbs, stats_through_the_instances_own_node_leaves_itself_out)
{
    run("create --gpu-model 4070 --virtual 2M");
    std::filesystem::remove(kernel_.dev() / "emuv-control");
    const int other = kernel_.open_as(0, 77, "other");
    const auto document = json::parse(run("stats --json").out);
    const auto &list = document["instances"].at(0)["client_list"];
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list.at(0)["pid"], 77);
    kernel_.close(other);
}

TEST_F(verbs, stats_with_an_interval_shows_rates)
{
    run("create --gpu-model 4070 --virtual 2G");
    emuv::client own(0, kernel_.dev(), kernel_);
    own.report({100 * gib, 0, 0, 0, 0, 0, 0}); // before: counts for nothing
    on_wait_ = [&] { own.report({6 * gib, 2 * gib, 4, 1, 0, 0, 0}); };
    const auto result = run(
        "stats -i 2 -c 2 --bytes --raw --noheadings --no-clients -o "
        "fetched_per_s,evicted_per_s,spills_per_s,faults_per_s,fetched_bytes");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "3221225472 1073741824 2.0 0.5 113816633344\n"
                          "\n"
                          "3221225472 1073741824 2.0 0.5 120259084288\n");
    EXPECT_EQ(waits_, 2);
}

TEST_F(verbs, stats_with_an_interval_prints_one_json_document_a_line)
{
    run("create --gpu-model 4070 --virtual 2G");
    const auto result = run("stats -i 1 -c 3 --json");
    std::istringstream lines(result.out);
    int count = 0;
    for (std::string line; std::getline(lines, line); count++)
        EXPECT_EQ(json::parse(line)["schema"], 1);
    EXPECT_EQ(count, 3);
}

TEST_F(verbs, stats_ends_in_peace_when_it_is_interrupted)
{
    run("create --gpu-model 4070 --virtual 2G");
    interrupted_at_ = 4;
    const auto result = run("stats -i 1 --raw --noheadings -o name");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out, "emuv0\n\nemuv0\n\nemuv0\n");
}

TEST_F(verbs, stats_goes_on_when_an_instance_goes_away)
{
    run("create --gpu-model 4070 --virtual 2G --count 2");
    on_wait_ = [this] {
        if (waits_ == 2)
            emuv::control(kernel_.dev(), kernel_).destroy(1);
    };
    const auto result = run("stats -i 1 -c 2 --raw --noheadings -o name");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "emuv0\nemuv1\n\nemuv0\n");
}

TEST_F(verbs, a_reader_that_has_gone_is_no_failure)
{
    run("create --gpu-model 4070 --virtual 2G");
    closed_ = true;
    const auto result = run("stats -i 1");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
}

TEST_F(verbs, info_shows_the_clients)
{
    run("create --gpu-model 4070 --virtual 2G");
    const int other = kernel_.open_as(0, 77, "trainer");
    const auto result = run("info");
    EXPECT_THAT(result.out, HasSubstr("  Clients:        1\n"
                                      "    77 trainer: 0 VRAM, 0 RAM\n"));
    EXPECT_THAT(result.out, HasSubstr("GPU:            NVIDIA GeForce RTX "
                                      "4070\n"));
    kernel_.close(other);
}

// doctor

class doctor : public verbs
{
protected:
    json checks(const std::string &more = "")
    {
        const auto result = run("doctor --json --config /no/such " + more);
        status_ = result.status;
        json by_name = json::object();
        const auto document = json::parse(result.out);
        EXPECT_EQ(document["ok"], status_ == 0);
        for (const auto &one : document["checks"]) {
            by_name[one["check"].get<std::string>()] = one;
            if (one["status"] == "fail") {
                EXPECT_TRUE(one["fix"].is_string())
                    << one["check"] << " fails without a fix";
            }
        }
        return by_name;
    }
    int status_ = -1;
};

TEST_F(doctor, finds_nothing_wrong_on_a_good_machine)
{
    const auto found = checks();
    EXPECT_EQ(status_, 0);
    EXPECT_EQ(found["kernel"]["status"], "ok");
    EXPECT_EQ(found["module"]["detail"], "version 0.1.0 is loaded");
    EXPECT_EQ(found["signature"]["status"], "ok");
    EXPECT_EQ(found["control node"]["status"], "ok");
    EXPECT_EQ(found["instance nodes"]["status"], "skip");
    EXPECT_EQ(found["host memory"]["status"], "ok");
    EXPECT_EQ(found["profiles"]["status"], "skip");
    EXPECT_EQ(found["NVIDIA nodes"]["status"], "skip");
    EXPECT_EQ(found["CUDA driver"]["status"], "skip");
    EXPECT_EQ(found["NVIDIA driver"]["status"], "skip");
    EXPECT_EQ(found["GPU"]["status"], "skip");
}

TEST_F(doctor, sees_whether_the_cuda_library_is_there)
{
    // Beside the program, which the tests are none of.
    const auto found = checks()["CUDA library"];
    EXPECT_EQ(status_, 0) << "the driver needs none";
    EXPECT_EQ(found["status"], "warn");
    EXPECT_THAT(found["detail"].get<std::string>(),
                HasSubstr("the CUDA library is not installed"));
}

TEST_F(doctor, without_the_module_it_tells_what_that_would_keep_free)
{
    kernel_.remove();
    EXPECT_THAT(checks()["host memory"]["detail"].get<std::string>(),
                HasSubstr("the host has 32 GiB, 16 GiB available, 2 GiB kept "
                          "free"));
}

TEST_F(doctor, sees_a_kernel_without_modules)
{
    kernel_.remove();
    std::filesystem::remove(kernel_.proc() / "modules");
    const auto found = checks();
    EXPECT_EQ(status_, 1);
    EXPECT_EQ(found["kernel"]["status"], "fail");
    EXPECT_EQ(found["module"]["status"], "skip");
}

TEST_F(doctor, sees_modules_switched_off)
{
    kernel_.remove();
    write_file(kernel_.proc() / "sys/kernel/modules_disabled", "1\n");
    EXPECT_EQ(checks()["kernel"]["status"], "fail");
}

TEST_F(doctor, sees_a_module_that_lacks_or_is_for_another_kernel)
{
    kernel_.remove();
    EXPECT_EQ(checks()["module"]["status"], "ok");
    kernel_.file->vermagic = "6.12.0-other SMP ";
    auto found = checks();
    EXPECT_EQ(status_, 1);
    EXPECT_THAT(found["module"]["detail"].get<std::string>(),
                HasSubstr("built for 6.12.0-other, and 6.1.0-test is running"));
    kernel_.file.reset();
    found = checks();
    EXPECT_EQ(found["module"]["status"], "fail");
    EXPECT_THAT(found["module"]["fix"].get<std::string>(),
                AllOf(HasSubstr("emuv-dkms"),
                      HasSubstr("linux-headers-6.1.0-test"),
                      Not(HasSubstr("make "))));
}

TEST_F(doctor, sees_a_module_of_another_version)
{
    write_file(kernel_.sys() / "module/emuv/version", "9.9.9\n");
    EXPECT_EQ(checks()["module"]["status"], "warn");
    EXPECT_EQ(status_, 0);
}

TEST_F(doctor, sees_that_secure_boot_wants_a_signature)
{
    kernel_.remove();
    const auto variable = kernel_.sys() /
                          "firmware/efi/efivars/"
                          "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    write_file(variable, std::string("\x06\0\0\0\x01", 5));
    EXPECT_EQ(checks()["signature"]["status"], "ok") << "not enforced";
    write_file(kernel_.sys() / "kernel/security/lockdown",
               "none [integrity] confidentiality\n");
    auto found = checks();
    EXPECT_EQ(found["signature"]["status"], "fail");
    EXPECT_THAT(found["signature"]["fix"].get<std::string>(),
                HasSubstr("sign-file"));
    kernel_.file->signer = "my key";
    found = checks();
    EXPECT_EQ(found["signature"]["status"], "ok");
    EXPECT_THAT(found["signature"]["detail"].get<std::string>(),
                HasSubstr("Secure Boot is on, and the module is signed by my "
                          "key"));
    kernel_.file->signer.clear();
    write_file(kernel_.sys() / "kernel/security/lockdown",
               "[none] integrity confidentiality\n");
    write_file(kernel_.sys() / "module/module/parameters/sig_enforce", "Y\n");
    EXPECT_EQ(checks()["signature"]["status"], "fail");
}

TEST_F(doctor, sees_a_control_node_that_is_open_or_lacks)
{
    const auto control = kernel_.dev() / "emuv-control";
    ::chmod(control.c_str(), 0666);
    EXPECT_EQ(checks()["control node"]["status"], "fail");
    std::filesystem::remove(control);
    EXPECT_EQ(checks()["control node"]["status"], "fail");
}

TEST_F(doctor, sees_instance_nodes_that_are_open_or_lack)
{
    run("create --gpu-model 4070 --virtual 2M --count 2");
    ::chmod(node(1).c_str(), 0666);
    auto found = checks();
    EXPECT_EQ(found["instance nodes"]["status"], "fail");
    EXPECT_THAT(
        found["instance nodes"]["detail"].get<std::string>(),
        AllOf(HasSubstr("emuv1: open to everybody"), Not(HasSubstr("emuv0"))));
    std::filesystem::remove(node(0));
    found = checks();
    EXPECT_THAT(found["instance nodes"]["detail"].get<std::string>(),
                HasSubstr("emuv0: not there"));
}

TEST_F(doctor, sees_more_promised_than_there_is)
{
    run("create --gpu-model 4070 --virtual 14G");
    EXPECT_EQ(checks()["host memory"]["status"], "ok");
    run("create --gpu-model 4070 --virtual 2G");
    auto found = checks(); // 15 GiB are available beyond the floor
    EXPECT_EQ(found["host memory"]["status"], "warn");
    EXPECT_THAT(found["host memory"]["detail"].get<std::string>(),
                HasSubstr("could be backed now"));
    run("create --gpu-model 4070 --virtual 16G");
    found = checks();
    EXPECT_THAT(found["host memory"]["fix"].get<std::string>(),
                HasSubstr("only 31 GiB can ever be backed"));
}

TEST_F(doctor, sees_wrong_profiles)
{
    const auto file = profiles("foo\n");
    const auto result = run("doctor --config " + file);
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.out,
                AllOf(HasSubstr("fail  profiles"), HasSubstr("fix: correct")));
    EXPECT_EQ(result.err, message("doctor", "1 check failed"));
}

TEST_F(doctor, wants_a_working_driver_where_a_card_is)
{
    add_card();
    auto found = checks();
    EXPECT_EQ(status_, 1);
    EXPECT_EQ(found["NVIDIA driver"]["status"], "fail");
    EXPECT_EQ(found["NVIDIA nodes"]["status"], "fail");
    EXPECT_EQ(found["CUDA driver"]["status"], "fail");
    write_file(kernel_.sys() / "module/nvidia/version", "580.159.03\n");
    nvml_ = {true, "", "580.159.03", {}};
    for (const char *const name : {"nvidiactl", "nvidia0", "nvidia-uvm"})
        write_file(kernel_.dev() / name, "");
    cuda_ = {true, "cuInit says CUDA_ERROR_NO_DEVICE (100)", 13000, 0};
    found = checks();
    EXPECT_EQ(found["NVIDIA nodes"]["status"], "ok");
    EXPECT_EQ(found["CUDA driver"]["status"], "fail");
    cuda_ = {true, "", 12040, 2};
    found = checks();
    EXPECT_EQ(status_, 0);
    EXPECT_EQ(found["CUDA driver"]["detail"], "libcuda.so.1 12.4, 2 devices");
}

TEST_F(doctor, tells_the_link_and_warns_of_missing_lanes)
{
    add_card();
    auto found = checks();
    EXPECT_EQ(found["GPU 0000:01:00.0"]["status"], "ok");
    EXPECT_THAT(found["GPU 0000:01:00.0"]["detail"].get<std::string>(),
                HasSubstr("PCIe 1.0 x16 of 4.0 x16; an idle card slows"));
    add_card("8");
    EXPECT_EQ(checks()["GPU 0000:01:00.0"]["status"], "warn");
}

TEST_F(doctor, takes_the_nodes_that_are_there)
{
    add_card();
    write_file(kernel_.sys() / "module/nvidia/version", "580.159.03\n");
    nvml_ = {true, "", "580.159.03", {}};
    for (const char *const name : {"nvidiactl", "nvidia3", "nvidia-uvm"})
        write_file(kernel_.dev() / name, "");
    auto found = checks();
    EXPECT_EQ(found["NVIDIA nodes"]["status"], "ok");
    EXPECT_EQ(found["NVIDIA nodes"]["detail"], "nvidia3");
    EXPECT_EQ(found["NVIDIA driver"]["detail"], "580.159.03");
    std::filesystem::remove(kernel_.dev() / "nvidia3");
    write_file(kernel_.proc() / "driver/nvidia/gpus/0000:01:00.0/information",
               "Model: \t\t NVIDIA GeForce RTX 4070\nDevice Minor: \t 3\n");
    found = checks();
    EXPECT_EQ(found["NVIDIA nodes"]["status"], "fail");
    EXPECT_EQ(found["NVIDIA nodes"]["detail"],
              (kernel_.dev() / "nvidia3").string() + ": not there");
}

TEST(cards, have_a_uuid_where_only_one_can_be_meant)
{
    const auto card = [](const char *uuid, std::uint16_t id) {
        emuvctl::card made;
        made.uuid = uuid;
        made.pci_device_id = id;
        made.driven = true;
        return made;
    };
    using emuvctl::uuid_of_card;
    const std::vector one = {card("GPU-1", 0x2786)};
    const std::vector two = {card("GPU-1", 0x2786), card("GPU-2", 0x2330)};
    const std::vector twins = {card("GPU-1", 0x2786), card("GPU-2", 0x2786)};
    EXPECT_EQ(uuid_of_card(one, 0), "GPU-1");
    EXPECT_EQ(uuid_of_card(one, 0x2330), "");
    EXPECT_EQ(uuid_of_card(two, 0), "");
    EXPECT_EQ(uuid_of_card(two, 0x2330), "GPU-2");
    EXPECT_EQ(uuid_of_card(twins, 0x2786), "");
    EXPECT_EQ(uuid_of_card({}, 0), "");
    // One that NVIDIA's driver does not drive is nobody's.
    auto handed_on = two;
    handed_on[0].driven = false;
    EXPECT_EQ(uuid_of_card(handed_on, 0), "GPU-2");
    EXPECT_EQ(uuid_of_card(handed_on, 0x2786), "");
}

TEST_F(doctor, names_card_vram_link_and_driver)
{
    add_card();
    EXPECT_EQ(checks()["GPU 0000:01:00.0"]["detail"],
              "NVIDIA GeForce RTX 4070, 12 GiB of VRAM, link PCIe 1.0 x16 of "
              "4.0 x16; an idle card slows its link, look again under load");
    // A container without sysfs: NVML alone knows.
    std::filesystem::remove_all(kernel_.sys() / "bus");
    nvml_ = {true,
             "",
             "580.159.03",
             {{"0000:0a:00.0", "NVIDIA H200", 143771ULL << 20U, 0x2335, 5}}};
    const auto found = checks();
    EXPECT_EQ(found["GPU 0000:0a:00.0"]["detail"],
              "NVIDIA H200, 140.4 GiB of VRAM; its link is not shown");
    EXPECT_EQ(found["NVIDIA driver"]["detail"], "580.159.03");
    nvml_.problem = "nvmlInit says Driver/library version mismatch (18)";
    EXPECT_EQ(checks()["NVIDIA driver"]["status"], "fail");
}

TEST_F(doctor, fits_the_terminal)
{
    add_card("8");
    run("create --gpu-model 4070 --virtual 2M --count 2");
    ::chmod(node(1).c_str(), 0666);
    no_color_ = true;
    std::size_t lines_before = 1000;
    for (const unsigned columns : {40U, 80U, 200U}) {
        columns_ = columns;
        std::istringstream text(run("doctor --config /no/such").out);
        std::size_t lines = 0;
        for (std::string line; std::getline(text, line); lines++) {
            // A path may be longer than a line; nothing shares its line then.
            const std::string words =
                line.substr(std::min(line.find_first_not_of(' '), line.size()));
            if (words.find(' ') != std::string::npos) {
                EXPECT_LE(line.size(), columns) << line;
            }
        }
        EXPECT_LT(lines, lines_before) << columns;
        lines_before = lines;
    }
}

TEST(probe_nvml, tells_that_there_is_no_library_or_another_one)
{
    const auto none = emuvctl::probe_nvml("libemuv_no_such_nvml.so.1");
    EXPECT_FALSE(none.present);
    EXPECT_THAT(none.problem, HasSubstr("libemuv_no_such_nvml.so.1"));
    const auto other = emuvctl::probe_nvml("libc.so.6");
    EXPECT_TRUE(other.present);
    EXPECT_EQ(other.problem, "it lacks functions of NVML");
}

TEST(probe_nvml, reads_driver_cards_and_errors)
{
    const auto good = emuvctl::probe_nvml(FAKE_CUDA);
    EXPECT_EQ(good.problem, "");
    EXPECT_EQ(good.driver, "580.159.03");
    ASSERT_EQ(good.cards.size(), 1U);
    EXPECT_EQ(good.cards[0].address, "0001:0a:00.0");
    EXPECT_EQ(good.cards[0].name, "NVIDIA GeForce RTX 4070");
    EXPECT_EQ(good.cards[0].memory_bytes, 12ULL << 30U);
    EXPECT_EQ(good.cards[0].pci_device_id, 0x2786);
    EXPECT_EQ(good.cards[0].minor, 3);
    ::setenv("FAKE_CUDA_ERROR", "18", 1);
    const auto bad = emuvctl::probe_nvml(FAKE_CUDA);
    ::unsetenv("FAKE_CUDA_ERROR");
    EXPECT_EQ(bad.problem, "nvmlInit says a fault of NVML (18)");
    EXPECT_EQ(bad.cards.size(), 0U);
}

TEST(probe_cuda, tells_that_there_is_no_library)
{
    const auto state = emuvctl::probe_cuda("libemuv_no_such_cuda.so.1");
    EXPECT_FALSE(state.present);
    EXPECT_THAT(state.problem, HasSubstr("libemuv_no_such_cuda.so.1"));
}

TEST(probe_cuda, tells_that_a_library_is_not_the_drivers)
{
    const auto state = emuvctl::probe_cuda("libc.so.6");
    EXPECT_TRUE(state.present);
    EXPECT_THAT(state.problem, HasSubstr("lacks cuInit"));
}

TEST(probe_cuda, reads_version_devices_and_errors)
{
    const auto good = emuvctl::probe_cuda(FAKE_CUDA);
    EXPECT_TRUE(good.present);
    EXPECT_THAT(good.problem, IsEmpty());
    EXPECT_EQ(good.version, 12040);
    EXPECT_EQ(good.devices, 2);
    ::setenv("FAKE_CUDA_ERROR", "100", 1);
    const auto bad = emuvctl::probe_cuda(FAKE_CUDA);
    ::unsetenv("FAKE_CUDA_ERROR");
    EXPECT_EQ(bad.problem, "cuInit says CUDA_ERROR_FAKE (100)");
    EXPECT_EQ(bad.version, 12040);
}

TEST_F(verbs, run_says_which_of_module_and_library_is_too_old)
{
    ASSERT_EQ(run("create --gpu-model 4070 --physical 1G --virtual 1G").status,
              0);
    const auto refused = [&](std::uint32_t abi) {
        kernel_.abi = abi;
        const auto result = run(start_with_library() + "0 -- true");
        EXPECT_EQ(result.status, 125);
        return result.err;
    };
    const std::string ours = std::to_string(EMUV_ABI_VERSION);
    const std::string newer = std::to_string(EMUV_ABI_VERSION + 1);
    const std::string older = std::to_string(EMUV_ABI_VERSION - 1);
    EXPECT_THAT(refused(EMUV_ABI_VERSION + 1),
                testing::HasSubstr("the module (version 0.1.0) speaks ABI " +
                                   newer + ", this program " + ours +
                                   ": install newer tools"));
    EXPECT_THAT(refused(EMUV_ABI_VERSION - 1),
                testing::HasSubstr("the module (version 0.1.0) speaks ABI " +
                                   older + ", this program " + ours +
                                   ": load a newer module"));
}

TEST_F(verbs, run_looks_at_each_of_several_instances)
{
    ASSERT_EQ(run("create --gpu-model 4070 --physical 1G --virtual 1G").status,
              0);
    const auto result = run(start_with_library() + "0,0,3 -- true");
    EXPECT_EQ(result.status, 125);
    EXPECT_EQ(result.err, message("run", "emuv3: no such instance"));
    // As in a container that was not given the node.
    std::filesystem::remove(node(0));
    EXPECT_EQ(run(start_with_library() + "0 -- true").err,
              message("run", node(0) +
                                 ": there is no such node here, though the "
                                 "instance exists; pass the node into the "
                                 "container, or let udev run"));
}

TEST_F(verbs, vm_serve_refuses_an_instance_that_the_host_may_not_back)
{
    run("create --gpu-model 4070 --virtual 64M");
    interrupted_at_ = 1;
    on_wait_ = [] { ADD_FAILURE() << "it serves"; };
    const auto refused = run("vm-serve emuv0");
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("emuv0 is not guaranteed"),
                                   HasSubstr("--allow-unguaranteed")));
    EXPECT_FALSE(
        std::filesystem::exists(kernel_.root() / "run/emuv/vm/emuv0.sock"));
}

TEST_F(verbs, vm_serve_warns_where_it_is_told_to_serve_such_an_instance)
{
    run("create --gpu-model 4070 --virtual 64M");
    interrupted_at_ = 1;
    const auto served = run("vm-serve emuv0 --allow-unguaranteed");
    EXPECT_EQ(served.status, 0);
    EXPECT_THAT(served.err, AllOf(HasSubstr("emuv0 is not guaranteed"),
                                  HasSubstr("64 MiB of emuv0")));
}

TEST_F(verbs, vm_serve_holds_its_instance)
{
    run("create --gpu-model 4070 --virtual 64M --guaranteed");
    interrupted_at_ = 2;
    on_wait_ = [this] {
        EXPECT_THROW(emuv::control(kernel_.dev(), kernel_).destroy(0),
                     emuv::error);
    };
    const auto served = run("vm-serve emuv0");
    EXPECT_EQ(served.status, 0);
    EXPECT_THAT(served.err, AllOf(HasSubstr("64 MiB of emuv0"),
                                  HasSubstr("run/emuv/vm/emuv0.sock")));
    EXPECT_FALSE(
        std::filesystem::exists(kernel_.root() / "run/emuv/vm/emuv0.sock"));
}

TEST_F(verbs, vm_serve_hands_out_nothing_of_another_instance_with_its_number)
{
    run("create --gpu-model 4070 --virtual 64M --guaranteed");
    on_wait_ = [this] {
        emuv::control control(kernel_.dev(), kernel_);
        control.revoke(0);
        emuv::instance_spec spec;
        spec.gpu_model = "4070";
        spec.virtual_bytes = 64 << 20;
        control.create(spec);
    };
    const auto served = run("vm-serve emuv0");
    EXPECT_EQ(served.status, 1);
    EXPECT_THAT(served.err, HasSubstr("emuv0: it has been destroyed"));
}

TEST_F(verbs, memory_of_a_device_is_none_of_this_machines)
{
    EXPECT_EQ(
        run("create --gpu-model ivshmem --physical 0 --virtual 64G").status, 0);
    write_file(kernel_.sys() / "class/emuv/emuv0/device/vendor", "0x1af4\n");
    write_file(kernel_.proc() / "meminfo", "MemTotal: 8388608 kB\n"
                                           "MemAvailable: 8388608 kB\n");
    EXPECT_EQ(run("create --gpu-model 4070 --virtual 1G").status, 0);
    EXPECT_THAT(run("doctor --config /no/such").out,
                HasSubstr("1 GiB promised as virtual VRAM"));
    const auto exported = run("export");
    EXPECT_EQ(exported.status, 0);
    EXPECT_THAT(exported.out,
                AllOf(Not(HasSubstr("ivshmem")), Not(HasSubstr("overcommit")),
                      HasSubstr("[emuv1]")));
    EXPECT_THAT(exported.err, HasSubstr("emuv0 is left out"));
    kernel_.fail(EMUV_IOC_RESIZE, EINVAL);
    EXPECT_EQ(run("resize emuv0 --virtual 2G").err,
              message("resize", "emuv0: its virtual VRAM is a device's memory, "
                                "and has that size for good"));
}

} // namespace

// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl and libemuv against the real module. It loads and unloads it, so it
// has to be root on a machine of its own: a guest. The environment variable
// EMUV_KO names the module's file; EMUVCTL the program, if not the one built
// with this.
#include <emuv/client.hpp>
#include <emuv/control.hpp>
#include <emuv/error.hpp>
#include <emuv/sysfs.hpp>
#include <emuv/version.hpp>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/emuv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t mib = 1ULL << 20;
constexpr std::uint64_t gib = 1ULL << 30;
constexpr uid_t nobody = 65534;

struct outcome
{
    int status = -1;
    std::string out;
    std::string err;
};

std::string read_all(const std::filesystem::path &path)
{
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

const std::string issue_profiles = "[vGPU-Profile-1]\n"
                                   "gpu_model=4090\n"
                                   "physical_vram_gb=6\n"
                                   "virtual_vram_gb=1\n"
                                   "pci_device_id=0x2684\n"
                                   "[workers]\n"
                                   "gpu_model=RTX 4070\n"
                                   "physical_vram_gb=3\n"
                                   "virtual_vram_mb=64\n"
                                   "count=3\n"
                                   "[fixed]\n"
                                   "gpu_model=lab card\n"
                                   "physical_vram_mb=700\n"
                                   "virtual_vram_mb=64\n"
                                   "instance_id=20\n";

class guest : public testing::Test
{
protected:
    void SetUp() override
    {
        const char *const module = std::getenv("EMUV_KO");
        ASSERT_NE(module, nullptr) << "EMUV_KO has to name emuv.ko";
        ASSERT_EQ(::geteuid(), 0U) << "this has to be root";
        module_ = module;
        std::string name = "/tmp/emuvctl-guest-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
        ::chmod(name.c_str(), 0755);
        ::setenv("EMUV_CONFIG", (folder_ / "profiles.conf").c_str(), 1);
        // A copy, since the tree may lie where only root can go.
        const char *const program = std::getenv("EMUVCTL");
        std::filesystem::copy_file(program != nullptr ? program
                                                      : EMUVCTL_DEFAULT,
                                   folder_ / "emuvctl");
        ::setenv("E", (folder_ / "emuvctl").c_str(), 1);
        ::setenv("KO", module, 1);
        unload();
        ASSERT_FALSE(emuv::sysfs().loaded());
    }

    void TearDown() override
    {
        for (const pid_t pid : children_) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        unload();
        EXPECT_FALSE(emuv::sysfs().loaded()) << "something still holds it";
        std::filesystem::remove_all(folder_);
    }

    static void unload()
    {
        // A killed process may hold on for a moment, of two minutes at most.
        for (int i = 0; i < 6000 && emuv::sysfs().loaded(); i++) {
            ::syscall(SYS_delete_module, "emuv", O_NONBLOCK);
            if (emuv::sysfs().loaded())
                ::usleep(20000);
        }
    }

    // A line of shell; "$E" is emuvctl and "$KO" the module.
    [[nodiscard]] outcome run(const std::string &line, uid_t user = 0) const
    {
        const auto out = folder_ / "out";
        const auto err = folder_ / "err";
        const pid_t pid = ::fork();
        if (pid == 0) {
            const int out_fd =
                ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            const int err_fd =
                ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            ::dup2(out_fd, STDOUT_FILENO);
            ::dup2(err_fd, STDERR_FILENO);
            if (user != 0 && (::setgid(user) != 0 || ::setuid(user) != 0))
                ::_exit(126);
            ::execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
            ::_exit(127);
        }
        int status = 0;
        ::waitpid(pid, &status, 0);
        return {WIFEXITED(status) ? WEXITSTATUS(status)
                                  : 128 + WTERMSIG(status),
                read_all(out), read_all(err)};
    }

    // The same, and it has to succeed in silence on stderr.
    [[nodiscard]] std::string good(const std::string &line) const
    {
        const auto result = run(line);
        EXPECT_EQ(result.status, 0) << line << "\n" << result.err;
        EXPECT_EQ(result.err, "") << line;
        return result.out;
    }

    void load() const { (void)good("$E load --module $KO"); }

    void write_profiles(const std::string &text) const
    {
        std::ofstream(folder_ / "profiles.conf") << text;
    }

    // A process that holds an instance open, with what a test does to it.
    template <typename Work>
    pid_t hold(int id, Work &&work)
    {
        std::array<int, 2> ready{};
        EXPECT_EQ(::pipe(ready.data()), 0);
        const pid_t pid = ::fork();
        if (pid == 0) {
            try {
                emuv::client client(id);
                work(client);
                (void)!::write(ready[1], "x", 1);
                for (;;)
                    ::pause();
            } catch (const std::exception &problem) {
                (void)!::write(STDERR_FILENO, problem.what(),
                               std::strlen(problem.what()));
            }
            ::_exit(1);
        }
        ::close(ready[1]);
        char byte = 0;
        EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "the holder failed";
        ::close(ready[0]);
        children_.push_back(pid);
        return pid;
    }
    pid_t hold(int id)
    {
        return hold(id, [](emuv::client &) {});
    }
    void release(pid_t pid)
    {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        std::erase(children_, pid);
    }

    static std::string message(const std::string &verb, const std::string &text)
    {
        return "emuvctl: " + verb + ": " + text + "\n";
    }

    std::string module_;
    std::filesystem::path folder_;
    std::vector<pid_t> children_;
};

TEST_F(guest, users_session_goes_as_the_manual_has_it)
{
    write_profiles(issue_profiles);
    EXPECT_EQ(good("insmod $KO gpu_model=4070 physical_vram_gb=12 "
                   "virtual_vram_gb=2"),
              "");
    EXPECT_EQ(good("cat /sys/class/emuv/*/vram_info"),
              "GPU: NVIDIA GeForce RTX 4070\n"
              "Physical VRAM: 12 GB\n"
              "Virtual VRAM: 2 GB\n"
              "Total VRAM: 14 GB\n"
              "Physical used: 0 MB\n"
              "Virtual used: 0 MB\n"
              "Backed by RAM: 0 MB\n"
              "Clients: 0\n");
    EXPECT_EQ(good("$E create --profile vGPU-Profile-1"), "/dev/emuv1\n");
    EXPECT_EQ(good("$E apply --raw --noheadings"),
              "keep emuv1 vGPU-Profile-1 4090 6G 1G\n"
              "create emuv2 workers RTX\\x204070 3G 64M\n"
              "create emuv3 workers RTX\\x204070 3G 64M\n"
              "create emuv4 workers RTX\\x204070 3G 64M\n"
              "create emuv20 fixed lab\\x20card 700M 64M\n");
    EXPECT_EQ(good("$E list --raw --noheadings"),
              "emuv0 - 4070 12G 2G 14G 0 0 0 0\n"
              "emuv1 - 4090 6G 1G 7G 0 0 0 0\n"
              "emuv2 - RTX\\x204070 3G 64M 3.1G 0 0 0 0\n"
              "emuv3 - RTX\\x204070 3G 64M 3.1G 0 0 0 0\n"
              "emuv4 - RTX\\x204070 3G 64M 3.1G 0 0 0 0\n"
              "emuv20 fixed lab\\x20card 700M 64M 764M 0 0 0 0\n");
    hold(0, [](emuv::client &own) {
        own.charge(3 * gib);
        const auto region = own.alloc(64 * mib);
        const auto at = region.map();
        at.data()[0] = std::byte{1};
        own.alloc(2 * mib).release();
        // The first region goes again, and its chunk with it.
    });
    const auto stats = json::parse(good("$E stats --json emuv0"));
    const auto &one = stats["instances"].at(0);
    EXPECT_EQ(one["physical_used_bytes"], 3 * gib);
    EXPECT_EQ(one["virtual_used_bytes"], 2 * mib);
    EXPECT_EQ(one["resident_bytes"], 0);
    EXPECT_EQ(one["client_list"].size(), 1U);
    EXPECT_THAT(good("cat /sys/class/emuv/emuv0/vram_info"),
                AllOf(HasSubstr("Physical used: 3 GB\n"),
                      HasSubstr("Virtual used: 2 MB\n"),
                      HasSubstr("Clients: 1\n")));
    EXPECT_EQ(run("$E assert").status, 1) << "emuv0 is in no profile";
}

TEST_F(guest, load_prints_the_nodes_it_makes)
{
    EXPECT_EQ(good("$E load --module $KO gpu_model=4070,'RTX 4090' "
                   "physical_vram_gb=6,8 virtual_vram_mb=64,128 instance_id=3"),
              "/dev/emuv3\n/dev/emuv4\n");
    EXPECT_EQ(good("$E list --raw --noheadings -o name,model,physical,virtual"),
              "emuv3 4070 6G 64M\n"
              "emuv4 RTX\\x204090 8G 128M\n");
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/emuv3"));
}

TEST_F(guest, load_says_that_the_module_is_there_already)
{
    load();
    const auto again = run("$E load --module $KO");
    EXPECT_EQ(again.status, 0);
    EXPECT_EQ(again.err,
              message("load", std::string("the module is loaded already (") +
                                  emuv::version() + ")"));
    const auto other = run("$E load --module $KO gpu_model=4070");
    EXPECT_EQ(other.status, 1);
    EXPECT_THAT(other.err, HasSubstr("takes parameters only when it is "
                                     "loaded"));
}

TEST_F(guest, load_repeats_what_the_module_says_of_a_bad_parameter)
{
    const auto result = run("$E load --module $KO gpu_model=x "
                            "physical_vram_gb=-1 virtual_vram_gb=1");
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("the module refuses its parameters"),
                      HasSubstr("the kernel's log says: emuv: "
                                "physical_vram_gb: '-1'")));
    EXPECT_FALSE(emuv::sysfs().loaded()) << "half loaded";
    const auto unknown = run("$E load --module $KO gpu=x");
    EXPECT_EQ(unknown.status, 2);
    EXPECT_THAT(unknown.err, AllOf(HasSubstr("unknown parameter 'gpu'"),
                                   HasSubstr("physical_vram_gb")));
}

TEST_F(guest, load_tells_a_file_that_lacks_or_is_no_module)
{
    EXPECT_EQ(run("$E load --module /no/such/emuv.ko").err,
              message("load", "/no/such/emuv.ko: no such file"));
    const auto result = run("$E load --module /etc/passwd");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err, message("load", "/etc/passwd: no ELF file, so not a "
                                          "kernel module"));
    EXPECT_THAT(run("$E load --module /bin/ls").err,
                HasSubstr("/bin/ls: a program"));
    // A copy that ended too early, and one for another kernel.
    EXPECT_THAT(run("head -c 100000 $KO >/tmp/cut.ko; "
                    "$E load --module /tmp/cut.ko")
                    .err,
                HasSubstr("/tmp/cut.ko: an ELF file that is cut off: it has "
                          "100000 of at least "));
    // A kernel with versions of symbols minds what follows the release alone.
    EXPECT_THAT(run("sed 's/vermagic=[0-9]*\\([^ ]*\\) SMP/vermagic=9\\1 SMQ/' "
                    "$KO >/tmp/other.ko; $E load --module /tmp/other.ko")
                    .err,
                HasSubstr("/tmp/other.ko: emuV's module for 9"));
    EXPECT_FALSE(emuv::sysfs().loaded());
}

TEST_F(guest, unload_names_who_uses_which_instance_and_disturbs_nothing)
{
    (void)good("$E create --module $KO --gpu-model 4070 --virtual 64M");
    const pid_t holder = hold(0, [](emuv::client &own) { own.charge(mib); });
    const auto result = run("$E unload");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err, message("unload", "in use: emuv0 (1 client: " +
                                                std::to_string(holder) +
                                                " emuvctl_guest_t)"));
    EXPECT_EQ(good("$E list --raw --noheadings --bytes -o phys-used"),
              "1048576\n");
    release(holder);
    EXPECT_EQ(good("$E unload"), "");
    EXPECT_FALSE(emuv::sysfs().loaded());
    EXPECT_EQ(run("$E unload").status, 0);
}

TEST_F(guest, create_loads_the_module_and_makes_a_node)
{
    EXPECT_EQ(good("$E create --module $KO --gpu-model 4070 --virtual 2G "
                   "--overcommit"),
              "/dev/emuv0\n");
    struct stat state
    {};
    ASSERT_EQ(::stat("/dev/emuv0", &state), 0);
    EXPECT_TRUE(S_ISCHR(state.st_mode));
    EXPECT_EQ(state.st_mode & 0777U, 0660U);
    const auto info = emuv::sysfs().instance(0);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->gpu_model, "4070");
    EXPECT_EQ(info->physical_bytes, 12 * gib);
    EXPECT_EQ(info->virtual_bytes, 2 * gib);
}

TEST_F(guest, create_makes_all_or_none)
{
    (void)good("$E create --module $KO --gpu-model 4070 --virtual 2M --id 3");
    const auto result =
        run("$E create --gpu-model 4070 --virtual 2M --id 1 --count 4");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, message("create", "emuv3: already exists"));
    EXPECT_EQ(good("$E list --raw --noheadings -o name"), "emuv3\n");
}

TEST_F(guest, create_goes_up_to_the_last_id_and_says_that_no_more_is_free)
{
    load();
    EXPECT_EQ(good("$E create --gpu-model 4070 --virtual 2M --count 1024 "
                   "--overcommit | wc -l"),
              "1024\n");
    const auto result =
        run("$E create --gpu-model 4070 --virtual 2M --overcommit");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err,
              message("create", "no id is free: 1024 instances exist"));
    EXPECT_EQ(good("$E list --noheadings | wc -l"), "1024\n");
    EXPECT_EQ(good("$E destroy --all"), "");
    EXPECT_EQ(good("$E list --json --bytes | grep -c emuv || true"), "0\n");
}

TEST_F(guest, create_refuses_to_promise_more_than_the_host_has)
{
    load();
    const auto result = run("$E create --gpu-model 4070 --virtual 4T");
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("that the host can back"),
                                  HasSubstr("--overcommit")));
    EXPECT_EQ(good("$E create --gpu-model 4070 --virtual 4T --overcommit"),
              "/dev/emuv0\n");
}

TEST_F(guest, destroy_tells_what_lacks_and_who_uses)
{
    (void)good("$E create --module $KO --gpu-model 4070 --virtual 64M "
               "--count 2");
    EXPECT_EQ(run("$E destroy emuv7").err,
              message("destroy", "emuv7: no such instance"));
    const pid_t holder = hold(1);
    const auto busy = run("$E destroy 0 1");
    EXPECT_EQ(busy.status, 1);
    EXPECT_EQ(busy.err, message("destroy", "emuv1: in use by 1 client: " +
                                               std::to_string(holder) +
                                               " emuvctl_guest_t"));
    EXPECT_EQ(good("$E list --noheadings | wc -l"), "2\n") << "all or none";
    release(holder);
    EXPECT_EQ(good("$E destroy 0 1"), "");
    EXPECT_FALSE(std::filesystem::exists("/dev/emuv0"));
}

TEST_F(guest, destroy_tells_of_memory_that_only_a_mapping_holds)
{
    (void)good("$E create --module $KO --gpu-model 4070 --virtual 64M");
    emuv::mapping kept;
    {
        emuv::client own(0);
        auto region = own.alloc(2 * mib);
        kept = region.map();
    }
    const auto result = run("$E destroy 0");
    EXPECT_EQ(result.status, 1);
    // Its file lives as long as a mapping of it does.
    EXPECT_THAT(result.err, HasSubstr("emuv0: in use"));
    kept = emuv::mapping();
    EXPECT_EQ(good("$E destroy 0"), "");
}

TEST_F(guest, unprivileged_user_may_look_and_plan_and_no_more)
{
    write_profiles(issue_profiles);
    (void)good("$E create --module $KO --gpu-model 4070 --virtual 64M");
    hold(0);
    EXPECT_EQ(run("$E list --raw --noheadings -o name,clients", nobody).out,
              "emuv0 1\n");
    EXPECT_EQ(run("$E info", nobody).status, 0);
    EXPECT_EQ(run("$E export", nobody).status, 0);
    EXPECT_EQ(run("$E apply --dry-run", nobody).status, 0);
    const auto stats = run("$E stats --json", nobody);
    EXPECT_EQ(stats.status, 0) << stats.err;
    EXPECT_EQ(json::parse(stats.out)["instances"].at(0)["client_list"].size(),
              0U)
        << "neither node may be opened";
    for (const char *const line :
         {"$E create --gpu-model 4070 --virtual 2M", "$E apply",
          "$E destroy emuv0", "$E unload"}) {
        const auto result = run(line, nobody);
        EXPECT_EQ(result.status, 1) << line;
        EXPECT_THAT(result.err,
                    testing::AnyOf(HasSubstr("root's rights"),
                                   HasSubstr("in use by 1 client\n")))
            << line;
    }
    EXPECT_EQ(good("$E list --noheadings | wc -l"), "1\n");
}

TEST_F(guest, stats_through_the_instances_node_leaves_itself_out)
{
    (void)good("$E create --module $KO --gpu-model 4070 --virtual 64M");
    ASSERT_EQ(::chmod("/dev/emuv0", 0666), 0);
    const pid_t holder = hold(0, [](emuv::client &own) {
        own.alloc(4 * mib).release();
        own.report({gib, 2 * gib, 3, 4, 5, 6, 7});
    });
    const auto result = run("$E stats --json", nobody);
    ASSERT_EQ(result.status, 0) << result.err;
    const auto document = json::parse(result.out);
    const auto &one = document["instances"].at(0);
    EXPECT_EQ(one["clients"], 1);
    ASSERT_EQ(one["client_list"].size(), 1U);
    const auto &client = one["client_list"].at(0);
    EXPECT_EQ(client["pid"], holder);
    EXPECT_EQ(client["virtual_used_bytes"], 4 * mib);
    EXPECT_EQ(client["fetched_bytes"], gib);
    EXPECT_EQ(client["evicted_bytes"], 2 * gib);
    EXPECT_EQ(client["spills"], 3);
    EXPECT_EQ(client["faults"], 4);
    EXPECT_EQ(client["hit_bytes"], 5);
    EXPECT_EQ(client["miss_bytes"], 6);
    EXPECT_EQ(client["stalled_ns"], 7);
}

TEST_F(guest, stats_ends_in_peace_on_sigint_and_on_a_closed_pipe)
{
    (void)good("$E create --module $KO --gpu-model 4070 --virtual 64M");
    // It is interrupted once it has printed.
    const auto interrupted = run(
        "set -m; coproc $E stats -i 0.1; pid=$!; exec 3<&${COPROC[0]}; "
        "until [[ $line == *emuv0* ]]; do read -r -u 3 line || break; done; "
        "echo \"$line\"; kill -INT $pid; cat <&3 >/dev/null & wait $pid");
    EXPECT_EQ(interrupted.status, 0) << interrupted.err;
    EXPECT_THAT(interrupted.out, HasSubstr("emuv0"));
    const auto piped = run(
        "set -o pipefail; $E stats -i 0.05 | head -n 1; echo ${PIPESTATUS[0]}");
    EXPECT_THAT(piped.out, HasSubstr("FETCH/S"));
    EXPECT_THAT(piped.out, testing::EndsWith("\n0\n"));
    EXPECT_EQ(piped.err, "");
}

TEST_F(guest, instances_are_called_by_name_as_long_as_they_are_there)
{
    EXPECT_EQ(good("$E create --module $KO --gpu-model 4070 --virtual 64M "
                   "--name team-a"),
              "/dev/emuv0\n");
    EXPECT_EQ(good("$E list team-a --raw --noheadings -o name"), "emuv0\n");
    EXPECT_EQ(run("$E create --gpu-model 4070 --virtual 64M --name team-a").err,
              message("create", "the name 'team-a' is taken by emuv0"));
    // The UUID tells another of the same number apart.
    EXPECT_EQ(good("$E unload"), "");
    EXPECT_EQ(good("$E create --module $KO --gpu-model 4070 --virtual 64M"),
              "/dev/emuv0\n");
    EXPECT_EQ(run("$E list team-a").status, 1);
    EXPECT_EQ(good("$E create --gpu-model 4070 --virtual 64M --name team-a"),
              "/dev/emuv1\n");
    EXPECT_EQ(good("$E destroy team-a"), "");
    EXPECT_EQ(good("ls /run/emuv/names"), "");
}

TEST_F(guest, stats_says_that_it_leaves_clients_out)
{
    (void)good("$E create --module $KO --gpu-model 4070 --virtual 64M");
    ASSERT_EQ(::chmod("/dev/emuv0", 0600), 0);
    (void)hold(0, [](emuv::client &own) { own.charge(mib); });
    const auto result = run("$E stats", nobody);
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.err, HasSubstr("the clients of emuv0 are left out"));
    EXPECT_EQ(run("$E info --json", nobody).status, 0);
    EXPECT_EQ(json::parse(good("$E info --json"))["instances"]
                  .at(0)["client_list"]
                  .size(),
              1U);
}

TEST_F(guest, apply_is_idempotent_and_all_or_none)
{
    write_profiles(issue_profiles);
    const auto plan = good("$E apply --dry-run --raw --module $KO");
    EXPECT_FALSE(emuv::sysfs().loaded()) << "a dry run loads nothing";
    EXPECT_EQ(good("$E apply --raw --module $KO"), plan);
    EXPECT_EQ(good("$E assert"), "");
    const auto again = good("$E apply --raw --noheadings");
    EXPECT_THAT(again, Not(HasSubstr("create")));
    EXPECT_EQ(good("$E destroy emuv20 1"), "");
    EXPECT_EQ(run("$E assert").status, 1);
    EXPECT_THAT(good("$E apply --raw --noheadings"),
                AllOf(HasSubstr("create emuv20 fixed"),
                      HasSubstr("create emuv1 workers")));
    EXPECT_EQ(good("$E assert"), "");

    // One that cannot be promised: those before it go again.
    EXPECT_EQ(good("$E destroy --all"), "");
    write_profiles(issue_profiles + "[huge]\ngpu_model=x\n"
                                    "physical_vram_gb=1\n"
                                    "virtual_vram_gb=4096\n");
    const auto failed = run("$E apply");
    EXPECT_EQ(failed.status, 1);
    EXPECT_EQ(failed.out, "");
    EXPECT_THAT(failed.err,
                AllOf(HasSubstr("[huge] wants 4 TiB of virtual VRAM"),
                      HasSubstr("'overcommit=yes' in [huge]")));
    EXPECT_EQ(good("$E list --json | grep -c emuv || true"), "0\n");
}

TEST_F(guest, export_and_apply_are_an_identity)
{
    (void)good("$E create --module $KO --gpu-model 'RTX 4070 Ti' "
               "--physical 1000 --virtual 6M --id 3 --pci-device-id 0x2782");
    (void)good("$E create --gpu-model 4090 --virtual 64M --numa-node 0 "
               "--count 2");
    // Behind the next, the driver would refuse one that may not promise more.
    (void)good("$E create --gpu-model 4090 --virtual 64M --guaranteed --id 9");
    (void)good("$E create --gpu-model 4090 --virtual 1T --overcommit");
    const auto exported = good("$E export");
    write_profiles(exported);
    EXPECT_EQ(good("$E assert"), "");
    EXPECT_EQ(good("$E export | $E apply --config - --raw | grep -c keep"),
              "5\n");
    EXPECT_EQ(good("$E unload"), "");
    EXPECT_EQ(run("$E assert").status, 1);
    (void)good("$E apply --module $KO");
    EXPECT_EQ(good("$E assert"), "");
    EXPECT_EQ(good("$E export"), exported);
}

TEST_F(guest, doctor_finds_the_module_before_and_after_it_is_loaded)
{
    const auto status_of = [&](const std::string &check) {
        const auto result = run("$E doctor --json --module $KO");
        const auto document = json::parse(result.out);
        for (const auto &one : document["checks"])
            if (one["check"] == check)
                return one["status"].get<std::string>() + ": " +
                       one["detail"].get<std::string>();
        return std::string("no such check");
    };
    EXPECT_THAT(status_of("kernel"), HasSubstr("ok: "));
    EXPECT_THAT(status_of("module"), HasSubstr("ok: " + module_));
    EXPECT_THAT(status_of("control node"), HasSubstr("skip: "));
    (void)good("$E create --module $KO --gpu-model 4070 --virtual 64M");
    EXPECT_EQ(status_of("module"),
              std::string("ok: version ") + emuv::version() + " is loaded");
    EXPECT_THAT(status_of("control node"), HasSubstr("ok: "));
    EXPECT_THAT(status_of("instance nodes"), Not(HasSubstr("fail: ")));
    EXPECT_THAT(status_of("host memory"), HasSubstr("64 MiB promised"));
    ::chmod("/dev/emuv0", 0666);
    EXPECT_THAT(status_of("instance nodes"), HasSubstr("fail: "));
    EXPECT_EQ(run("$E doctor").status, 1);
}

TEST_F(guest, library_and_driver_agree_on_an_instance)
{
    load();
    emuv::control control;
    EXPECT_EQ(control.version().abi, static_cast<unsigned>(EMUV_ABI_VERSION));
    EXPECT_EQ(control.version().module_version, emuv::version());
    emuv::instance_spec spec;
    spec.id = 5;
    spec.gpu_model = "RTX 4070 Ti";
    spec.physical_bytes = 12 * gib;
    spec.virtual_bytes = 64 * mib;
    spec.pci_device_id = 0x2782;
    EXPECT_EQ(control.create(spec), 5);
    const auto asked = control.query(5);
    const auto shown = emuv::sysfs().instance(5);
    ASSERT_TRUE(shown);
    EXPECT_EQ(asked, *shown) << "sysfs and ioctl tell the same";
    EXPECT_EQ(asked.gpu_model, spec.gpu_model);
    EXPECT_EQ(asked.uuid.size(), 36U);
    EXPECT_EQ(control.instances().size(), 1U);
    EXPECT_EQ(control.query_next(6), std::nullopt);
    try {
        control.create(spec);
        FAIL() << "made twice";
    } catch (const emuv::error &problem) {
        EXPECT_EQ(problem.number(), EEXIST);
        EXPECT_EQ(problem.id(), 5);
    }
    EXPECT_EQ(control.try_destroy(6), -ENODEV);
    control.destroy(5);
}

TEST_F(guest, library_handles_hold_and_let_go_of_memory)
{
    load();
    emuv::control control;
    emuv::instance_spec spec;
    spec.gpu_model = "4070";
    spec.physical_bytes = gib;
    spec.virtual_bytes = 64 * mib;
    const int id = control.create(spec);
    {
        emuv::client own(id);
        auto region = own.alloc(3 * mib);
        EXPECT_EQ(region.bytes(), 4 * mib);
        const auto at = region.map();
        EXPECT_EQ(at.data()[3 * mib], std::byte{0});
        at.data()[0] = std::byte{42};
        EXPECT_EQ(own.query().resident_bytes, 4 * mib)
            << "a read and a write through a mapping back both chunks";
        region.discard(0, 2 * mib);
        EXPECT_EQ(at.data()[0], std::byte{0});

        at.data()[2 * mib] = std::byte{7};
        emuv::client other(id);
        const auto fd = region.export_region();
        auto held = other.import(fd.get());
        EXPECT_EQ(held.map().data()[2 * mib], std::byte{7});
        EXPECT_TRUE(region.export_dmabuf());
        EXPECT_EQ(own.charge(gib / 4), gib - gib / 4);
        EXPECT_EQ(other.query().physical_used_bytes, gib / 4);
        EXPECT_EQ(own.uncharge(gib / 8), gib - gib / 8);
        own.report({1, 2, 3, 4, 5, 6, 7});
        own.report({1, 2, 3, 4, 5, 6, 7});
        EXPECT_EQ(other.query().moved,
                  (emuv::counters{2, 4, 6, 8, 10, 12, 14}));
        const auto clients = control.clients(id);
        ASSERT_EQ(clients.size(), 2U);
        EXPECT_EQ(clients[0].pid, ::getpid());
        EXPECT_EQ(clients[0].virtual_bytes, 4 * mib);
        EXPECT_EQ(clients[1].imported_bytes, 4 * mib);
        try {
            (void)own.alloc(64 * mib);
            FAIL() << "more than there is";
        } catch (const emuv::error &problem) {
            EXPECT_EQ(problem.number(), ENOSPC);
        }
    }
    const auto after = control.query(id);
    EXPECT_EQ(after.clients, 0U);
    EXPECT_EQ(after.virtual_used_bytes, 0U);
    EXPECT_EQ(after.physical_used_bytes, 0U);
    EXPECT_EQ(after.resident_bytes, 0U);
    control.destroy(id);
}

} // namespace

// SPDX-License-Identifier: GPL-2.0-or-later
// The module's parameters: valid values, refusals, and their messages.
#include "support.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <ostream>

namespace {

using namespace guest;

/// The module's own messages, without the kernel loader's.
std::vector<std::string> module_messages(kernel_log &log)
{
    std::vector<std::string> own;
    for (auto &line : log.lines()) {
        const bool loader =
            line.find("module verification failed") != std::string::npos ||
            line.find("loading out-of-tree module") != std::string::npos ||
            line.find("invalid for parameter") != std::string::npos;
        if (line.starts_with("emuv") && !loader)
            own.push_back(std::move(line));
    }
    return own;
}

std::string joined(const std::vector<std::string> &lines)
{
    std::string text;
    for (const auto &line : lines)
        text += line + "\n";
    return text;
}

struct refusal
{
    const char *name;
    std::string parameters;
    /// The parameter that the message must name; any one of them if several are
    /// wrong.
    std::vector<std::string> named;
    int error = EINVAL;
};

std::ostream &operator<<(std::ostream &out, const refusal &row)
{
    return out << row.parameters;
}

class bad_parameter : public testing::TestWithParam<refusal>
{
protected:
    void TearDown() override
    {
        if (loaded()) {
            EXPECT_EQ(unload_eventually(), 0);
        }
        EXPECT_EQ(leftovers(), "");
    }
};

TEST_P(bad_parameter, IsRefusedWithOneLineThatNamesItAndLeavesNothing)
{
    const auto &row = GetParam();
    ASSERT_FALSE(loaded());
    kernel_log log;
    EXPECT_EQ(load(row.parameters), row.error);
    EXPECT_FALSE(loaded());
    EXPECT_EQ(leftovers(), "");

    const auto lines = module_messages(log);
    ASSERT_EQ(lines.size(), 1U) << joined(lines);
    const auto &line = lines.front();
    EXPECT_TRUE(std::any_of(
        row.named.begin(), row.named.end(),
        [&](const auto &name) { return line.find(name) != std::string::npos; }))
        << line;
    // A message about a range or a length has figures.
    const auto behind = line.substr(line.find(':') + 1);
    EXPECT_TRUE(std::any_of(behind.begin(), behind.end(), [](unsigned char c) {
        return std::isdigit(c);
    })) << line;
}

const std::vector<std::string> physical_gb{"physical_vram_gb"};
const std::vector<std::string> virtual_gb{"virtual_vram_gb"};
const std::vector<std::string> sizes_gb{"physical_vram_gb", "virtual_vram_gb"};
const std::vector<std::string> sizes_mb{"physical_vram_mb", "virtual_vram_mb"};

const refusal refusals[] = {
    {"TotalSizeZero", "gpu_model=4070 physical_vram_gb=0 virtual_vram_gb=0",
     sizes_gb},
    {"TotalSizeZeroInMiB",
     "gpu_model=4070 physical_vram_mb=0 virtual_vram_mb=0", sizes_mb},
    {"TotalSizeZeroOfTheSecond",
     "gpu_model=4070 physical_vram_gb=1,0 virtual_vram_gb=1,0", sizes_gb},
    {"PhysicalAboveTheAbi",
     "gpu_model=4070 physical_vram_gb=1048577 virtual_vram_gb=0", physical_gb},
    {"VirtualAboveTheAbi",
     "gpu_model=4070 physical_vram_gb=0 virtual_vram_gb=1048577 overcommit=1",
     virtual_gb},
    {"PhysicalAbove2To40",
     "gpu_model=4070 physical_vram_gb=1099511627777 virtual_vram_gb=1",
     physical_gb},
    {"VirtualAbove2To40",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1099511627777",
     virtual_gb},
    {"PhysicalMiBAboveTheAbi",
     "gpu_model=4070 physical_vram_mb=1073741825 virtual_vram_mb=0",
     {"physical_vram_mb"}},
    {"BytesThatWrapToZero",
     "gpu_model=4070 physical_vram_gb=17179869184 virtual_vram_gb=1",
     physical_gb},
    {"BytesThatWrapToOneGiB",
     "gpu_model=4070 physical_vram_gb=17179869185 virtual_vram_gb=1",
     physical_gb},
    {"PhysicalAboveU64",
     "gpu_model=4070 physical_vram_gb=18446744073709551616 virtual_vram_gb=1",
     physical_gb},
    {"VirtualAboveU64",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=18446744073709551617",
     virtual_gb},
    {"DeviceWithoutAnAddress", "ivshmem=04.0", {"ivshmem"}},
    {"AddressWithMoreBehind", "ivshmem=0000:00:04.0x", {"ivshmem"}},
    {"AllButNotQuite", "ivshmem=0000:00:04.0,allx", {"ivshmem"}},
    {"NegativePhysical", "gpu_model=4070 physical_vram_gb=-1 virtual_vram_gb=2",
     physical_gb},
    {"NegativeVirtual", "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=-2",
     virtual_gb},
    {"NegativePhysicalMiB",
     "gpu_model=4070 physical_vram_mb=-1 virtual_vram_mb=2",
     {"physical_vram_mb"}},
    {"NegativeVirtualMiB",
     "gpu_model=4070 physical_vram_mb=1 virtual_vram_mb=-2",
     {"virtual_vram_mb"}},
    {"NegativeAmongSeveral",
     "gpu_model=4070 physical_vram_gb=1,-1 virtual_vram_gb=1,1", physical_gb},
    {"SumAboveTheAbi",
     "gpu_model=4070 physical_vram_gb=1048576 virtual_vram_gb=1 overcommit=1",
     sizes_gb},
    {"SumTwiceTheAbi",
     "gpu_model=4070 physical_vram_gb=1048576 virtual_vram_gb=1048576 "
     "overcommit=1",
     sizes_gb},
    {"SumThatOverflows",
     "gpu_model=4070 physical_vram_gb=8589934592 virtual_vram_gb=1048576 "
     "overcommit=1",
     sizes_gb},
    {"VirtualNotInWholeChunks",
     "gpu_model=4070 physical_vram_mb=1 virtual_vram_mb=3",
     {"virtual_vram_mb"}},
    {"NegativeId",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1 instance_id=-1",
     {"instance_id"}},
    {"IdAboveTheLast",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1 instance_id=1024",
     {"instance_id"}},
    {"IdsThatRunOverTheLast",
     "gpu_model=4070 physical_vram_gb=1,1 virtual_vram_gb=0,0 instance_id=1023",
     {"instance_id"}},
    {"IdAboveInt",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1 "
     "instance_id=4294967296",
     {"instance_id"}},
    {"MorePhysicalThanVirtual",
     "gpu_model=4070 physical_vram_gb=1,1,1 virtual_vram_gb=1,1", sizes_gb},
    {"MoreVirtualThanPhysical",
     "gpu_model=4070 physical_vram_gb=1,1 virtual_vram_gb=1,1,1", sizes_gb},
    {"MoreModelsThanSizes",
     "gpu_model=4070,4080,4090 physical_vram_gb=1,1 virtual_vram_gb=1,1",
     {"gpu_model"}},
    {"FewerModelsThanSizes",
     "gpu_model=4070,4080 physical_vram_gb=1,1,1 virtual_vram_gb=1,1,1",
     {"gpu_model"}},
    {"MoreNumaNodesThanSizes",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1 numa_node=0,0",
     {"numa_node"}},
    {"MoreDeviceIdsThanSizes",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1 "
     "pci_device_id=0x2684,0x2704",
     {"pci_device_id"}},
    {"SizeThatIsNoNumber",
     "gpu_model=4070 physical_vram_gb=twelve virtual_vram_gb=1", physical_gb},
    {"SizeWithSomethingBehind",
     "gpu_model=4070 physical_vram_gb=12x virtual_vram_gb=1", physical_gb},
    {"EmptySize", "gpu_model=4070 physical_vram_gb=1,,1 virtual_vram_gb=1,1,1",
     physical_gb},
    {"IdThatIsNoNumber",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1 instance_id=first",
     {"instance_id"}},
    {"NumaNodeThatIsNone",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1 numa_node=100000",
     {"numa_node"}},
    {"NumaNodeBelowAny",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1 numa_node=-2",
     {"numa_node"}},
    {"DeviceIdAbove16Bits",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=1 "
     "pci_device_id=0x10000",
     {"pci_device_id"}},
    {"ModelThatIsTooLong",
     "gpu_model=" + std::string(EMUV_MODEL_LEN, 'x') +
         " physical_vram_gb=1 virtual_vram_gb=1",
     {"gpu_model"}},
    {"ModelWithAControlCharacter",
     "gpu_model=40\x01"
     "70 physical_vram_gb=1 virtual_vram_gb=1",
     {"gpu_model"}},
    {"ModelThatIsNotAscii",
     "gpu_model=40\xc3\xa4 physical_vram_gb=1 virtual_vram_gb=1",
     {"gpu_model"}},
    {"GuaranteedAndOvercommit",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_mb=64 overcommit=1 "
     "guaranteed=1",
     {"guaranteed"}},
    {"ClientsPartOfOddMebibytes",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_mb=64 "
     "client_virtual_mb=3",
     {"client_virtual_mb"}},
    {"NegativeFloor", "host_floor_mb=-1", {"host_floor_mb"}},
    {"FloorThatOverflows",
     "host_floor_mb=18446744073709551615",
     {"host_floor_mb"}},
    {"MoreVirtualThanTheHostCouldBack",
     "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=524288",
     {"virtual_vram_gb", "overcommit"},
     ENOMEM},
    {"TheSecondMoreThanTheHostCouldBack",
     "gpu_model=4070 physical_vram_gb=1,1 virtual_vram_gb=0,524288",
     {"virtual_vram_gb", "overcommit"},
     ENOMEM},
};

INSTANTIATE_TEST_SUITE_P(, bad_parameter, testing::ValuesIn(refusals),
                         [](const auto &row) {
                             return std::string(row.param.name);
                         });

/// Does not load the module: each test loads it itself.
class parameters : public testing::Test
{
protected:
    void SetUp() override { ASSERT_FALSE(loaded()); }
    void TearDown() override
    {
        control.reset();
        if (loaded()) {
            EXPECT_EQ(unload_eventually(), 0);
        }
        EXPECT_EQ(leftovers(), "");
    }

    void load_with(const std::string &text)
    {
        ASSERT_EQ(load(text), 0) << text;
        control = open_control();
    }

    std::vector<int> ids() const
    {
        std::vector<int> found;
        auto next = fresh<emuv_query_instance>();
        next.flags = EMUV_QUERY_NEXT;
        while (call(control, EMUV_IOC_QUERY_INSTANCE, next) == 0)
            found.push_back(next.id++);
        return found;
    }

    descriptor control;
};

TEST_F(parameters, NoneMakeNoInstance)
{
    load_with("");
    EXPECT_TRUE(ids().empty());
    EXPECT_TRUE(exists("/dev/emuv-control"));
    EXPECT_TRUE(names_in("/sys/class/emuv").empty());
}

TEST_F(parameters, OfTheReadmeMakeTheInstanceItShows)
{
    load_with(
        "gpu_model=4070 physical_vram_gb=12 virtual_vram_gb=2 overcommit=1");
    ASSERT_EQ(ids(), std::vector<int>{0});
    const auto made = query(control, 0);
    EXPECT_STREQ(made.gpu_model, "4070");
    EXPECT_EQ(made.physical_bytes, 12 * gib);
    EXPECT_EQ(made.virtual_bytes, 2 * gib);
    EXPECT_EQ(made.numa_node, EMUV_ANY);
    EXPECT_EQ(made.pci_device_id, 0U);
    EXPECT_TRUE(exists("/dev/emuv0"));
    EXPECT_NE(attribute(0, "vram_info").find("Total VRAM: 14 GB"),
              std::string::npos);
}

TEST_F(parameters, ListsMakeSeveralInstances)
{
    load_with("gpu_model=4070,4080,4090,3060 physical_vram_gb=6,7,8,9 "
              "virtual_vram_gb=2,3,4,5 "
              "pci_device_id=0x2684,0x2704,0,0xffff overcommit=1");
    ASSERT_EQ(ids(), (std::vector<int>{0, 1, 2, 3}));
    const char *const models[] = {"4070", "4080", "4090", "3060"};
    const unsigned devices[] = {0x2684, 0x2704, 0, 0xffff};
    for (int id = 0; id < 4; id++) {
        const auto made = query(control, id);
        EXPECT_STREQ(made.gpu_model, models[id]);
        EXPECT_EQ(made.physical_bytes, static_cast<u64>(6 + id) * gib);
        EXPECT_EQ(made.virtual_bytes, static_cast<u64>(2 + id) * gib);
        EXPECT_EQ(made.pci_device_id, devices[id]);
        EXPECT_TRUE(exists(node_path(id)));
    }
}

TEST_F(parameters, OneModelServesAllInstances)
{
    load_with("gpu_model=4090 physical_vram_gb=6,6,6,6 virtual_vram_gb=2,2,2,2 "
              "pci_device_id=0x2684 numa_node=0 "
              "overcommit=1");
    ASSERT_EQ(ids(), (std::vector<int>{0, 1, 2, 3}));
    for (int id = 0; id < 4; id++) {
        const auto made = query(control, id);
        EXPECT_STREQ(made.gpu_model, "4090");
        EXPECT_EQ(made.pci_device_id, 0x2684U);
        EXPECT_EQ(made.numa_node, 0);
    }
}

TEST_F(parameters, SizesMayBeGivenInMiB)
{
    load_with("gpu_model=4070 physical_vram_mb=3,64 virtual_vram_mb=2,0");
    ASSERT_EQ(ids(), (std::vector<int>{0, 1}));
    EXPECT_EQ(query(control, 0).physical_bytes, 3 * mib);
    EXPECT_EQ(query(control, 0).virtual_bytes, 2 * mib);
    EXPECT_EQ(query(control, 1).physical_bytes, 64 * mib);
    EXPECT_EQ(query(control, 1).virtual_bytes, 0U);
}

TEST_F(parameters, FirstIdMayBeChosen)
{
    load_with("gpu_model=4070 physical_vram_mb=8,8,8 virtual_vram_mb=2,2,2 "
              "instance_id=7");
    EXPECT_EQ(ids(), (std::vector<int>{7, 8, 9}));
    EXPECT_TRUE(exists("/dev/emuv7"));
    EXPECT_FALSE(exists("/dev/emuv0"));
}

TEST_F(parameters, LastIdMayBeChosen)
{
    load_with(
        "gpu_model=4070 physical_vram_mb=8 virtual_vram_mb=2 instance_id=1023");
    EXPECT_EQ(ids(), std::vector<int>{EMUV_MAX_INSTANCES - 1});
}

TEST_F(parameters, ModelInQuotesKeepsItsSpaces)
{
    load_with(
        "gpu_model=\"NVIDIA RTX A6000\" physical_vram_mb=8 virtual_vram_mb=2");
    EXPECT_STREQ(query(control, 0).gpu_model, "NVIDIA RTX A6000");
    EXPECT_EQ(attribute(0, "gpu_model"), "NVIDIA RTX A6000");
    EXPECT_TRUE(
        attribute(0, "vram_info").starts_with("GPU: NVIDIA RTX A6000\n"))
        << attribute(0, "vram_info");
}

TEST_F(parameters, ModelsInQuotesMayBeAList)
{
    load_with("gpu_model=\"RTX A6000,RTX 5000 Ada\" physical_vram_mb=8,8 "
              "virtual_vram_mb=2,2");
    EXPECT_STREQ(query(control, 0).gpu_model, "RTX A6000");
    EXPECT_STREQ(query(control, 1).gpu_model, "RTX 5000 Ada");
}

TEST_F(parameters, LongestModelIsKeptWhole)
{
    const std::string longest(EMUV_MODEL_LEN - 1, 'm');
    load_with("gpu_model=" + longest + " physical_vram_mb=8 virtual_vram_mb=2");
    EXPECT_EQ(query(control, 0).gpu_model, longest);
    EXPECT_EQ(attribute(0, "gpu_model"), longest);
}

TEST_F(parameters, LargestSizesOfTheAbiAreTaken)
{
    load_with("gpu_model=4070 physical_vram_gb=1048576 virtual_vram_gb=0");
    EXPECT_EQ(query(control, 0).physical_bytes, EMUV_MAX_BYTES);
    control.reset();
    ASSERT_EQ(unload_eventually(), 0);
    load_with("gpu_model=4070 physical_vram_gb=0 virtual_vram_gb=1048576 "
              "overcommit=1");
    EXPECT_EQ(query(control, 0).virtual_bytes, EMUV_MAX_BYTES);
}

TEST_F(parameters, OvercommitLetsMoreBePromisedThanTheHostHas)
{
    load_with(
        "gpu_model=4070 physical_vram_gb=1 virtual_vram_gb=4096 overcommit=1");
    EXPECT_EQ(query(control, 0).virtual_bytes, 4096 * gib);
}

TEST_F(parameters, FloorAndOvercommitCanBeReadBack)
{
    load_with("host_floor_mb=123 overcommit=1");
    EXPECT_EQ(read_text("/sys/module/emuv/parameters/host_floor_mb"), "123");
    EXPECT_EQ(read_text("/sys/module/emuv/parameters/overcommit"), "Y");
}

TEST_F(parameters, DefaultFloorIsAboveNothingAndBelowHalfOfTheHost)
{
    load_with("");
    const auto floor =
        read_number("/sys/module/emuv/parameters/host_floor_mb") * mib;
    EXPECT_GT(floor, 0U);
    EXPECT_LT(floor, meminfo("MemTotal") / 2);
}

TEST_F(parameters, AreSetWhenTheModuleIsLoadedAndNotLater)
{
    load_with("host_floor_mb=100");
    for (const auto &name : names_in("/sys/module/emuv/parameters")) {
        const auto file = "/sys/module/emuv/parameters/" + name;
        const auto text = read_text(file);
        for (const char *value : {"0", "1", "4070", ""}) {
            EXPECT_FALSE(write_text(file, value)) << name << ": " << value;
            EXPECT_EQ(read_text(file), text) << name;
        }
    }
}

TEST_F(parameters, ModuleStatesItsVersion)
{
    load_with("");
    auto version = fresh<emuv_version>();
    ASSERT_EQ(call(control, EMUV_IOC_VERSION, version), 0);
    EXPECT_EQ(read_text("/sys/module/emuv/version"), version.module_version);
}

TEST_F(parameters, SecondLoadIsRefusedAndDisturbsNothing)
{
    load_with("gpu_model=4070 physical_vram_mb=8 virtual_vram_mb=2");
    EXPECT_EQ(load("gpu_model=4090 physical_vram_mb=16,16 virtual_vram_mb=2,2"),
              EEXIST);
    EXPECT_EQ(ids(), std::vector<int>{0});
    EXPECT_STREQ(query(control, 0).gpu_model, "4070");
}

TEST_F(parameters, LoadingAndUnloadingAgainAndAgainLeavesNothing)
{
    const std::string text =
        "gpu_model=4070 physical_vram_mb=8,8,8,8 virtual_vram_mb=8,8,8,8";
    const auto once = [&] {
        ASSERT_EQ(load(text), 0);
        ASSERT_EQ(unload_eventually(), 0);
    };
    for (int warm_up = 0; warm_up < 10; warm_up++)
        once();
    const auto before = settled_available();
    for (int round = 0; round < 40; round++)
        once();
    EXPECT_EQ(leftovers(), "");
    EXPECT_GT(settled_available() + 8 * mib, before)
        << "each load costs memory for good";
}

} // namespace

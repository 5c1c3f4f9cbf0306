// SPDX-License-Identifier: GPL-2.0-or-later
// A driver in memory, behind the library's edge. It has enough of the ABI, of
// sysfs and of the module loader to run libemuv and emuvctl with no module.
#pragma once

#include <emuv/kernel_api.hpp>
#include <emuv/module.hpp>
#include <emuv/types.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace emuv_test {

/// A folder that goes with its owner.
class temporary_folder
{
public:
    temporary_folder();
    temporary_folder(const temporary_folder &) = delete;
    temporary_folder &operator=(const temporary_folder &) = delete;
    ~temporary_folder();

    [[nodiscard]] const std::filesystem::path &path() const { return path_; }

private:
    std::filesystem::path path_;
};

/// Writes a file and the folders it lies in.
void write_file(const std::filesystem::path &path, const std::string &text);
/// The whole content of a file; a test failure if it cannot be read.
std::string read_whole(const std::filesystem::path &path);

/// The driver. Below root() it keeps sys, dev, proc and run as they would be.
/// A node that is opened is a real file of the instance's size, so mappings
/// and pread() work on it.
class fake_kernel final : public emuv::kernel_api, public emuv::module_api
{
public:
    fake_kernel();
    fake_kernel(const fake_kernel &) = delete;
    fake_kernel &operator=(const fake_kernel &) = delete;
    ~fake_kernel() override;

    [[nodiscard]] const std::filesystem::path &root() const
    {
        return folder_.path();
    }
    [[nodiscard]] std::filesystem::path sys() const { return root() / "sys"; }
    [[nodiscard]] std::filesystem::path dev() const { return root() / "dev"; }
    [[nodiscard]] std::filesystem::path proc() const { return root() / "proc"; }

    /// Puts the module in, or takes it out, without going through load().
    void insert();
    void remove();

    /// Makes the call number @p after (0: the next) of a request fail.
    void fail(unsigned long request, int errnum, int after = 0);
    /// The text added to dev/kmsg when a call is made to fail.
    std::string log_on_failure;
    /// Makes the next load() fail.
    void fail_load(int errnum) { load_error_ = errnum; }
    /// The answer of info(); none: there is no such file.
    std::optional<emuv::module_file> file;
    /// The parameters that load() was last called with.
    std::string loaded_with;
    /// The virtual VRAM that may be promised without overcommit, in bytes.
    std::uint64_t promisable = 1ULL << 50;
    /// The ABI and the chunk size that it reports.
    unsigned abi = EMUV_ABI_VERSION;
    std::uint64_t chunk_bytes = EMUV_CHUNK_BYTES;
    /// True if new instances get a node.
    bool make_nodes = true;

    /// An open file of a node, as another process would hold it.
    int open_as(int id, int pid, const std::string &process);
    /// Sets what the memory of an instance's first client is doing, in bytes.
    void set_memory(int id, std::uint64_t resident, std::uint64_t pinned,
                    std::uint64_t lingering);

    // kernel_api
    int open(const std::string &path, int flags) override;
    int ioctl(int fd, unsigned long request, void *argument) override;
    void close(int fd) noexcept override;
    // module_api
    void load(const std::string &module,
              const std::string &parameters) override;
    void unload(const std::string &name) override;
    std::optional<emuv::module_file> info(const std::string &module) override;

    [[nodiscard]] std::size_t instance_count() const
    {
        return instances_.size();
    }
    [[nodiscard]] std::size_t open_files() const { return files_.size(); }

private:
    struct held_region
    {
        std::uint64_t bytes = 0;
        std::uint64_t owner = 0; // a client's number
        std::set<std::uint64_t> holders;
    };
    struct instance
    {
        emuv::instance_info info;
        int memory = -1; // a memfd
        std::map<std::uint64_t, held_region> regions;
        std::map<std::uint64_t, emuv::client_info> clients;
    };
    struct open_file
    {
        int id = -1; // -1: the control node
        std::uint64_t client = 0;
    };
    struct failure
    {
        int errnum = 0;
        int after = 0;
    };

    int do_ioctl(const open_file &of, unsigned long request, void *argument);
    int version(void *argument) const;
    int query_instance(const open_file &of, void *argument);
    int query_client(const open_file &of, void *argument);
    int create(void *argument);
    int destroy(void *argument);
    int resize(void *argument);
    int alloc(instance &of, std::uint64_t client, void *argument);
    int free(instance &of, std::uint64_t client, void *argument);
    int export_region(instance &of, std::uint64_t client, void *argument);
    int import(instance &of, std::uint64_t client, void *argument);
    int discard(instance &of, std::uint64_t client, void *argument);
    int charge(instance &of, std::uint64_t client, void *argument, bool back);
    int report(instance &of, std::uint64_t client, void *argument);
    void forget(int fd);
    void let_go(instance &of, std::uint64_t client, std::uint64_t offset);
    void show(const instance &of) const;
    void account(instance &of) const;

    temporary_folder folder_;
    std::map<int, instance> instances_;
    std::map<int, open_file> files_;
    // Exported regions by their descriptors' inodes.
    std::map<std::uint64_t, std::pair<int, std::uint64_t>> exports_;
    std::map<unsigned long, failure> failures_;
    int load_error_ = 0;
    unsigned made_ = 0; // instances, since the start
    std::uint64_t next_client_ = 1;
};

} // namespace emuv_test

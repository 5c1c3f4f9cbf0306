// SPDX-License-Identifier: GPL-2.0-or-later
// The bytes that a model's file is read from, a part at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace emuv::estimate {

/// A model's description that cannot be used. what() names the file and the
/// place in it, or the architecture that is not known.
class unreadable : public std::runtime_error
{
public:
    using std::runtime_error::runtime_error;
};

/// Bytes of a known size. A file's claims are held against that size.
class input
{
public:
    explicit input(std::string name) : name_(std::move(name)) {}
    input(const input &) = delete;
    input &operator=(const input &) = delete;
    virtual ~input() = default;

    /// For messages.
    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] virtual std::uint64_t size() const = 0;
    /// Fills @p to from byte @p at on. The bytes are there.
    /// @throws unreadable
    virtual void read(std::uint64_t at, std::span<unsigned char> to) = 0;

    /// Throws an unreadable: "NAME: byte AT: WHY".
    [[noreturn]] void refuse(std::uint64_t at, const std::string &why) const;
    /// Throws an unreadable: "NAME: WHY".
    [[noreturn]] void refuse(const std::string &why) const;

private:
    std::string name_;
};

/// A regular file. @throws unreadable
std::unique_ptr<input> open_file(const std::filesystem::path &path);

/// Bytes in memory, which must outlive it.
std::unique_ptr<input> in_memory(std::string name,
                                 std::span<const unsigned char> bytes);

/// All of it as text, if it has at most @p most bytes. @throws unreadable
std::string read_text(input &from, std::uint64_t most);

} // namespace emuv::estimate

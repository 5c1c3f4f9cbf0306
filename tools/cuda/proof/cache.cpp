// SPDX-License-Identifier: LGPL-2.1-or-later
// Verdicts that were reached before, in a file of the user's.
#include "proof/cache.hpp"

#include "base/file_status.hpp"
#include "proof/bytes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuv::cuda::proof {

namespace {

// To be raised with each change of the prover that may change a verdict.
constexpr std::uint32_t prover_version = 17;
constexpr std::uint64_t magic = 0x3166727076756d65; // "emuvprf1"
constexpr std::size_t most_bases = 16384;
constexpr std::size_t most_premises = 64;
constexpr std::size_t most_beside = 64; // in the file, beside the verdicts
constexpr const char *file_name = "verdicts";

// Of 128 bits, in two lanes that do not know each other.
class hasher
{
public:
    void add(const void *data, std::size_t size)
    {
        const auto *at = static_cast<const unsigned char *>(data);
        for (; size >= 8; at += 8, size -= 8) {
            std::uint64_t one = 0;
            std::memcpy(&one, at, 8);
            mix(one);
        }
        std::uint64_t rest = size;
        for (std::size_t i = 0; i < size; i++)
            rest = rest << 8 | at[i];
        mix(rest);
    }
    void add(std::uint64_t number) { mix(number); }

    [[nodiscard]] fingerprint result() const
    {
        return {{finish(a_ ^ count_), finish(b_ + count_)}};
    }

private:
    static std::uint64_t turned(std::uint64_t of, unsigned by)
    {
        return of << by | of >> (64 - by);
    }
    static std::uint64_t finish(std::uint64_t of)
    {
        of = (of ^ of >> 30) * 0xbf58476d1ce4e5b9;
        of = (of ^ of >> 27) * 0x94d049bb133111eb;
        return of ^ of >> 31;
    }
    void mix(std::uint64_t one)
    {
        a_ = turned(a_ ^ finish(one), 27) * 0x9e3779b97f4a7c15;
        b_ = turned(b_ + finish(one ^ 0xd6e8feb86659fd93), 31) *
                 0xff51afd7ed558ccd +
             1;
        count_++;
    }

    std::uint64_t a_ = 0x243f6a8885a308d3;
    std::uint64_t b_ = 0x13198a2e03707344;
    std::uint64_t count_ = 0;
};

class writer
{
public:
    template <typename Number>
    void add(Number number)
    {
        const auto *const at = reinterpret_cast<const unsigned char *>(&number);
        bytes_.insert(bytes_.end(), at, at + sizeof number);
    }
    void append(const writer &other)
    {
        bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
    }
    [[nodiscard]] const std::vector<unsigned char> &content() const
    {
        return bytes_;
    }

private:
    std::vector<unsigned char> bytes_;
};

std::uint64_t checksum(bytes of)
{
    hasher sum;
    sum.add(of.data(), of.size());
    return sum.result().halves[0];
}

// A descriptor that closes itself.
class descriptor
{
public:
    explicit descriptor(int number) : number_(number) {}
    descriptor(const descriptor &) = delete;
    descriptor &operator=(const descriptor &) = delete;
    ~descriptor()
    {
        if (number_ >= 0)
            ::close(number_);
    }
    [[nodiscard]] int get() const { return number_; }
    explicit operator bool() const { return number_ >= 0; }

private:
    int number_;
};

// Others may read a folder, but not write to it.
bool is_users_alone(int file, bool folder)
{
    struct stat is = {};
    return status_of(file, is) && is.st_uid == ::geteuid() &&
           (is.st_mode & (folder ? 022U : 077U)) == 0 &&
           (folder ? S_ISDIR(is.st_mode) : S_ISREG(is.st_mode));
}

std::vector<unsigned char> read_all(int file)
{
    std::vector<unsigned char> made;
    unsigned char block[16384];
    for (ssize_t got = 0; (got = ::read(file, block, sizeof block)) > 0 &&
                          made.size() < cache::most_bytes;)
        made.insert(made.end(), block, block + got);
    return made;
}

bool write_all(int file, bytes what)
{
    while (!what.empty()) {
        const ssize_t done = ::write(file, what.data(), what.size());
        if (done <= 0)
            return false;
        what = what.subspan(static_cast<std::size_t>(done));
    }
    return true;
}

std::uint32_t packed(const premise &of)
{
    return of.which | (of.is ? 0x80000000U : 0U);
}

// The terms and premises of a verdict.
bool read_premises(bytes body, std::size_t &at, verdict &into)
{
    const auto terms = number_at<std::uint16_t>(body, at);
    const auto premises = number_at<std::uint16_t>(body, at + 2);
    if (!terms || !premises || *terms > term_list::most ||
        *premises > most_premises || (*premises == 0 && *terms != 0))
        return false;
    at += 4;
    for (std::uint16_t i = 0; i < *terms; i++, at += 16) {
        const bytes from = subspan_of(body, at, 16);
        if (from.empty() || from[0] > static_cast<unsigned char>(last_kind))
            return false;
        into.terms.push_back({static_cast<term::kind>(from[0]), from[1],
                              from[2], number_or_zero<std::uint16_t>(from, 4),
                              number_or_zero<std::uint16_t>(from, 6),
                              number_or_zero<std::uint16_t>(from, 8),
                              number_or_zero<std::uint16_t>(from, 10),
                              number_or_zero<std::uint32_t>(from, 12)});
    }
    for (std::uint16_t i = 0; i < *premises; i++, at += 4) {
        const auto one = number_at<std::uint32_t>(body, at);
        if (!one || (*one & 0x7fffffff) >= *terms)
            return false;
        into.premises.push_back(
            {static_cast<term_number>(*one & 0xffff), (*one >> 31) != 0});
    }
    return true;
}

void write_premises(writer &out, const verdict &of)
{
    out.add(static_cast<std::uint16_t>(of.terms.size()));
    out.add(static_cast<std::uint16_t>(of.premises.size()));
    for (const term &each : of.terms) {
        out.add(static_cast<std::uint8_t>(each.is));
        out.add(each.how);
        out.add(each.more);
        out.add(std::uint8_t{0});
        for (const term_number other : {each.a, each.b, each.c, each.d})
            out.add(other);
        out.add(each.number);
    }
    for (const premise &each : of.premises)
        out.add(packed(each));
}

// @return whether all of it makes sense
bool read_table(bytes from, cache::table &into)
{
    if (from.size() < 24 || from.size() >= cache::most_bytes)
        return false;
    const bytes body = from.first(from.size() - 8);
    if (number_at<std::uint64_t>(from, body.size()) != checksum(body) ||
        number_at<std::uint64_t>(body, 0) != magic ||
        number_at<std::uint32_t>(body, 8) != prover_version)
        return false;
    const auto count = number_or_zero<std::uint32_t>(body, 12);
    std::size_t at = 16;
    for (std::uint32_t i = 0; i < count; i++) {
        const bytes head = subspan_of(body, at, 32);
        if (head.empty())
            return false;
        at += 32;
        fingerprint of;
        of.halves[0] = number_or_zero<std::uint64_t>(head, 0);
        of.halves[1] = number_or_zero<std::uint64_t>(head, 8);
        verdict what;
        const auto why = number_or_zero<std::uint8_t>(head, 16);
        const auto more = number_or_zero<std::uint8_t>(head, 17);
        const auto bases = number_or_zero<std::uint16_t>(head, 18);
        if (why > static_cast<std::uint8_t>(last_obstacle) || more > 3 ||
            bases > most_bases)
            return false;
        what.why = static_cast<obstacle>(why);
        what.any_parameter = (more & 1) != 0;
        what.by_descriptor = (more & 2) != 0;
        what.where = number_or_zero<std::uint32_t>(head, 20);
        what.accesses = number_or_zero<std::uint32_t>(head, 24);
        what.instructions = number_or_zero<std::uint32_t>(head, 28);
        for (std::uint16_t j = 0; j < bases; j++, at += 4) {
            const auto one = number_at<std::uint32_t>(body, at);
            if (!one)
                return false;
            what.bases.push_back({*one & 0x7fffffff, (*one >> 31) != 0});
        }
        if (!read_premises(body, at, what))
            return false;
        into[of].put(std::move(what));
    }
    return at == body.size();
}

bool fits(const verdict &what)
{
    return what.bases.size() <= most_bases &&
           what.premises.size() <= most_premises;
}

void write_verdict(writer &out, const fingerprint &of, const verdict &what)
{
    out.add(of.halves[0]);
    out.add(of.halves[1]);
    out.add(static_cast<std::uint8_t>(what.why));
    out.add(static_cast<std::uint8_t>((what.any_parameter ? 1 : 0) |
                                      (what.by_descriptor ? 2 : 0)));
    out.add(static_cast<std::uint16_t>(what.bases.size()));
    out.add(what.where);
    out.add(what.accesses);
    out.add(what.instructions);
    for (const base &each : what.bases)
        out.add(each.offset | (each.to_be_checked ? 0x80000000U : 0U));
    write_premises(out, what);
}

} // namespace

fingerprint fingerprint_of(const kernel_code &kernel)
{
    hasher sum;
    sum.add(prover_version);
    sum.add(kernel.sm);
    sum.add(kernel.entry_point);
    sum.add(kernel.parameters);
    sum.add(kernel.parameter_bytes);
    sum.add(kernel.relocated ? 1 : 0);
    sum.add(kernel.addresses.size());
    for (const auto &[offset, name] : kernel.addresses) {
        sum.add(offset);
        sum.add(name.data(), name.size());
    }
    sum.add(kernel.targets.size());
    for (const auto &[branch, targets] : kernel.targets) {
        sum.add(branch);
        sum.add(targets.size());
        for (const std::uint32_t each : targets)
            sum.add(each);
    }
    sum.add(kernel.code.data(), kernel.code.size());
    return sum.result();
}

cache::cache(std::string_view folder)
{
    if (folder.size() < sizeof folder_.path)
        std::memcpy(folder_.path, folder.data(), folder.size());
    const descriptor at(open_folder(false));
    if (at && !load(at.get(), known_))
        known_.clear();
}

cache::path_buffer cache::usual_folder()
{
    path_buffer made;
    const auto put = [&](const char *variable, const char *rest) {
        const char *const folder = ::secure_getenv(variable);
        if (folder == nullptr || folder[0] != '/')
            return false;
        const int length = std::snprintf(made.path, sizeof made.path,
                                         "%s%s/emuv", folder, rest);
        if (length < 0 || length >= static_cast<int>(sizeof made.path))
            made.path[0] = '\0';
        return true;
    };
    if (!put("XDG_CACHE_HOME", ""))
        put("HOME", "/.cache");
    return made;
}

int cache::open_folder(bool make) const
{
    if (folder_.path[0] == '\0')
        return -1;
    if (make && ::mkdir(folder_.path, 0700) != 0 && errno == ENOENT) {
        path_buffer above = folder_;
        char *const slash = std::strrchr(above.path, '/');
        if (slash != nullptr) {
            *slash = '\0';
            ::mkdir(above.path, 0700);
            ::mkdir(folder_.path, 0700);
        }
    }
    const int made =
        ::open(folder_.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (made >= 0 && !is_users_alone(made, true)) {
        ::close(made);
        return -1;
    }
    return made;
}

bool cache::load(int folder, table &into)
{
    const descriptor file(::openat(
        folder, file_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    return file && is_users_alone(file.get(), false) &&
           read_table(read_all(file.get()), into);
}

void cache::of_one::put(verdict what)
{
    const bool of_all = what.premises.empty();
    if (of_all)
        what.terms.clear(); // of no premise
    const auto same =
        std::find_if(all_.begin(), all_.end(), [&](const verdict &each) {
            return of_all ? each.premises.empty()
                          : each.premises == what.premises &&
                                each.terms == what.terms;
        });
    if (same != all_.end()) {
        all_.erase(same);
    } else if (!of_all) {
        const auto is_of_some = [](const verdict &each) {
            return !each.premises.empty();
        };
        const auto count = std::count_if(all_.begin(), all_.end(), is_of_some);
        if (static_cast<std::size_t>(count) >= most_of_one)
            all_.erase(std::find_if(all_.begin(), all_.end(), is_of_some));
    }
    all_.push_back(std::move(what));
}

const verdict *cache::of_one::of_all() const
{
    const auto found =
        std::find_if(all_.begin(), all_.end(),
                     [](const verdict &each) { return each.premises.empty(); });
    return found != all_.end() ? &*found : nullptr;
}

const verdict *cache::of_one::find(std::span<const unsigned char> parameters)
{
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const verdict &each) {
            return !each.premises.empty() && each.is_about(parameters) &&
                   hold(each.bases, parameters);
        });
    if (found == all_.end())
        return nullptr;
    std::rotate(found, found + 1, all_.end());
    return &all_.back();
}

const verdict *cache::find(const fingerprint &of) const
{
    const auto found = known_.find(of);
    if (found == known_.end())
        return nullptr;
    asked_for_.insert(of);
    return found->second.of_all();
}

const verdict *cache::find(const fingerprint &of,
                           std::span<const unsigned char> parameters)
{
    const auto found = known_.find(of);
    if (found == known_.end())
        return nullptr;
    asked_for_.insert(of);
    return found->second.find(parameters);
}

void cache::keep(const fingerprint &of, verdict what)
{
    asked_for_.insert(of);
    known_[of].put(std::move(what));
    changed_ = true;
}

bool cache::save()
{
    if (!changed_ || folder_.path[0] == '\0')
        return true;
    const descriptor folder(open_folder(true));
    if (!folder)
        return false;
    // A file that is another's, or no file, stays.
    struct stat is = {};
    if (status_of(folder.get(), file_name, is, AT_SYMLINK_NOFOLLOW) &&
        (!S_ISREG(is.st_mode) || is.st_uid != ::geteuid()))
        return false;
    table newest;
    if (!load(folder.get(), newest))
        newest.clear();
    // Others may have replaced what this program read and did not ask for.
    for (const fingerprint &of : asked_for_)
        if (const auto found = known_.find(of); found != known_.end())
            for (const verdict &each : found->second.all())
                newest[of].put(each);
    writer body;
    std::uint32_t count = 0;
    const auto write = [&](const fingerprint &of, const of_one &verdicts) {
        for (const verdict &each : verdicts.all()) {
            if (!fits(each))
                continue;
            writer one;
            write_verdict(one, of, each);
            if (body.content().size() + one.content().size() >
                most_bytes - most_beside)
                return;
            body.append(one);
            count++;
        }
    };
    for (const fingerprint &each : asked_for_)
        if (const auto found = newest.find(each); found != newest.end())
            write(each, found->second);
    for (const auto &[of, verdicts] : newest)
        if (!asked_for_.contains(of))
            write(of, verdicts);
    writer out;
    out.add(magic);
    out.add(prover_version);
    out.add(count);
    out.append(body);
    out.add(checksum(out.content()));
    char name[64];
    std::snprintf(name, sizeof name, "%s.%ld", file_name,
                  static_cast<long>(::getpid()));
    ::unlinkat(folder.get(), name, 0);
    const descriptor file(
        ::openat(folder.get(), name,
                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file)
        return false;
    if (!write_all(file.get(), out.content()) ||
        ::renameat(folder.get(), name, folder.get(), file_name) != 0) {
        ::unlinkat(folder.get(), name, 0);
        return false;
    }
    changed_ = false;
    return true;
}

const verdict &prove(const kernel_code &kernel, cache &known)
{
    const fingerprint of = fingerprint_of(kernel);
    if (known.find(of) == nullptr)
        known.keep(of, prove(kernel));
    return *known.find(of);
}

} // namespace emuv::cuda::proof

// SPDX-License-Identifier: GPL-2.0-or-later
// Reads tapes, and trusts nothing in them.
#include "tape.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace emuv::tape {

namespace {

constexpr std::uint64_t max_bytes = std::uint64_t{1} << 50;
constexpr std::size_t max_text = std::size_t{64} << 10;
constexpr std::size_t max_positions = 1024;
constexpr std::size_t max_nodes = std::size_t{1} << 20;
constexpr std::uint64_t max_ns = std::uint64_t{1} << 50;
constexpr std::size_t max_file = std::size_t{4} << 30; // as the writer
constexpr std::size_t max_steps = std::size_t{1} << 25;

class reader
{
public:
    reader(std::span<const unsigned char> content, tape &out)
        : content_(content), out_(out)
    {}

    bool read(wrong &error)
    {
        header();
        while (good() && at_ < content_.size() && !out_.ended) {
            const std::size_t begins = at_;
            const std::size_t allocations = out_.allocations.size();
            const std::size_t names = out_.names.size();
            one();
            if (ran_out_) { // the program ended while it was written
                at_ = begins;
                out_.allocations.resize(allocations);
                out_.names.resize(names);
                out_.cut = true;
                ran_out_ = false;
                break;
            }
        }
        if (!why_.empty()) {
            error.why = "byte " + std::to_string(at_) + ": " + why_;
            return false;
        }
        out_.streams = streams_;
        out_.events = events_;
        settle();
        return true;
    }

private:
    [[nodiscard]] bool good() const { return why_.empty() && !ran_out_; }
    void fail(std::string why)
    {
        if (good())
            why_ = std::move(why);
    }

    std::uint64_t byte()
    {
        if (!good() || at_ >= content_.size()) {
            if (good())
                ran_out_ = true;
            return 0;
        }
        return content_[at_++];
    }

    std::uint64_t number()
    {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const std::uint64_t next = byte();
            if (shift == 63 && next > 1)
                break;
            value |= (next & 0x7f) << shift;
            if (next < 0x80)
                return value;
        }
        fail("a number of more than 64 bits");
        return 0;
    }

    // A number of at most so much; 0 otherwise.
    std::uint64_t number(std::uint64_t most, const char *of)
    {
        const std::uint64_t value = number();
        if (value <= most)
            return value;
        fail(std::string(of) + ": " + std::to_string(value) + " is too much");
        return 0;
    }

    // The ordinal of one of so many.
    std::uint32_t ordinal(std::size_t count, const char *of)
    {
        const std::uint64_t value = number();
        if (value < count)
            return static_cast<std::uint32_t>(value);
        fail(std::string(of) + " " + std::to_string(value) + " of " +
             std::to_string(count));
        return 0;
    }

    std::string text()
    {
        const std::size_t bytes = number(max_text, "text");
        if (!good())
            return {};
        if (content_.size() - at_ < bytes) {
            ran_out_ = true;
            return {};
        }
        std::string out(reinterpret_cast<const char *>(content_.data()) + at_,
                        bytes);
        at_ += bytes;
        return out;
    }

    std::uint32_t stream() { return ordinal(streams_, "stream"); }

    place named()
    {
        place out;
        out.allocation = ordinal(out_.allocations.size(), "allocation");
        out.offset = number();
        if (good() && out.offset >= out_.allocations[out.allocation].bytes)
            fail("an offset beyond its allocation");
        return out;
    }

    place place_or_none()
    {
        const std::uint64_t next = number();
        place out;
        if (next == 0 || !good())
            return out;
        if (next - 1 >= out_.allocations.size()) {
            fail("allocation " + std::to_string(next - 1) + " of " +
                 std::to_string(out_.allocations.size()));
            return out;
        }
        out.allocation = static_cast<std::uint32_t>(next - 1);
        out.offset = number();
        if (good() && out.offset >= out_.allocations[out.allocation].bytes)
            fail("an offset beyond its allocation");
        return out;
    }

    void header()
    {
        for (const char each : magic)
            if (good() && byte() != static_cast<unsigned char>(each))
                fail("the file is no tape");
        if (ran_out_) {
            ran_out_ = false;
            fail("the file is no tape");
        }
        const std::uint64_t is = number();
        if (good() && (is < first_version || is > version))
            fail("version " + std::to_string(is) + " of the format, not " +
                 std::to_string(first_version) + " to " +
                 std::to_string(version));
        version_ = is;
    }

    std::uint32_t add_allocation(memory_kind kind, std::uint64_t bytes,
                                 std::uint32_t order)
    {
        if (out_.allocations.size() >= none - 1)
            fail("too many allocations");
        if (bytes == 0)
            fail("an allocation of no bytes");
        if (!good())
            return none;
        allocation made;
        made.kind = kind;
        made.bytes = bytes;
        made.stream = order;
        made.born = out_.steps.size();
        out_.allocations.push_back(made);
        return static_cast<std::uint32_t>(out_.allocations.size() - 1);
    }

    void gone(std::uint32_t which)
    {
        if (!good())
            return;
        allocation &was = out_.allocations[which];
        if (was.gone != SIZE_MAX)
            fail("allocation " + std::to_string(which) + " is freed twice");
        freed_ = which;
    }

    // Reads the place of a part, in an allocation that is there.
    void read_part(std::uint32_t which)
    {
        const place of = named();
        if (!good())
            return;
        const allocation &around = out_.allocations[of.allocation];
        allocation &made = out_.allocations[which];
        if (of.allocation == which || !takes_vram(around.kind) ||
            around.gone != SIZE_MAX || made.bytes > around.bytes - of.offset)
            fail("a part that lies in no allocation");
        else
            made.of = of;
    }

    node read_node()
    {
        node out;
        out.kind = static_cast<node_kind>(
            number(static_cast<std::uint64_t>(node_kind::count) - 1, "node"));
        switch (out.kind) {
        case node_kind::kernel:
            out.shape = ordinal(out_.shapes.size(), "shape");
            if (good())
                for (std::size_t i = out_.shapes[out.shape].positions.size();
                     i > 0 && good(); i--)
                    out.names.push_back(named());
            break;
        case node_kind::copy:
            out.bytes = number(max_bytes, "bytes");
            out.to = place_or_none();
            out.from = place_or_none();
            break;
        case node_kind::fill:
            out.bytes = number(max_bytes, "bytes");
            out.to = place_or_none();
            break;
        case node_kind::allocate:
            out.bytes = number(max_bytes, "bytes");
            out.allocation = add_allocation(memory_kind::graph, out.bytes, 0);
            break;
        case node_kind::free:
            out.to = place_or_none();
            break;
        case node_kind::other:
        case node_kind::count:
            break;
        }
        return out;
    }

    void read_nodes(graph &into)
    {
        const std::size_t count = number(max_nodes, "nodes");
        for (std::size_t i = 0; i < count && good(); i++)
            into.nodes.push_back(read_node());
        into.count = static_cast<std::uint32_t>(into.nodes.size());
    }

    void one()
    {
        const auto what = static_cast<code>(byte());
        switch (what) {
        case code::end:
            out_.ended = good();
            return;
        case code::about: {
            std::string key = text();
            std::string value = text();
            if (good())
                out_.about.emplace_back(std::move(key), std::move(value));
            return;
        }
        case code::kernel: {
            std::string name = text();
            if (good())
                out_.kernels.push_back(std::move(name));
            return;
        }
        case code::shape:
            return read_shape();
        case code::stream:
            if (streams_ == none - 1)
                fail("too many streams");
            streams_++;
            return;
        case code::duration:
            return read_duration();
        case code::overhead: {
            const std::uint64_t ns = number(max_ns, "time");
            if (good())
                overheads_.push_back(ns);
            return;
        }
        default:
            return read_step(what);
        }
    }

    void read_shape()
    {
        shape made;
        made.kernel = ordinal(out_.kernels.size(), "kernel");
        for (auto &each : made.grid)
            each = static_cast<std::uint32_t>(number(UINT32_MAX, "grid"));
        for (auto &each : made.block)
            each = static_cast<std::uint32_t>(number(UINT32_MAX, "block"));
        made.shared_bytes =
            static_cast<std::uint32_t>(number(UINT32_MAX, "shared memory"));
        const std::size_t count = number(max_positions, "addresses");
        std::uint64_t position = 0;
        for (std::size_t i = 0; i < count && good(); i++) {
            position += number(UINT32_MAX, "position");
            if (position > UINT32_MAX)
                fail("a position of a parameter is too much");
            made.positions.push_back(static_cast<std::uint32_t>(position));
        }
        if (good())
            out_.shapes.push_back(std::move(made));
    }

    void read_duration()
    {
        const std::uint64_t back = number();
        const std::uint64_t ns = number(max_ns, "time");
        if (good() && (back == 0 || back > works_.size()))
            fail("a time of work that there was not");
        if (!good())
            return;
        step &of = out_.steps[works_[works_.size() - back]];
        out_.timed += of.ns == 0 ? 1 : 0;
        of.ns = std::max<std::uint64_t>(ns, 1);
    }

    static bool is_of_graphs(code what)
    {
        return (what >= code::graph && what <= code::graph_gone) ||
               what == code::graph_changed || what == code::node_changed;
    }

    // The fields of a record behind its times.
    void read_memory(step &made)
    {
        switch (made.what) {
        case code::allocate: {
            const memory_kind last =
                version_ > 1 ? memory_kind::part : memory_kind::graph;
            const auto kind = static_cast<memory_kind>(
                number(static_cast<std::uint64_t>(last), "memory"));
            made.bytes = number(max_bytes, "bytes");
            made.stream = stream();
            made.which = add_allocation(kind, made.bytes, made.stream);
            if (kind == memory_kind::part)
                read_part(made.which);
            break;
        }
        case code::free: {
            made.which = ordinal(out_.allocations.size(), "allocation");
            const std::uint64_t order = number();
            made.waits = order == 0;
            if (good() && order > streams_)
                fail("stream " + std::to_string(order - 1) + " of " +
                     std::to_string(streams_));
            made.stream =
                order == 0 ? 0 : static_cast<std::uint32_t>(order - 1);
            gone(made.which);
            break;
        }
        default:
            break;
        }
    }

    void read_work(step &made)
    {
        switch (made.what) {
        case code::launch:
            made.which = ordinal(out_.shapes.size(), "shape");
            made.stream = stream();
            made.first_name = out_.names.size();
            if (good())
                for (std::size_t i = out_.shapes[made.which].positions.size();
                     i > 0 && good(); i--)
                    out_.names.push_back(named());
            made.names = out_.names.size() - made.first_name;
            break;
        case code::copy:
            made.way = static_cast<copy_kind>(number(
                static_cast<std::uint64_t>(copy_kind::count) - 1, "copy"));
            made.waits = number(flag_waits, "flags") != 0;
            made.stream = stream();
            made.bytes = number(max_bytes, "bytes");
            made.to = place_or_none();
            made.from = place_or_none();
            break;
        case code::fill:
            made.waits = number(flag_waits, "flags") != 0;
            made.stream = stream();
            made.bytes = number(max_bytes, "bytes");
            made.to = place_or_none();
            break;
        default:
            break;
        }
    }

    void read_graph(step &made)
    {
        switch (made.what) {
        case code::graph:
        case code::graph_changed: {
            graph next;
            next.ordinal = made.what == code::graph
                               ? static_cast<std::uint32_t>(versions_.size())
                               : ordinal(versions_.size(), "graph");
            read_nodes(next);
            add_version(std::move(next), made, made.what == code::graph);
            break;
        }
        case code::node_changed: {
            const std::uint32_t which = ordinal(versions_.size(), "graph");
            if (!good())
                break;
            const std::uint32_t last = versions_[which];
            const std::uint32_t at = ordinal(out_.graphs[last].count, "node");
            node changed;
            changed.kind = node_kind::kernel;
            changed.shape = ordinal(out_.shapes.size(), "shape");
            if (good())
                for (std::size_t i =
                         out_.shapes[changed.shape].positions.size();
                     i > 0 && good(); i--)
                    changed.names.push_back(named());
            if (!good())
                break;
            change_node(last, at, std::move(changed), made);
            break;
        }
        case code::graph_launch: {
            const std::uint32_t which = ordinal(versions_.size(), "graph");
            made.stream = stream();
            if (good()) {
                made.which = versions_[which];
                launched_[made.which] = true;
            }
            break;
        }
        case code::graph_gone: {
            const std::uint32_t which = ordinal(versions_.size(), "graph");
            if (good())
                made.which = versions_[which];
            break;
        }
        default:
            break;
        }
    }

    void read_order(step &made)
    {
        switch (made.what) {
        case code::event_record:
            made.event = ordinal(std::size_t{events_} + 1, "event");
            made.stream = stream();
            if (good() && made.event == events_)
                new_event_ = true;
            break;
        case code::event_wait:
            made.stream = stream();
            made.event = ordinal(events_, "event");
            break;
        case code::synchronize: {
            made.which = static_cast<std::uint32_t>(number(
                static_cast<std::uint64_t>(wait_kind::count) - 1, "wait"));
            const auto kind = static_cast<wait_kind>(made.which);
            if (kind == wait_kind::stream)
                made.stream = stream();
            else if (kind == wait_kind::event)
                made.event = ordinal(events_, "event");
            else
                number(0, "context");
            break;
        }
        case code::stream_gone:
        case code::host_work:
            made.stream = stream();
            break;
        case code::mark:
            made.which = static_cast<std::uint32_t>(number(UINT32_MAX, "mark"));
            break;
        default:
            break;
        }
    }

    void read_step(code what)
    {
        if (what < code::allocate || what > code::host_work) {
            char hex[32];
            std::snprintf(hex, sizeof hex, "an unknown record %#x",
                          static_cast<unsigned>(what));
            return fail(hex);
        }
        step made;
        made.what = what;
        made.gap = number(max_ns, "time");
        made.took = number(max_ns, "time");
        freed_ = none;
        if (what < code::launch)
            read_memory(made);
        else if (what < code::graph)
            read_work(made);
        else if (is_of_graphs(what))
            read_graph(made);
        else
            read_order(made);
        if (out_.steps.size() >= max_steps)
            fail("more than " + std::to_string(max_steps) + " calls");
        if (!good())
            return;
        if (freed_ != none)
            out_.allocations[freed_].gone = out_.steps.size();
        if (new_event_)
            events_++;
        new_event_ = false;
        if (what == code::launch || what == code::graph_launch)
            works_.push_back(out_.steps.size());
        out_.steps.push_back(made);
    }

    static std::size_t weight_of(const node &is) { return 1 + is.names.size(); }

    static std::size_t weight_of(const graph &is)
    {
        std::size_t sum = 0;
        for (const node &each : is.nodes)
            sum += weight_of(each);
        return sum;
    }

    // A graph's node becomes another. Only what was launched as it was is kept
    // as it was.
    void change_node(std::uint32_t last, std::uint32_t at, node changed,
                     step &made)
    {
        made.which = last;
        if (!launched_[last]) {
            graph &same = out_.graphs[last];
            if (same.whole == last)
                same.nodes[at] = std::move(changed);
            else {
                same.changes_weight += weight_of(changed);
                same.changes.emplace_back(at, std::move(changed));
            }
            return;
        }
        graph next;
        next.ordinal = out_.graphs[last].ordinal;
        next.count = out_.graphs[last].count;
        next.whole = out_.graphs[last].whole;
        next.before = last;
        next.changes_weight =
            out_.graphs[last].changes_weight + weight_of(changed);
        next.changes.emplace_back(at, std::move(changed));
        // Whole again, once its changes are as long as itself.
        const bool is_whole =
            next.changes_weight >= out_.graphs[next.whole].weight;
        add_version(std::move(next), made, false);
        if (!is_whole)
            return;
        std::vector<node> nodes;
        for (const node *each : nodes_of(out_, made.which))
            nodes.push_back(*each);
        graph &now = out_.graphs[made.which];
        now.nodes = std::move(nodes);
        now.changes.clear();
        now.changes_weight = 0;
        now.whole = made.which;
        now.weight = weight_of(now);
    }

    void add_version(graph next, step &made, bool is_new)
    {
        if (!good())
            return;
        const auto place = static_cast<std::uint32_t>(out_.graphs.size());
        if (is_new)
            versions_.push_back(place);
        else
            versions_[next.ordinal] = place;
        made.which = place;
        if (next.before == none) {
            next.whole = place;
            next.weight = weight_of(next);
        }
        out_.graphs.push_back(std::move(next));
        launched_.push_back(false);
    }

    static std::uint64_t median(std::vector<std::uint64_t> &of)
    {
        if (of.empty())
            return 0;
        const auto middle =
            of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
        std::nth_element(of.begin(), middle, of.end());
        return *middle;
    }

    // Takes what timing costs off all times, and finds the usual ones.
    void settle()
    {
        out_.overhead_ns = median(overheads_);
        std::map<std::uint32_t, std::vector<std::uint64_t>> of_shape;
        std::map<std::uint32_t, std::vector<std::uint64_t>> of_graph;
        for (const std::size_t each : works_) {
            step &of = out_.steps[each];
            if (of.ns == 0)
                continue;
            of.ns =
                of.ns > out_.overhead_ns + 500 ? of.ns - out_.overhead_ns : 500;
            if (of.what == code::launch)
                of_shape[of.which].push_back(of.ns);
            else
                of_graph[out_.graphs[of.which].ordinal].push_back(of.ns);
        }
        for (auto &[which, times] : of_shape)
            out_.shapes[which].ns = median(times);
        std::map<std::uint32_t, std::uint64_t> usual;
        for (auto &[which, times] : of_graph)
            usual[which] = median(times);
        for (graph &each : out_.graphs)
            if (const auto found = usual.find(each.ordinal);
                found != usual.end())
                each.ns = found->second;
    }

    std::span<const unsigned char> content_;
    tape &out_;
    std::size_t at_ = 0;
    bool ran_out_ = false;
    std::string why_;
    std::uint64_t version_ = version;
    std::uint32_t streams_ = first_own_stream;
    std::uint32_t events_ = 0;
    bool new_event_ = false;
    std::uint32_t freed_ = none;
    std::vector<std::uint32_t> versions_; // of each executable graph, the last
    std::vector<bool> launched_;          // by version
    std::vector<std::size_t> works_;      // steps that are launches
    std::vector<std::uint64_t> overheads_;
};

bool read_all(int from, std::vector<unsigned char> &out, std::size_t most)
{
    std::array<unsigned char, 1 << 16> some;
    for (;;) {
        const ssize_t got = ::read(from, some.data(), some.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return false;
        if (got == 0)
            return true;
        if (out.size() + static_cast<std::size_t>(got) > most) {
            errno = EFBIG;
            return false;
        }
        out.insert(out.end(), some.data(), some.data() + got);
    }
}

// Has a program unpack a file, which is its standard input.
bool unpack(int file, char *name, std::vector<unsigned char> &out)
{
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, file, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    char options[] = "-dcq";
    char *const words[] = {name, options, nullptr};
    pid_t child = -1;
    const int error =
        posix_spawnp(&child, name, &actions, nullptr, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    bool good = error == 0 && read_all(ends[0], out, max_file);
    const int kept = error != 0 ? error : errno;
    ::close(ends[0]);
    if (error == 0) {
        int status = 0;
        ::waitpid(child, &status, 0);
        if (good && status != 0) {
            errno = EIO;
            return false;
        }
    }
    errno = kept;
    return good;
}

bool write_all(int to, std::span<const unsigned char> what)
{
    while (!what.empty()) {
        const ssize_t done = ::write(to, what.data(), what.size());
        if (done >= 0)
            what = what.subspan(static_cast<std::size_t>(done));
        else if (errno != EINTR)
            return false;
    }
    return true;
}

// Compressed tapes are unpacked by who compressed them.
enum class packer
{
    none,
    zstd,
    gzip,
};

packer packer_of(std::span<const unsigned char> begins)
{
    constexpr std::array<unsigned char, 4> of_zstd = {0x28, 0xb5, 0x2f, 0xfd};
    if (begins.size() < of_zstd.size())
        return packer::none;
    if (std::equal(of_zstd.begin(), of_zstd.end(), begins.begin()))
        return packer::zstd;
    return begins[0] == 0x1f && begins[1] == 0x8b ? packer::gzip : packer::none;
}

// A file that can be read again from its begin, at which it stands.
bool read_whole(int file, tape &out, wrong &error)
{
    char zstd[] = "zstd";
    char gzip[] = "gzip";
    std::array<unsigned char, 4> first{};
    const packer by = ::pread(file, first.data(), first.size(), 0) == 4
                          ? packer_of(first)
                          : packer::none;
    std::vector<unsigned char> content;
    char *const name = by == packer::zstd ? zstd : gzip;
    if (by == packer::none ? !read_all(file, content, max_file)
                           : !unpack(file, name, content)) {
        error.why = (by == packer::none
                         ? std::string()
                         : "unpacking it by " + std::string(name) + ": ") +
                    std::strerror(errno);
        return false;
    }
    return read(content, out, error);
}

} // namespace

bool read(std::span<const unsigned char> content, tape &out, wrong &error)
{
    out = tape();
    return reader(content, out).read(error);
}

bool read_file(const std::string &path, tape &out, wrong &error)
{
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        error.why = std::strerror(errno);
        return false;
    }
    const bool good = read_file(file, {}, out, error);
    ::close(file);
    return good;
}

bool read_file(int file, std::span<const unsigned char> begun, tape &out,
               wrong &error)
{
    if (::lseek(file, 0, SEEK_SET) == 0)
        return read_whole(file, out, error);
    std::vector<unsigned char> content(begun.begin(), begun.end());
    if (!read_all(file, content, max_file)) {
        error.why = std::strerror(errno);
        return false;
    }
    if (packer_of(content) == packer::none)
        return read(content, out, error);
    // The program that unpacks it reads it from its begin.
    const int copy = ::memfd_create("emuv-tape", MFD_CLOEXEC);
    const bool written = copy >= 0 && write_all(copy, content) &&
                         ::lseek(copy, 0, SEEK_SET) == 0;
    if (!written)
        error.why = std::strerror(errno);
    const bool good = written && read_whole(copy, out, error);
    if (copy >= 0)
        ::close(copy);
    return good;
}

std::string_view tape::said(std::string_view key) const
{
    for (const auto &[name, value] : about)
        if (name == key)
            return value;
    return {};
}

std::vector<const node *> nodes_of(const tape &in, std::size_t which)
{
    std::vector<const node *> out;
    const graph &is = in.graphs[which];
    for (const node &each : in.graphs[is.whole].nodes)
        out.push_back(&each);
    std::vector<const graph *> later;
    for (std::size_t at = which; at != is.whole; at = in.graphs[at].before)
        later.push_back(&in.graphs[at]);
    for (auto each = later.rbegin(); each != later.rend(); ++each)
        for (const auto &[at, changed] : (*each)->changes)
            out[at] = &changed;
    return out;
}

std::uint64_t time_of(const tape &in, const step &launch,
                      std::uint64_t otherwise)
{
    if (launch.ns != 0)
        return launch.ns;
    const std::uint64_t usual = in.shapes[launch.which].ns;
    return usual != 0 ? usual : otherwise;
}

std::vector<std::uint64_t> times_of(const tape &in, const step &launch)
{
    const graph &of = in.graphs[launch.which];
    const std::uint64_t whole = launch.ns != 0 ? launch.ns : of.ns;
    std::vector<std::uint64_t> out;
    double sum = 0;
    for (const node *each : nodes_of(in, launch.which)) {
        std::uint64_t ns = 0;
        if (each->kind == node_kind::kernel)
            ns = in.shapes[each->shape].ns != 0 ? in.shapes[each->shape].ns
                                                : 2000;
        else if (each->kind == node_kind::copy || each->kind == node_kind::fill)
            ns = 1500 + each->bytes / 1000; // a terabyte a second
        out.push_back(ns);
        sum += static_cast<double>(ns);
    }
    if (whole != 0 && sum > 0)
        for (std::uint64_t &each : out)
            each = static_cast<std::uint64_t>(static_cast<double>(each) *
                                              static_cast<double>(whole) / sum);
    return out;
}

summary summarize(const tape &of)
{
    summary out;
    std::uint64_t now = 0;
    std::uint64_t marked = 0;
    bool any_mark = false;
    std::vector<std::uint64_t> between;
    std::vector<bool> alive(of.allocations.size());
    const auto change = [&](std::uint32_t which, bool comes) {
        const allocation &is = of.allocations[which];
        if (!takes_vram(is.kind) || alive[which] == comes)
            return;
        alive[which] = comes;
        now = comes ? now + is.bytes : now - std::min(now, is.bytes);
        out.peak_bytes = std::max(out.peak_bytes, now);
    };
    graph_memory held;
    for (const step &each : of.steps) {
        out.host_ns += each.gap + each.took;
        switch (each.what) {
        case code::allocate:
            out.allocations++;
            change(each.which, true);
            break;
        case code::free:
            change(each.which, false);
            break;
        case code::launch:
            out.launches++;
            out.device_ns += time_of(of, each, 0);
            break;
        case code::graph_launch:
            out.graph_launches++;
            out.device_ns += each.ns != 0 ? each.ns : of.graphs[each.which].ns;
            break;
        case code::graph:
        case code::graph_changed:
        case code::graph_gone:
            held.change(of, each, change);
            break;
        case code::copy:
            out.copies++;
            out.copied_bytes += each.bytes;
            break;
        case code::fill:
            out.fills++;
            break;
        case code::synchronize:
            out.waits++;
            break;
        case code::mark:
            out.marks++;
            if (any_mark)
                between.push_back(out.host_ns - marked);
            marked = out.host_ns;
            any_mark = true;
            break;
        default:
            break;
        }
    }
    if (!between.empty()) {
        const auto middle =
            between.begin() + static_cast<std::ptrdiff_t>(between.size() / 2);
        std::nth_element(between.begin(), middle, between.end());
        out.step_ns = *middle;
    }
    return out;
}

} // namespace emuv::tape

// SPDX-License-Identifier: GPL-2.0-or-later
// Findings: messages about memory that ran out, as plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emuv::diagnose {

/// The origin of a message.
enum class source
{
    pytorch,
    pytorch_host, ///< PyTorch's tensors in system RAM
    numpy,
    pytorch_workers,
    pytorch_summary,
    pytorch_snapshot,
    xla,
    tensorflow,
    ggml,
    vllm,
    cuda, ///< a call of CUDA's, without figures
    emuv,
    oom_killer,
    container,
    shell,
};

/// Which memory ran out.
enum class memory_kind
{
    vram,
    ram,
    unknown, ///< the text does not tell
};

/// The part of a program that asked.
enum class phase
{
    unknown,
    loading,
    attention,
    logits,
    backward,
    optimizer,
};

enum class cause_kind
{
    too_small,     ///< more is needed than there is
    fragmentation, ///< enough is cached, in pieces
    oversized,     ///< one tensor is a large part of the memory
    leak,          ///< what is held only grows
    others,        ///< others hold what is missing
    limit,         ///< a limit refuses, not the memory itself
    unknown,       ///< the text does not tell
};

struct cause
{
    cause_kind kind = cause_kind::unknown;
    std::string why; ///< a sentence with the figures that show it
};

/// A thing to do.
struct remedy
{
    int cost = 0; ///< the order; 0 costs nothing
    std::string what;
    std::string price;
    std::string line; ///< to type, or to put into the program
};

/// A figure that is known. A size that was printed in GiB is known to half of
/// its last digit.
struct figure
{
    std::uint64_t bytes = 0;
    std::uint64_t slack = 0; ///< it is within so many bytes
};

/// One message, read.
struct finding
{
    source from = source::cuda;
    memory_kind memory = memory_kind::unknown;
    bool ran_out = true;  ///< false for a table of a program that goes on
    std::size_t line = 0; ///< where the message begins; 0 in a binary file
    std::size_t times = 1;
    std::string device;  ///< "GPU 0"; empty where it is not told
    std::string process; ///< "python3 (4242)"

    std::optional<figure> asked;
    std::optional<figure> held;   ///< by the program's own tensors or pages
    std::optional<figure> cached; ///< kept by its allocator, and not used
    std::optional<figure> process_total; ///< all that its process has
    std::optional<figure> free;
    std::optional<figure> total; ///< the card's, the machine's, the container's
    std::optional<figure> limit; ///< below the total
    std::optional<figure> peak;
    /// Tokens of a context: wanted, and those that there is room for.
    std::optional<std::uint64_t> tokens_asked;
    std::optional<std::uint64_t> tokens_fit;

    bool under_emuv = false; ///< its limits refused the same request
    bool only_vram = false;  ///< the request could not be met by system RAM
    /// False where larger limits of emuV's change nothing: they have room, or
    /// the device is none of CUDA's.
    bool emuv_can_help = true;
    /// The system RAM that emuV grants.
    std::optional<figure> granted;
    double link_rate = 0; ///< bytes a second, where emuV measured it; or 0

    phase at = phase::unknown;
    std::string where;  ///< "train.py:42, in forward"
    std::string tensor; ///< "f32[8,32,4096,4096]": as the text has it
    std::vector<std::string> notes;     ///< facts that are no figure
    std::vector<std::string> same_size; ///< tensors that have the asked size
    std::vector<cause> causes;          ///< the most important one first
    std::vector<remedy> remedies;       ///< in order of cost
};

/// A text, or the file of a memory snapshot, read as far as it is known.
struct diagnosis
{
    std::vector<finding> findings; ///< the most telling one first
    std::string problem; ///< why there are none, where more can be said
};

/// Reads what somebody pasted. Never fails, and takes memory in proportion to
/// @p data alone, whatever that claims.
diagnosis diagnose(std::string_view data);

/// A screenful: the first finding, and a line for each other.
/// @param width  columns
std::string screen(const diagnosis &of, std::size_t width);

const char *to_text(source of);
const char *to_text(memory_kind of);
const char *to_text(phase of);
const char *to_text(cause_kind of);

} // namespace emuv::diagnose

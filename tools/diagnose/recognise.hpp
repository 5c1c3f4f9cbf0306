// SPDX-License-Identifier: GPL-2.0-or-later
// The recognisers: each knows the messages of one source.
#pragma once

#include "finding.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace emuv::diagnose {

// Each takes cleaned() text, and answers with the last message of its kind.
std::optional<finding> find_pytorch(std::string_view text);
std::optional<finding> find_host_arrays(std::string_view text);
std::optional<finding> find_workers(std::string_view text);
std::optional<finding> find_memory_summary(std::string_view text);
std::optional<finding> find_xla(std::string_view text);
std::optional<finding> find_tensorflow(std::string_view text);
std::optional<finding> find_ggml(std::string_view text);
std::optional<finding> find_vllm(std::string_view text);
std::optional<finding> find_cuda(std::string_view text);
std::optional<finding> find_emuv(std::string_view text);
std::optional<finding> find_oom_killer(std::string_view text);
std::optional<finding> find_container(std::string_view text);
std::optional<finding> find_shell(std::string_view text);

/// True if this may be a pickle.
bool looks_like_pickle(std::string_view data);
/// A snapshot of torch.cuda.memory, as a pickle.
/// @param problem  out: why it is none
std::optional<finding> find_snapshot(std::string_view data,
                                     std::string &problem);

/// Fills phase and place from the Python traceback that ends before @p at.
void read_traceback(std::string_view text, std::size_t at, finding &into);

/// The tensors of usual shapes that have this size, a phrase each.
std::vector<std::string> tensors_of(const figure &asked);
/// A phrase for a tensor of this shape; empty where none is usual.
std::string kind_of_tensor(const std::vector<std::uint64_t> &shape);
/// Reads "[8,32,4096,4096]" from its bracket on; empty where it is none.
std::vector<std::uint64_t> read_shape(std::string_view text);

/// Fills causes by the figures.
void judge(finding &of);
/// Fills remedies by the causes.
void advise(finding &of);

/// The link's rate as emuV's line about the first spill tells it, in bytes a
/// second; 0 if no line does.
double link_rate_of(std::string_view text);

} // namespace emuv::diagnose

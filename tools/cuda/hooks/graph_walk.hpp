// SPDX-License-Identifier: LGPL-2.1-or-later
// Graphs as a whole: their nodes. A node that stands for several follows its
// graph into copies, and goes with it.
#pragma once

#include "hooks/cut_nodes.hpp"

#include <vector>

#include <cuda.h>

namespace emuv::cuda {

/// Asks for a graph's nodes, in the order in which they were made.
/// @return false if the driver does not tell
bool ask_nodes(CUgraph graph, std::vector<CUgraphNode> &out);

/// A node that stands for several does so in a copy of the graph, too.
void follow_clone(cut_nodes &nodes, CUgraph original, CUgraph clone);

/// The graph goes, and its children with it.
void forget(cut_nodes &nodes, CUgraph graph);

/// A child graph is a copy of the graph it was made from, or that itself,
/// moved.
/// @param node  the child graph's
void follow_child(CUgraphNode node, CUgraph original);

} // namespace emuv::cuda

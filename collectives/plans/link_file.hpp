// Measured rates of a cluster's links, and their file, a JSON object:
//
//   {"intra_node": {"latency_seconds": 2e-6, "bytes_per_second": 6e9, "node_bytes_per_second": 12e9},
//    "inter_node": {"latency_seconds": 4e-5, "bytes_per_second": 2.5e7, "node_bytes_per_second": 2.5e7}}
//
// A class without links is missing, for instance if all ranks share a node.
#pragma once

#include "runtime/machine/machine_profile.hpp"

#include <span>
#include <string_view>

namespace ranvier::collectives {

using runtime::Link;
using runtime::Links;
using runtime::parse_links;
using runtime::read_links;
using runtime::to_json;

/// Throws ErrorCode::usage that starts with `source` if ranks on these nodes have links of an unmeasured class.
void require_classes(const Links& links, std::span<const int> node_of, std::string_view source);

}  // namespace ranvier::collectives

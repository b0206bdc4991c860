// Measured rates of a cluster's links, and their file, a JSON object:
//
//   {"intra_node": {"latency_seconds": 2e-6, "bytes_per_second": 6e9, "node_bytes_per_second": 12e9},
//    "inter_node": {"latency_seconds": 4e-5, "bytes_per_second": 2.5e7, "node_bytes_per_second": 2.5e7}}
//
// A class without links is missing, for instance if all ranks share a node.
#pragma once

#include "runtime/machine/machine_profile.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace ranvier::collectives {

using runtime::Link;
using runtime::Links;

/// Parses exactly this form, with at least one class. Throws ErrorCode::usage that starts with `source` and names the
/// missing, unknown or invalid class or key (latency at least 0, rates above 0).
[[nodiscard]] Links parse_links(std::string_view text, std::string_view source);

/// Throws ErrorCode::usage like parse_links(), also if the file cannot be read.
[[nodiscard]] Links read_links(const std::filesystem::path& path);

/// Throws ErrorCode::usage that starts with `source` if ranks on these nodes have links of an unmeasured class.
void require_classes(const Links& links, std::span<const int> node_of, std::string_view source);

/// Text for parse_links(), with all significant digits.
[[nodiscard]] std::string to_json(const Links& links);

}  // namespace ranvier::collectives

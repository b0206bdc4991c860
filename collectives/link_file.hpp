// What the links of a cluster were measured to do, and the file that says so: a JSON object such as
//
//   {"intra_node": {"latency_seconds": 2e-6, "bytes_per_second": 6e9, "node_bytes_per_second": 12e9},
//    "inter_node": {"latency_seconds": 4e-5, "bytes_per_second": 2.5e7, "node_bytes_per_second": 2.5e7}}
//
// A class that there was none of, as where all ranks were on one node, is left out.
#pragma once

#include "runtime/links.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace ranvier::collectives {

using runtime::Link;
using runtime::Links;

/// Exactly the form above, with one class at least. Throws ErrorCode::usage that begins with `source` and names the
/// class or key that is missing, unknown, or not a number that makes sense (latency 0 or more, rates above 0).
[[nodiscard]] Links parse_links(std::string_view json, std::string_view source);

/// Throws ErrorCode::usage as parse_links does, also if the file cannot be read.
[[nodiscard]] Links read_links(const std::filesystem::path& path);

/// Throws ErrorCode::usage that begins with `source` if ranks on these nodes, by rank, have links of a class that was
/// not measured.
void require_classes(const Links& links, std::span<const int> node_of, std::string_view source);

/// What parse_links reads, to all digits that count.
[[nodiscard]] std::string to_json(const Links& links);

}  // namespace ranvier::collectives

// Check of measured links against the nodes of a run's ranks. runtime/machine/machine_profile.hpp reads their file.
// Pure; any thread.
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

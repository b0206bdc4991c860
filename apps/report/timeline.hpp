// All ranks in a step below each other, as SVG: what each of them did when. Pure; any thread.
#pragma once

#include "apps/report/run_file.hpp"

#include <string>

namespace ranvier::apps {

/// A <figure> for a page that has styles for it, with keys; empty: the trace has no whole step.
[[nodiscard]] std::string timeline(const RunFile& run);

/// The same as a file of its own, readable on white as on black, with microbatches written into what is wide enough.
/// `title`: what is above it; empty: what the configuration says. Throws ErrorCode::data where the trace has no whole
/// step.
[[nodiscard]] std::string timeline_file(const RunFile& run, const std::string& title);

}  // namespace ranvier::apps

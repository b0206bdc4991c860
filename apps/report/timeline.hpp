// Draws one step of all ranks as an SVG picture, one row per rank. Pure functions, callable from any thread.
#pragma once

#include "apps/report/run_file.hpp"

#include <string>

namespace ranvier::apps {

/// Text of an SVG file for light and dark background, with microbatch numbers in wide spans. `title`: heading; empty:
/// step, duration and grid. Throws ErrorCode::data if the trace has no complete step.
[[nodiscard]] std::string timeline_file(const RunFile& run, const std::string& title);

}  // namespace ranvier::apps

// --trace: what all ranks did, as one file for Chrome or Perfetto. Any thread.
#pragma once

#include <span>
#include <string>

namespace ranvier::apps {

/// `events` has a rank's each. Returns why nothing was written, or nothing: a picture of a run is not worth the
/// run.
[[nodiscard]] std::string write_trace(const std::string& path, std::span<const std::string> events);

}  // namespace ranvier::apps

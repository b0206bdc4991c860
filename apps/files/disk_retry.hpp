// Retries a save for a while if the disk is full or the folder is missing. Prints a warning once per wait. Callable
// from any thread, one at a time.
#pragma once

#include "runtime/base/clock.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace ranvier::apps {

class DiskRetry {
 public:
  /// `patience`: longest duration of a wait. `what` and `bytes`: the saved object and its size, for the warning: "the
  /// weights take".
  DiskRetry(runtime::Duration patience, std::string what, std::uint64_t bytes)
      : patience_(patience), what_(std::move(what)), bytes_(bytes) {}

  /// Callback for AtomicFile::Retry: creates the parent folder of `path`, sleeps, and returns whether to try again.
  [[nodiscard]] bool operator()(const std::filesystem::path& path, int error);

 private:
  runtime::Duration patience_;
  std::string what_;
  std::uint64_t bytes_;
  std::optional<std::chrono::steady_clock::time_point> waiting_since_;
  std::chrono::steady_clock::time_point refused_{};  // time of the last failure
};

}  // namespace ranvier::apps

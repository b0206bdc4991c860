// How a save that nothing else has waits for somebody to mend its disk: where that is full or its folder is gone, it
// says so and tries again for a while. Any thread, one at a time.
#pragma once

#include "runtime/clock.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace ranvier::apps {

class DiskRetry {
 public:
  /// `patience` is how long each wait may last, `what` is saved and takes so many bytes: "the weights take".
  DiskRetry(runtime::Duration patience, std::string what, std::uint64_t bytes)
      : patience_(patience), what_(std::move(what)), bytes_(bytes) {}

  /// As AtomicFile::Retry: sleeps a while, and makes the folder that `path` lies in; whether to try again.
  [[nodiscard]] bool operator()(const std::filesystem::path& path, int error);

 private:
  runtime::Duration patience_;
  std::string what_;
  std::uint64_t bytes_;
  std::optional<std::chrono::steady_clock::time_point> waiting_since_;
  std::chrono::steady_clock::time_point refused_{};  // last
};

}  // namespace ranvier::apps

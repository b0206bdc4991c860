// Reads a complete checkpoint, by ranges of arrays; each segment's checksum is verified before use. Threads read
// ahead, with a few buffers at the disk's rate: the ranges given to will_read(), otherwise the following segments of
// an array, increasingly far ahead.
//
// Calls block. One thread at a time.
#pragma once

#include "offload/checkpoint/manifest.hpp"
#include "offload/file_system.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::offload {

struct CheckpointReaderOptions {
  int threads = 4;  ///< threads that read and verify segments
  int ahead = 8;    ///< segments kept ahead of the current one: memory is (ahead + 1) · checkpoint_segment_bytes
  /// Compare the sizes of all files with the manifest first. One rank does this for all, since each segment is
  /// verified when it is read.
  bool check_files = true;
};

/// Elements [begin, end) of an array; borrows the names.
struct CheckpointRange {
  std::string_view unit, array;
  std::uint64_t begin = 0, end = 0;
};

class CheckpointReader {
 public:
  /// Throws ErrorCode::data or ::io unless manifest and file sizes show a complete checkpoint.
  explicit CheckpointReader(std::filesystem::path checkpoint, CheckpointReaderOptions options = {},
                            const FileSystem& storage = system_storage());
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  [[nodiscard]] const Manifest& manifest() const noexcept;
  [[nodiscard]] const std::filesystem::path& path() const noexcept;

  /// The array, or null.
  [[nodiscard]] const CheckpointArray* find(std::string_view unit, std::string_view array) const;

  /// Announces the next reads, segment by segment in this order. Other reads are allowed.
  void will_read(std::span<const CheckpointRange> ranges);

  /// Reads elements [begin, begin + to.size()) as floats, from a floating-point type or int8, long ranges by several
  /// threads. Throws ErrorCode::data, naming file, offset, unit and array, if elements are missing or bytes changed,
  /// ErrorCode::io if they cannot be read. After an error, `to` may be partly written.
  void read(std::string_view unit, std::string_view array, std::uint64_t begin, std::span<float> to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A difference from the written checkpoint.
struct CheckpointDamage {
  std::string file;  ///< its name in the checkpoint's folder
  std::string what;  ///< "the 2097152 bytes at offset 4096, elements 0 to 524288 of weights of h.0, changed …"
};

/// Verifies a complete checkpoint: manifest, sizes, each segment's checksum, and unknown files. `progress` (may be
/// null) gets the number of verified bytes, from any thread, one call at a time.
[[nodiscard]] std::vector<CheckpointDamage> verify_checkpoint(
    const std::filesystem::path& checkpoint, int threads,
    const std::function<void(std::uint64_t bytes)>& progress = nullptr,
    const FileSystem& storage = system_storage());

}  // namespace ranvier::offload

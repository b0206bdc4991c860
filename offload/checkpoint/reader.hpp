// Reads a whole checkpoint back, ranges of arrays at a time, each piece checked by its checksum before a byte of it is
// used. Threads read ahead, through a few buffers and at the disk's rate: what will_read() has announced, or else,
// more and more as long as reads follow each other, what comes next in an array.
//
// Blocks. One thread at a time.
#pragma once

#include "offload/checkpoint/manifest.hpp"
#include "offload/checkpoint/storage.hpp"

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
  int threads = 4;  ///< that read and check pieces
  int ahead = 8;    ///< pieces kept beside the one that is used: memory is (ahead + 1) of checkpoint_segment_bytes
  /// Compare the sizes of all files with the manifest before anything is read. One rank of a job does it for all: each
  /// piece is checked when it is read.
  bool check_files = true;
};

/// Elements [begin, end) of an array; borrows the names.
struct CheckpointRange {
  std::string_view unit, array;
  std::uint64_t begin = 0, end = 0;
};

class CheckpointReader {
 public:
  /// Throws ErrorCode::data, or ::io, if the folder has no complete checkpoint by its manifest and its files' sizes.
  explicit CheckpointReader(std::filesystem::path checkpoint, CheckpointReaderOptions options = {},
                            const CheckpointStorage& storage = system_storage());
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  [[nodiscard]] const Manifest& manifest() const noexcept;
  [[nodiscard]] const std::filesystem::path& path() const noexcept;

  /// Elements of the array, or null.
  [[nodiscard]] const CheckpointArray* find(std::string_view unit, std::string_view array) const;

  /// What will be read next, piece after piece in this order. Reads of something else do no harm.
  void will_read(std::span<const CheckpointRange> ranges);

  /// Elements [begin, begin + to.size()), as floats whatever floating type they are kept in. Throws ErrorCode::data
  /// where the array lacks them, or where bytes are not what was written, naming file, offset, unit and array;
  /// ErrorCode::io where they cannot be read; then some of `to` may be written. What is long comes there by several
  /// threads.
  void read(std::string_view unit, std::string_view array, std::uint64_t begin, std::span<float> to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Something that is not as it was written.
struct CheckpointDamage {
  std::string file;  ///< its name in the checkpoint's folder
  std::string what;  ///< "the 2097152 bytes at offset 4096, elements 0 to 524288 of weights of h.0, are not …"
};

/// Looks at all of a checkpoint: manifest, sizes, each piece's checksum, and whether there is anything else in the
/// folder. `progress`, if any, is told of bytes that were checked, by any of the threads, one at a time.
[[nodiscard]] std::vector<CheckpointDamage> verify_checkpoint(
    const std::filesystem::path& checkpoint, int threads,
    const std::function<void(std::uint64_t bytes)>& progress = nullptr,
    const CheckpointStorage& storage = system_storage());

}  // namespace ranvier::offload

// Reads segments of a checkpoint and verifies their checksums. One per reading thread.
#pragma once

#include "offload/checkpoint/manifest.hpp"
#include "offload/checkpoint/storage.hpp"
#include "runtime/base/error.hpp"

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace ranvier::offload {

/// Buffer for one segment, on a huge page if available.
class PieceBuffer {
 public:
  PieceBuffer();
  [[nodiscard]] std::span<std::byte> first(std::size_t bytes) const { return {data_.get(), bytes}; }

 private:
  std::unique_ptr<std::byte[], void (*)(void*)> data_;
};

class SegmentLoader {
 public:
  struct Problem {
    ErrorCode code;
    std::string what;  ///< "the 4096 bytes at offset 8192, elements 0 to 7 of m of h.0, …", for the segment's file
  };

  /// All arguments must outlive the loader.
  SegmentLoader(const CheckpointStorage& storage, const std::filesystem::path& checkpoint, const Manifest& manifest)
      : storage_(storage), checkpoint_(checkpoint), manifest_(manifest) {}
  ~SegmentLoader() { close(); }
  SegmentLoader(const SegmentLoader&) = delete;
  SegmentLoader& operator=(const SegmentLoader&) = delete;

  /// Reads complete blocks, with O_DIRECT if possible. Empty: `to` has the written data.
  [[nodiscard]] std::optional<Problem> load(const CheckpointSegment& piece, const PieceBuffer& to);

 private:
  [[nodiscard]] int read(const CheckpointSegment& piece, std::span<std::byte> to);
  [[nodiscard]] int open(std::uint32_t file);
  void close();

  const CheckpointStorage& storage_;
  const std::filesystem::path& checkpoint_;
  const Manifest& manifest_;
  std::uint32_t file_ = std::numeric_limits<std::uint32_t>::max();  // the open file
  int descriptor_ = -1;
  bool direct_ = true;
};

}  // namespace ranvier::offload

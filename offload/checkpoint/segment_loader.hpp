// Reads pieces of a checkpoint and checks them. One thread at a time; each thread that reads has its own.
#pragma once

#include "offload/checkpoint/manifest.hpp"
#include "offload/checkpoint/storage.hpp"
#include "runtime/error.hpp"

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace ranvier::offload {

/// Memory for one piece, on a huge page where the system has them.
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
    std::string what;  ///< "the 4096 bytes at offset 8192, elements 0 to 7 of m of h.0, …"; of the piece's file
  };

  /// All of it outlives the loader.
  SegmentLoader(const CheckpointStorage& storage, const std::filesystem::path& checkpoint, const Manifest& manifest)
      : storage_(storage), checkpoint_(checkpoint), manifest_(manifest) {}
  ~SegmentLoader() { close(); }
  SegmentLoader(const SegmentLoader&) = delete;
  SegmentLoader& operator=(const SegmentLoader&) = delete;

  /// Whole blocks, past the system's cache where the file system allows. Empty where `to` holds what was written.
  [[nodiscard]] std::optional<Problem> load(const CheckpointSegment& piece, const PieceBuffer& to);

 private:
  [[nodiscard]] int read(const CheckpointSegment& piece, std::span<std::byte> to);
  [[nodiscard]] int open(std::uint32_t file);
  void close();

  const CheckpointStorage& storage_;
  const std::filesystem::path& checkpoint_;
  const Manifest& manifest_;
  std::uint32_t file_ = std::numeric_limits<std::uint32_t>::max();  // the one that is open
  int descriptor_ = -1;
  bool direct_ = true;
};

}  // namespace ranvier::offload

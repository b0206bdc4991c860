// Content of a checkpoint: named arrays, files, and segments of arrays in files, independent of the grid. The text
// ends with a checksum of all preceding bytes, to detect changes; README.md shows an example. Pure data; any thread.
#pragma once

#include "runtime/base/dtype.hpp"

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::offload {

/// Bytes of the largest segment, and of the buffer to write or check one.
inline constexpr std::size_t checkpoint_segment_bytes = std::size_t{2} << 20;

/// Characters of names that need no quoting anywhere.
inline constexpr std::string_view letters_and_digits =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// A state of a unit: `weights` of h.0.
struct CheckpointArray {
  std::string unit;
  std::string name;
  runtime::DType dtype = runtime::DType::f32;
  std::uint64_t elements = 0;
};

struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
};

/// Elements [begin, begin + count) of an array, in a file. Segments of int8 do not split its blocks.
struct CheckpointSegment {
  std::uint32_t array = 0, file = 0;  ///< indexes
  std::uint64_t begin = 0, count = 0;
  std::uint64_t offset = 0;  ///< bytes; a multiple of 4096
  std::uint64_t hash = 0;    ///< XXH3 of its complete blocks, including zero padding
};

struct Manifest {
  static constexpr const char* file_name = "manifest.json";
  static constexpr int version = 1;  ///< only supported version

  std::int64_t step = 0;
  std::vector<CheckpointArray> arrays;
  std::vector<CheckpointFile> files;
  std::vector<CheckpointSegment> pieces;
  boost::json::object training;  ///< scalars that affect the run, by name
  boost::json::object about;     ///< information about the run for users and tools
  std::uint64_t sum = 0;         ///< XXH3 at the end of the parsed text

  [[nodiscard]] std::uint64_t bytes_of(const CheckpointSegment& piece) const {
    return runtime::bytes_of(arrays[piece.array].dtype, piece.count);
  }
  /// Bytes of a segment in its file, in complete blocks.
  [[nodiscard]] std::uint64_t block_bytes_of(const CheckpointSegment& piece) const;
  /// Bytes of all files.
  [[nodiscard]] std::uint64_t data_bytes() const;
};

/// Non-finite numbers become null, because JSON lacks them. Boost.JSON may read a double with another last bit: store
/// exact values as integers or text.
[[nodiscard]] std::string to_json(const Manifest& manifest);

/// Parses the text of to_json(). Throws ErrorCode::data, naming `source`, unless the checksum is right and names are
/// unique and inside the folder. Segments of at most checkpoint_segment_bytes must cover each array once without
/// splitting blocks of int8, and every 4096-byte block of every file must belong to one segment.
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& source);

}  // namespace ranvier::offload

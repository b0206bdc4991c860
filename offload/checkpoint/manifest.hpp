// What a checkpoint holds and where it lies, as a file says it: named arrays, files, and pieces of arrays in files. It
// knows nothing of a grid. Pure data; any thread.
//
// Its text ends with the checksum of all bytes before, so that a byte that is not what was written is noticed here as
// it is in the data; README.md shows one.
#pragma once

#include "runtime/dtype.hpp"

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::offload {

/// Of the largest piece, and so of the memory that it takes to write or to check one.
inline constexpr std::size_t checkpoint_segment_bytes = std::size_t{2} << 20;

/// A state of a unit: the `weights` of h.0.
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

/// Elements [begin, begin + count) of an array, in a file.
struct CheckpointSegment {
  std::uint32_t array = 0, file = 0;  ///< indexes
  std::uint64_t begin = 0, count = 0;
  std::uint64_t offset = 0;  ///< bytes; a whole number of blocks of 4096
  std::uint64_t hash = 0;    ///< XXH3 of the whole blocks that it takes, zeros behind its end included
};

struct Manifest {
  static constexpr const char* file_name = "manifest.json";
  static constexpr int version = 1;  ///< the only one that is read

  std::int64_t step = 0;
  std::vector<CheckpointArray> arrays;
  std::vector<CheckpointFile> files;
  std::vector<CheckpointSegment> pieces;
  boost::json::object training;  ///< scalars that decide the future, by name
  boost::json::object about;     ///< of the run, for people and tools
  std::uint64_t sum = 0;         ///< XXH3 of the text that it was parsed from, which ends with it

  [[nodiscard]] std::uint64_t bytes_of(const CheckpointSegment& piece) const {
    return piece.count * runtime::size_of(arrays[piece.array].dtype);
  }
  /// Whole blocks: what a piece takes in its file.
  [[nodiscard]] std::uint64_t block_bytes_of(const CheckpointSegment& piece) const;
  /// Of all files.
  [[nodiscard]] std::uint64_t data_bytes() const;
};

/// Numbers that are not finite, which JSON lacks, become null. Boost.JSON may read a double back with another last bit:
/// what must come back exactly is an integer or text.
[[nodiscard]] std::string to_json(const Manifest& manifest);

/// Throws ErrorCode::data, naming `source`, unless `text` is what to_json() made of a whole checkpoint: its checksum is
/// right; names are unique, and those of files lie in the folder; every array is covered once by pieces, none larger
/// than checkpoint_segment_bytes; and every block of every file belongs to one piece.
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& source);

}  // namespace ranvier::offload

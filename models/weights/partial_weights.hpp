// Weights files while they are written, by any number of processes at once: they lie in a hidden folder until they are
// whole and on disk, and then get their names all or nothing. Until then, and after any error or crash, a reader finds
// the weights that were there before.
//
//   const auto path = partial_path(folder, "weights", job);       // known to all
//   PartialWeights partial(folder, Kind::folder, path, layout);   // one process
//   WeightWriter writer(layout, path);                            // it and others that share its disk
//   writer.put(unit, begin, values);                              // each its own parts
//   writer.close();
//   partial.commit(beside);                                       // the first one, when all have closed
//
// A killed process leaves a folder .NAME.JOB.partial; one of its files is locked as long as it is written, so that a
// later process can tell it from what nobody writes any more, and removes that. Both classes: one thread at a time.
#pragma once

#include "models/weights/weight_layout.hpp"
#include "runtime/atomic_file.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::models {

/// Small files that go beside weights: names and contents.
using FilesBeside = std::map<std::string, std::string>;

/// The hidden folder in `parent`. `job`: 16 hexadecimal digits, others for every job.
[[nodiscard]] std::filesystem::path partial_path(const std::filesystem::path& parent, const std::string& name,
                                                 const std::string& job);
/// Such digits.
[[nodiscard]] std::string random_job();

class PartialWeights {
 public:
  /// What `place` is.
  enum class Kind {
    folder,  ///< a model's folder: weights there are replaced, tokenizer and configurations of the old model removed
    file,    ///< the one file of the layout, under a name of its own
  };

  /// Makes all files in their size, with their headers, in `path`, which is in or beside `place`. `retry` as for
  /// AtomicFile. Throws ErrorCode::io.
  PartialWeights(std::filesystem::path place, Kind kind, std::filesystem::path path, const WeightLayout& layout,
                 runtime::AtomicFile::Retry retry = nullptr);
  /// Removes what was not committed.
  ~PartialWeights();
  PartialWeights(const PartialWeights&) = delete;
  PartialWeights& operator=(const PartialWeights&) = delete;

  /// The folder where the files lie.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Makes the files durable and names them. In a folder that is there, new files come under names that nobody has
  /// heard of, then the one that readers look for first, then what it replaces goes, then `beside` comes; a folder that
  /// is not there gets its name when all is in it. Throws ErrorCode::io: where the weights are whole, but cannot have
  /// their names, they are kept, and the message says where.
  void commit(const FilesBeside& beside = {});

  /// Removes what killed processes left in `folder`. The constructor does so where it makes its own.
  static void remove_leftovers(const std::filesystem::path& folder);

 private:
  void make_folder();
  void make_file(std::size_t file);
  [[nodiscard]] bool may_retry(int error) const;
  [[noreturn]] void refuse(const char* what, const std::filesystem::path& path, int error) const;
  void sync() const;
  void write_beside(const std::filesystem::path& folder, const FilesBeside& beside) const;
  /// Puts the files into a folder that is there. What they replace, in the order in which it has to go.
  [[nodiscard]] std::vector<std::filesystem::path> replace_weights();
  /// From names in the hidden folder; all or none.
  void rename_all(const std::vector<std::pair<std::string, std::filesystem::path>>& names);
  void discard();
  [[noreturn]] void keep(const std::filesystem::path& refused, int error);

  std::filesystem::path place_;
  Kind kind_;
  std::filesystem::path path_;  // empty: it has its name
  const WeightLayout* layout_;
  runtime::AtomicFile::Retry retry_;
  int lock_ = -1;  // the first file
};

/// One process's share of the values.
class WeightWriter {
 public:
  /// `path` is that of the PartialWeights. The layout outlives it.
  WeightWriter(const WeightLayout& layout, std::filesystem::path path, runtime::AtomicFile::Retry retry = nullptr);
  ~WeightWriter();
  WeightWriter(const WeightWriter&) = delete;
  WeightWriter& operator=(const WeightWriter&) = delete;

  /// Writes what elements [begin, begin + values.size()) of a unit have for the files. The types of their tensors
  /// hold them exactly. Throws ErrorCode::io.
  void put(const UnitSpec& unit, std::size_t begin, std::span<const float> values);

  /// Makes what was put durable. Throws ErrorCode::io.
  void close();

  /// Bytes that were put, gaps and padding apart: over all processes they have to be WeightLayout::value_bytes().
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  [[nodiscard]] int open(std::size_t file);
  [[noreturn]] void refuse(const char* what, std::size_t file) const;

  const WeightLayout* layout_;
  std::filesystem::path path_;
  runtime::AtomicFile::Retry retry_;
  std::vector<int> files_;  // -1: not open
  std::uint64_t bytes_ = 0;
};

}  // namespace ranvier::models

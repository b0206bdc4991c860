// Writes weights files from any number of processes and publishes them atomically: the files stay in a hidden folder
// until they are complete and synced. Until then, readers find the previous weights. One thread at a time.
//
//   const auto path = partial_path(folder, "weights", job);       // all processes
//   PartialWeights partial(folder, Kind::folder, path, layout);   // one process
//   WeightWriter writer(layout, path); … put …; writer.close();   // each process, its own elements
//   partial.commit(files);                                        // the first process, after all have closed
#pragma once

#include "models/weights/weight_layout.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/files/file_descriptor.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::models {

/// Small files written next to the weights: names and contents.
using CompanionFiles = std::map<std::string, std::string>;

/// The hidden folder in `parent`. `job`: 16 hexadecimal digits, unique per job.
[[nodiscard]] std::filesystem::path partial_path(const std::filesystem::path& parent, const std::string& name,
                                                 const std::string& job);
/// Random digits for `job`.
[[nodiscard]] std::string random_job();

class PartialWeights {
 public:
  /// Kind of the destination.
  enum class Kind {
    folder,  ///< a model folder: weights are replaced; tokenizer and configuration of the old model are removed
    file,    ///< the only file of the layout, with its own name
  };

  /// Creates all files in `path` (in the folder of `place` or next to it), with their sizes and headers. `retry` as
  /// for AtomicFile. Throws ErrorCode::io.
  PartialWeights(std::filesystem::path place, Kind kind, std::filesystem::path path, const WeightLayout& layout,
                 runtime::AtomicFile::Retry retry = nullptr);
  /// Removes uncommitted files.
  ~PartialWeights();
  PartialWeights(const PartialWeights&) = delete;
  PartialWeights& operator=(const PartialWeights&) = delete;

  /// Folder of the files.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Syncs the files and renames them. In an existing folder: new files under unused names, then the file that
  /// readers open first, then removal of replaced files, then `files`. A new folder is renamed when it is complete.
  /// Throws ErrorCode::io; if complete weights cannot be renamed, they are kept, and the message names their folder.
  void commit(const CompanionFiles& files = {});

  /// Removes leftovers of killed processes in `folder`: folders .NAME.JOB.partial without a locked file. The
  /// constructor does so in its own folder.
  static void remove_leftovers(const std::filesystem::path& folder);

 private:
  void make_folder();
  void make_file(std::size_t file);
  [[noreturn]] void refuse(const char* what, const std::filesystem::path& path, int error) const;
  void sync() const;
  void write_companions(const std::filesystem::path& folder, const CompanionFiles& files) const;
  /// Moves the files into an existing folder. Returns the replaced files, in the order of removal.
  [[nodiscard]] std::vector<std::filesystem::path> replace_weights();
  /// Renames files of the hidden folder; all or none.
  void rename_all(const std::vector<std::pair<std::string, std::filesystem::path>>& names);
  void discard();
  [[noreturn]] void keep(const std::filesystem::path& refused, int error);

  std::filesystem::path place_;
  Kind kind_;
  std::filesystem::path path_;  // empty: renamed
  const WeightLayout* layout_;
  runtime::AtomicFile::Retry retry_;
  runtime::FileDescriptor lock_;  // the locked first file
};

/// Writes the elements of one process.
class WeightWriter {
 public:
  /// `path` is PartialWeights::path(). The layout must outlive this.
  WeightWriter(const WeightLayout& layout, std::filesystem::path path, runtime::AtomicFile::Retry retry = nullptr);

  /// Writes elements [begin, begin + values.size()) of a unit. The types of their tensors must represent them
  /// exactly. Throws ErrorCode::io.
  void put(const UnitSpec& unit, std::size_t begin, std::span<const float> values);

  /// Syncs the written data. Throws ErrorCode::io.
  void close();

  /// Bytes written, without gaps and padding; the sum over all processes must be WeightLayout::value_bytes().
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  [[nodiscard]] int open(std::size_t file);
  [[noreturn]] void refuse(const char* what, std::size_t file) const;

  const WeightLayout* layout_;
  std::filesystem::path path_;
  runtime::AtomicFile::Retry retry_;
  std::vector<runtime::FileDescriptor> files_;  // none: not open
  std::uint64_t bytes_ = 0;
};

}  // namespace ranvier::models

// Appends records (lines of JSON, frames of an event file) to a file, each completely or not at all. A record that the
// system refuses (full disk) is held in memory and written before the next one. A run survives the refusal, and loses
// nothing if space returns. One thread at a time.
//
//   RecordFile metrics("run.jsonl", "run.jsonl", RecordFile::Start::from_scratch);
//   metrics.append(line);
//   metrics.finish(retry);                     // the last attempt
//   if (!metrics.loss().empty()) …             // the file is incomplete
#pragma once

#include "runtime/files/atomic_file.hpp"
#include "runtime/files/file_descriptor.hpp"

#include <cstddef>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

namespace ranvier::runtime {

class RecordFile {
 public:
  enum class Start {
    from_scratch,   ///< existing content is removed
    after_existing  ///< existing content stays; an incomplete last line gets its end
  };
  /// Limit of held records; later ones are lost.
  static constexpr std::size_t max_held_bytes = std::size_t{16} << 20;

  /// Throws ErrorCode::io if the file cannot be opened. `name` is used in messages, unchanged: "run.jsonl".
  RecordFile(std::string name, std::filesystem::path path, Start start);

  void append(std::string_view record);

  /// Writes the held records; after each refusal asks `retry` whether to try again.
  void finish(const AtomicFile::Retry& retry);

  /// "12 records of run.jsonl were not written: No space left on device"; empty if none is missing so far.
  [[nodiscard]] std::string loss() const;

  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  /// Whether all held records were written.
  bool write_held();
  void take_back(std::size_t written);

  std::string name_;
  std::filesystem::path path_;
  FileDescriptor file_;
  std::deque<std::string> held_;
  std::size_t held_bytes_ = 0;
  std::size_t lost_ = 0;  // records
  int reason_ = 0;        // errno of the last refusal
  bool warned_ = false;
};

}  // namespace ranvier::runtime

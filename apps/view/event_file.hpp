// Event files as TensorBoard reads them, without its libraries: records in TFRecord's frames, each a message of
// event.proto in protocol buffers' wire format. One thread at a time.
//   https://github.com/tensorflow/tensorboard: tensorboard/compat/proto/{event,summary,tensor}.proto
//   https://www.tensorflow.org/tutorials/load_data/tfrecord: the frames and the masked CRC-32C
#pragma once

#include "runtime/record_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::apps {

/// CRC-32C (Castagnoli), as of RFC 3720.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes) noexcept;
/// The record with its length and checksums.
[[nodiscard]] std::string framed(std::string_view record);

// Messages of event.proto. `wall_time`: seconds since 1970.
[[nodiscard]] std::string version_event(double wall_time);
/// What was said of this step and later ones before is void.
[[nodiscard]] std::string restart_event(double wall_time, std::int64_t step);
[[nodiscard]] std::string scalars_event(double wall_time, std::int64_t step,
                                        const std::vector<std::pair<std::string, double>>& values);
/// Markdown, for the tab of texts.
[[nodiscard]] std::string text_event(double wall_time, std::int64_t step, std::string_view tag,
                                     std::string_view markdown);

/// What a run tells, its records and its configuration, as an event file of its own in a folder.
class EventFile {
 public:
  /// Makes the folder. `step`: the run goes on after it, and what earlier files have of later ones is void; 0: it
  /// begins. Throws ErrorCode::io with the flag --tensorboard.
  EventFile(const std::filesystem::path& folder, std::int64_t step);

  /// Takes a line of --metrics.
  void take(std::string_view record);
  void configuration(const std::vector<std::pair<std::string, std::string>>& flags);
  [[nodiscard]] runtime::RecordFile& file() noexcept { return *file_; }

 private:
  void write(const std::string& event);

  std::optional<runtime::RecordFile> file_;
};

}  // namespace ranvier::apps

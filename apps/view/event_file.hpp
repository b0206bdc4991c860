// Writes TensorBoard's event files without its libraries: TFRecord frames with messages of event.proto in protocol
// buffers' wire format. One thread at a time.
//   https://github.com/tensorflow/tensorboard: tensorboard/compat/proto/{event,summary,tensor}.proto
//   https://www.tensorflow.org/tutorials/load_data/tfrecord: the frames and the masked CRC-32C
#pragma once

#include "runtime/files/record_file.hpp"

#include <boost/json/object.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::apps {

/// CRC-32C (Castagnoli), RFC 3720.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);
/// A new event file in a folder with a run's records and configuration.
class EventFile {
 public:
  /// Creates the folder. `step`: step after which the run resumes, so later steps of earlier files are void; 0: new
  /// run. Throws ErrorCode::io that names --tensorboard.
  EventFile(const std::filesystem::path& folder, std::int64_t step);

  /// Adds a line of --metrics.
  void take(std::string_view record);
  /// Adds flags and their values, which are texts.
  void configuration(const boost::json::object& flags);
  [[nodiscard]] runtime::RecordFile& file() noexcept { return *file_; }

 private:
  void write(const std::string& event);

  std::optional<runtime::RecordFile> file_;
};

}  // namespace ranvier::apps

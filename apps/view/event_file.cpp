#include "apps/view/event_file.hpp"

#include "apps/program/markup.hpp"
#include "apps/program/profile_search_path.hpp"
#include "apps/view/history.hpp"
#include "runtime/base/error.hpp"

#include <boost/crc.hpp>
#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <system_error>

#include <unistd.h>

namespace ranvier::apps {
namespace {

namespace json = boost::json;

template <typename T>
void append_little_endian(std::string& text, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
}

/// A message of protocol buffers, field by field.
class Message {
 public:
  Message& number(int field, std::uint64_t value) {
    tag(field, 0);
    varint(value);
    return *this;
  }
  Message& real(int field, double value) {
    tag(field, 1);
    append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(int field, float value) {
    tag(field, 5);
    append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& text(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  void tag(int field, unsigned type) { varint(static_cast<unsigned>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Numbers of fields in the .proto files.
Message event(double wall_time, std::int64_t step) {
  Message result;
  result.real(1, wall_time);
  if (step != 0) result.number(2, static_cast<std::uint64_t>(step));
  return result;
}
constexpr int event_version = 3, event_summary = 5, event_session = 7;
constexpr int summary_value = 1, value_tag = 1, value_simple = 2, value_tensor = 8, value_metadata = 9;

double wall_time_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The record with its length and checksums.
std::string framed(std::string_view record) {
  const auto masked = [](std::string_view bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return std::rotr(crc, 15) + 0xa282ead8u;
  };
  std::string frame;
  append_little_endian(frame, static_cast<std::uint64_t>(record.size()));
  append_little_endian(frame, masked(frame));
  frame += record;
  append_little_endian(frame, masked(record));
  return frame;
}

// Messages of event.proto. `wall_time`: seconds since 1970.
/// Makes TensorBoard drop earlier values of `step` and later steps.
std::string restart_event(double wall_time, std::int64_t step) {
  constexpr std::uint64_t start = 1;  // SessionLog.SessionStatus
  return event(wall_time, step).message(event_session, Message().number(1, start)).bytes();
}

std::string scalars_event(double wall_time, std::int64_t step,
                          const std::vector<std::pair<std::string, double>>& values) {
  Message summary;
  for (const auto& [tag, value] : values)
    summary.message(summary_value, Message().text(value_tag, tag).real(value_simple, static_cast<float>(value)));
  return event(wall_time, step).message(event_summary, summary).bytes();
}

/// Markdown for TensorBoard's text tab.
std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view markdown) {
  constexpr std::uint64_t string_type = 7;  // DataType.DT_STRING
  constexpr int tensor_type = 1, tensor_shape = 2, tensor_string = 8, shape_dimension = 2, dimension_size = 1;
  const Message shape = Message().message(shape_dimension, Message().number(dimension_size, 1));
  const Message tensor =
      Message().number(tensor_type, string_type).message(tensor_shape, shape).text(tensor_string, markdown);
  const Message metadata = Message().message(1, Message().text(1, "text"));  // plugin_data.plugin_name
  const Message value =
      Message().text(value_tag, tag).message(value_tensor, tensor).message(value_metadata, metadata);
  return event(wall_time, step).message(event_summary, Message().message(summary_value, value)).bytes();
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t step) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    fail(ErrorCode::io, "--tensorboard {}: the folder cannot be made: {}", folder.string(), failed.message());
  const double now = wall_time_now();
  std::filesystem::path path;
  int number = 0;  // a process starts another file after a rollback
  do {
    path = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<std::int64_t>(now), host_name(),
                                ::getpid(), number++);
  } while (std::filesystem::exists(path, failed));
  file_.emplace("--tensorboard " + folder.string(), path, runtime::RecordFile::Start::from_scratch);
  write(event(now, 0).text(event_version, "brain.Event:2").bytes());
  if (step > 0) write(restart_event(now, step + 1));
}

void EventFile::configuration(const json::object& flags) {
  std::string table = "|flag|value|\n|---|---|\n";
  for (const auto& [name, value] : flags)
    table += fmt::format("|{}|{}|\n", std::string_view(name),
                         escaped(text_of(flags, name), {{'|', "\\|"}, {'\n', " "}}));  // a row is one line
  write(text_event(wall_time_now(), 0, "configuration", table));
}

void EventFile::take(std::string_view line) {
  const auto parsed = parse_record(line);
  if (!parsed) return;
  const json::object& record = *parsed;
  const auto step = whole_of(record, "step");
  if (!step) return;
  const double now = wall_time_now();
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> tags{{
      {"loss", "loss/train"},
      {"validation_loss", "loss/validation"},
      {"validation_perplexity", "evaluation/perplexity"},
      {"validation_accuracy", "evaluation/accuracy"},
      {"hellaswag_accuracy", "evaluation/hellaswag"},
      {"grad_norm", "optimizer/gradient norm"},
      {"lr", "optimizer/learning rate"},
      {"loss_scale", "optimizer/loss scale"},
      {"tokens_per_second", "speed/throughput"},
      {"seconds", "speed/seconds of a step"},
      {"mfu", "speed/MFU"},
      {"measured_mfu", "speed/measured MFU"},
  }};
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [name, tag] : tags)
    if (const double number = number_of(record, name); std::isfinite(number)) scalars.emplace_back(tag, number);
  if (!scalars.empty()) write(scalars_event(now, *step, scalars));
  if (const json::value* sample = record.if_contains("sample"); sample != nullptr && sample->is_string()) {
    // Indented lines are code in Markdown, so markup in the text has no effect.
    const std::string shown = "    " + escaped(std::string_view(sample->get_string()), {{'\n', "\n    "}});
    write(text_event(now, *step, "sample", shown));
  }
}

void EventFile::write(const std::string& event) { file_->append(framed(event)); }

}  // namespace ranvier::apps

#include "models/text/document_reader.hpp"

#include "models/tokenizers/unicode.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/json_text.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace ranvier::models {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t longest_uncut = std::size_t{64} << 20;  // text without blanks is cut after this many bytes
constexpr std::size_t longest_line = std::size_t{256} << 20;  // limit of a JSON line
constexpr std::size_t read_ahead = std::size_t{1} << 20;
constexpr auto byte_order_mark = "\xef\xbb\xbf"sv;
/// Names in data sets for more text of the prompt, or of what is classified.
constexpr std::array more_text{"input"sv,   "context"sv,   "system"sv,     "system_prompt"sv,
                               "history"sv, "sentence2"sv, "hypothesis"sv, "text_pair"sv};

/// How chats are written: the list's field, and of each message who speaks, what, and who is the model.
struct ChatLayout {
  const char *list, *role, *text, *model;
};
constexpr std::array chat_layouts{ChatLayout{"messages", "role", "content", "assistant"},
                                  ChatLayout{"conversations", "from", "value", "gpt"}};

bool has_text(const boost::json::value& value) {
  if (const auto* const array = value.if_array()) return !array->empty();
  const auto* const text = value.if_string();
  return text != nullptr && !text->empty();
}

}  // namespace

std::vector<std::string> field_names(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

DocumentReader::DocumentReader(DataFile file, const TextReading& reading, std::uint64_t offset, TextCuts cuts)
    : file_(std::move(file)),
      json_field_(reading.json_field),
      label_field_(reading.label_field),
      prompt_fields_(field_names(reading.prompt_field)),
      cuts_(cuts),
      stream_(file_.path),
      offset_(offset),
      begins_(offset == 0) {
  stream_.skip(offset);
}

std::span<const DocumentReader::Text> DocumentReader::next(std::size_t bytes) {
  pieces_.clear();
  if (file_.format == TokenFormat::jsonl) {
    take_lines(bytes);
  } else {
    take_text(bytes);
  }
  return pieces_;
}

bool DocumentReader::fill(std::size_t bytes) {
  const std::size_t there = text_.size();
  if (!whole_ && there < bytes) {
    text_.resize(bytes);
    text_.resize(there + stream_.read(text_.data() + there, bytes - there));
    whole_ = text_.size() < bytes;
  }
  return whole_;
}

void DocumentReader::take_text(std::size_t bytes) {
  text_.erase(0, std::exchange(taken_, 0));
  std::size_t cut = 0;
  for (std::size_t wanted = bytes;; wanted *= 2) {
    const bool whole = fill(wanted);
    cut = whole && text_.size() <= bytes ? text_.size() : last_cut(text_, wanted, cuts_);
    if (cut == 0 && whole) cut = text_.size();
    if (cut > 0 || text_.empty()) break;
    if (wanted < longest_uncut) continue;
    for (cut = text_.size() - 4; cut < text_.size() && (text_[cut] & 0xc0) == 0x80;)
      ++cut;  // not inside a character
    break;
  }
  taken_ = cut;
  offset_ += cut;
  if (cut == 0) return;
  pieces_.push_back({std::string_view(text_).substr(0, cut), std::exchange(begins_, false)});
  survey_.add(pieces_.back().text);
}

void DocumentReader::take_lines(std::size_t bytes) {
  documents_.clear();
  for (std::size_t taken = 0; taken < bytes;) {
    auto document = next_document();
    if (!document) break;
    taken += document->text.size();
    documents_.push_back(std::move(*document));
  }
  for (const Document& one : documents_) pieces_.push_back({one.text, true, one.prompt, one.label});
}

std::optional<DocumentReader::Document> DocumentReader::next_document() {
  while (true) {
    std::size_t end = text_.find('\n', taken_);
    if (end == std::string::npos) {
      text_.erase(0, std::exchange(taken_, 0));
      for (std::size_t seen = 0; end == std::string::npos;) {
        const bool whole = fill(std::max(read_ahead, text_.size() * 2));
        end = text_.find('\n', std::exchange(seen, text_.size()));
        if (whole && end == std::string::npos) end = text_.size();
        if (end == std::string::npos && text_.size() > longest_line)
          fail(ErrorCode::data,
               "{}: more than {} bytes without a line break; use JSON lines, one document per line", name_of_line(),
               longest_line);
      }
      if (text_.empty()) return std::nullopt;
    }
    std::string_view line(text_.data() + taken_, end - taken_);
    if (offset_ == 0 && line.starts_with(byte_order_mark)) line.remove_prefix(byte_order_mark.size());
    const bool blank = line.find_first_not_of(" \t\r") == std::string_view::npos;
    Document document = blank ? Document{} : document_of(line);
    const std::size_t after = std::min(end + 1, text_.size());
    offset_ += after - taken_;
    taken_ = after;
    rows_ += blank ? 0 : 1;
    if (document.text.size() > document.prompt) return document;
    empty_rows_ += blank ? 0 : 1;
    if (taken_ == text_.size() && whole_) return std::nullopt;
  }
}

std::vector<std::string> DocumentReader::remarks() const {
  std::vector<std::string> remarks;
  const std::string file = file_.path.string();
  if (empty_rows_ > 0)
    remarks.push_back(
        fmt::format("{}: skipped rows with an empty field '{}': {} of {}", file, json_field_, empty_rows_, rows_));
  for (const auto& [field, rows] : unread_rows_)
    remarks.push_back(
        fmt::format("{}: field '{}' of {} of {} rows has text, but is not read{}", file, field, rows, rows_,
                    prompt_fields_.empty() ? ""
                                           : fmt::format("; use `prompt_field` {},{} to read both fields",
                                                         fmt::join(prompt_fields_, ","), field)));
  if (survey_.strange() > 0) remarks.push_back(remark_on(survey_, file_.path));
  return remarks;
}

DocumentReader::Document DocumentReader::document_of(std::string_view line) {
  const auto parsed = [&] {
    try {
      return runtime::parse_json(line, {});
    } catch (const Error&) {  // which line it is takes a reading of the file, and so waits until it is needed
      if (const std::size_t stray = first_stray_byte(line, 0); stray < line.size())
        fail(ErrorCode::data, "{}: byte 0x{:02x} at offset {} of the line is not UTF-8; use {}", name_of_line(),
             static_cast<unsigned char>(line[stray]), stray, conversion_to_utf8(file_.path));
      return runtime::parse_json(line, name_of_line());
    }
  };
  const boost::json::value value = parsed();
  const auto* const object = value.if_object();
  if (object == nullptr)
    fail(ErrorCode::data, "{}: the line is not a JSON object; use jq -c '.[]' to convert an array to lines",
         name_of_line());
  Document document;
  for (const std::string& field : prompt_fields_) {
    const std::string_view text = text_of(*object, field, "`prompt_field`");
    if (!text.empty() && !document.text.empty()) document.text += '\n';
    document.text += text;
  }
  document.prompt = document.text.size();
  document.text += text_of(*object, json_field_, "`json_field`");
  if (!label_field_.empty()) document.label = label_of(*object);
  if (!label_field_.empty() || !prompt_fields_.empty()) count_unread(*object);
  return document;
}

void DocumentReader::count_unread(const boost::json::object& object) {
  for (const std::string_view field : more_text) {
    const auto* const value = object.if_contains(field);
    const bool is_read = field == json_field_ || field == label_field_ ||
                         std::find(prompt_fields_.begin(), prompt_fields_.end(), field) != prompt_fields_.end();
    if (!is_read && value != nullptr && has_text(*value)) ++unread_rows_[field];
  }
}

void DocumentReader::refuse_chat(const boost::json::object& object) const {
  for (const auto& [list, role, text, model] : chat_layouts) {
    const auto* const chat = object.if_contains(list);
    if (chat == nullptr || !chat->is_array()) continue;
    const std::string convert = fmt::format(
        R"(.{0} as $all | range($all | length) | select($all[.].{1} == "{3}") | )"
        R"({{prompt: (($all[:.] | map(.{1} + ": " + .{2} + "\n") | add) + "{3}: "), completion: $all[.].{2}}})",
        list, role, text, model);
    fail(ErrorCode::data,
         "{0}: chats ('{1}') are not supported; use lines {{\"text\": …}} with `json_field` text, or "
         "{{\"prompt\": …, \"completion\": …}} with `prompt_field` prompt `json_field` completion; "
         "convert: jq -c '{2}' '{3}' > '{3}.pairs.jsonl'",
         name_of_line(), list, convert, file_.path.string());
  }
}

std::string_view DocumentReader::text_of(const boost::json::object& object, const std::string& field,
                                         const char* flag) const {
  const boost::json::value& text = field_of(object, field, "text", flag);
  if (!text.is_string()) {
    refuse_chat(object);
    fail(ErrorCode::data, "{}: field '{}' is not text; name the text field with {}", name_of_line(), field, flag);
  }
  return text.get_string();
}

std::string DocumentReader::label_of(const boost::json::object& object) const {
  const boost::json::value& label = field_of(object, label_field_, "label", "`label_field`");
  if (label.is_string() && !label.get_string().empty()) return std::string(label.get_string());
  if (label.is_int64()) return std::to_string(label.get_int64());
  if (label.is_bool()) return label.get_bool() ? "true" : "false";
  fail(ErrorCode::data,
       "{}: field '{}' is not a label (text, integer, true or false); name the label field with {}", name_of_line(),
       label_field_, "`label_field`");
}

const boost::json::value& DocumentReader::field_of(const boost::json::object& object, const std::string& field,
                                                   const char* what, const char* flag) const {
  if (const auto* const value = object.if_contains(field)) return *value;
  refuse_chat(object);
  std::vector<std::string> fields;
  for (const auto& [name, ignored] : object) fields.emplace_back(name);
  fail(ErrorCode::data, "{}: field '{}' is missing, found {}; name the field of the {} with {}", name_of_line(),
       field, fields.empty() ? "none" : fmt::format("'{}'", fmt::join(fields, "', '")), what, flag);
}

std::string DocumentReader::name_of_line() const {
  ByteStream stream(file_.path);
  std::string block(read_ahead, '\0');
  std::uint64_t line = 1;
  for (std::uint64_t left = offset_; left > 0;) {
    const std::size_t count = stream.read(block.data(), std::min<std::uint64_t>(left, block.size()));
    if (count == 0) break;
    const std::string_view part(block.data(), count);
    line += static_cast<std::uint64_t>(std::count(part.begin(), part.end(), '\n'));
    left -= count;
  }
  return fmt::format("{}: line {}", file_.path.string(), line);
}

void check_held(std::size_t bytes, const std::filesystem::path& path, const char* what, const char* remedy) {
  constexpr std::size_t max_bytes = std::size_t{1} << 28;
  if (bytes > max_bytes)
    fail(ErrorCode::data, "{}: {} {} bytes, which each rank keeps in memory; {}", path.string(), what, max_bytes,
         remedy);
}

}  // namespace ranvier::models

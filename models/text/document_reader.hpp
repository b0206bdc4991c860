// Reads the documents of a text or JSON lines file piece by piece, decompressed, with constant memory. One thread at
// a time.
#pragma once

#include "models/text/data_file.hpp"
#include "models/text/text_survey.hpp"
#include "models/tokenizers/word_splitter.hpp"

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Field names in "a,b", a value of `prompt_field`.
[[nodiscard]] std::vector<std::string> field_names(const std::string& list);

class DocumentReader {
 public:
  struct Text {
    std::string_view text;        ///< not empty
    bool begins = false;          ///< whether the text starts a document
    std::size_t prompt = 0;       ///< bytes at the start of the text that belong to the prompt fields
    std::string_view label = {};  ///< value of the label field in JSON lines: text, integer, true or false
  };

  /// Uses the fields of `reading`. Resumes at another reader's `offset`. `cuts`: positions at which the words of the
  /// text may be cut. Throws like ByteStream.
  DocumentReader(DataFile file, const TextReading& reading, std::uint64_t offset = 0, TextCuts cuts = {});

  /// Start of the next piece in the content, in bytes.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// Remarks for the user about the pieces so far: skipped lines, unread fields, bytes that are not text.
  [[nodiscard]] std::vector<std::string> remarks() const;
  /// Bytes of the file that were read.
  [[nodiscard]] std::uint64_t file_position() const noexcept { return stream_.file_position(); }

  static constexpr std::size_t default_bytes = std::size_t{4} << 20;
  /// Returns the next pieces, about `bytes` in total; none at the end. Valid until the next call. Text: one piece,
  /// cut where no word changes, longer if there is no such position. JSON lines: complete documents, without those
  /// whose text after the prompt is empty.
  /// Throws like ByteStream. Throws ErrorCode::data, naming file and line, if a line is not a JSON object with the
  /// text, prompt and label fields.
  std::span<const Text> next(std::size_t bytes = default_bytes);

 private:
  void take_text(std::size_t bytes);
  void take_lines(std::size_t bytes);
  struct Document {
    std::string text;
    std::size_t prompt = 0;  // as a piece's
    std::string label;
  };
  /// Document of the next line; none: end of file.
  std::optional<Document> next_document();
  /// Reads until `bytes` or all are in memory. Returns whether the file has ended.
  bool fill(std::size_t bytes);
  [[nodiscard]] Document document_of(std::string_view line);
  void count_unread(const boost::json::object& object);
  [[nodiscard]] std::string_view text_of(const boost::json::object& object, const std::string& field,
                                         const char* flag) const;
  [[nodiscard]] std::string label_of(const boost::json::object& object) const;
  /// Throws if the field is missing; `what` names its purpose.
  [[nodiscard]] const boost::json::value& field_of(const boost::json::object& object, const std::string& field,
                                                   const char* what, const char* flag) const;
  /// Throws with a conversion command if the object is a chat.
  void refuse_chat(const boost::json::object& object) const;
  [[nodiscard]] std::string name_of_line() const;

  DataFile file_;
  std::string json_field_, label_field_;
  std::vector<std::string> prompt_fields_;
  TextCuts cuts_;
  ByteStream stream_;
  std::uint64_t offset_;
  bool begins_;  // whether the next text starts a document
  TextSurvey survey_;
  bool whole_ = false;
  std::string text_;                 // content starting at offset_ - taken_
  std::size_t taken_ = 0;            // consumed bytes of text_
  std::vector<Document> documents_;  // documents of the returned lines
  std::vector<Text> pieces_;
  std::int64_t rows_ = 0, empty_rows_ = 0;
  std::map<std::string_view, std::int64_t> unread_rows_;  // by the field with the text
};

/// Throws ErrorCode::data if a source that each rank keeps in memory has too many bytes of text. `what`: "labelled
/// texts exceed"; `remedy`: "use fewer texts".
void check_held(std::size_t bytes, const std::filesystem::path& path, const char* what, const char* remedy);

}  // namespace ranvier::models

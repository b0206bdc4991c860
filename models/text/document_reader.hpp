// The documents of a file of text or JSON lines, piece by piece, in memory that does not grow with the file. What
// compresses it is undone on the way. One thread at a time.
#pragma once

#include "models/text/data_file.hpp"
#include "models/text/word_splitter.hpp"

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

/// The names in "a,b", a value of --prompt-field.
[[nodiscard]] std::vector<std::string> field_names(const std::string& list);

class DocumentReader {
 public:
  struct Text {
    std::string_view text;        ///< not empty
    bool begins = false;          ///< a document
    std::size_t prompt = 0;       ///< bytes of the text, from its first on, that are the prompt field's
    std::string_view label = {};  ///< of JSON lines, what the label field says: its text, number, true or false
  };

  /// Goes on where another reader's offset() was. `cuts`: where the words that the text is for let it be cut. Throws as
  /// ByteStream does.
  DocumentReader(DataFile file, std::string json_field, std::uint64_t offset = 0, TextCuts cuts = {},
                 const std::string& prompt_field = {}, std::string label_field = {});

  /// In the content, where the next piece begins.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// Lines that were left out and fields that were not read, for people; none of text.
  [[nodiscard]] std::vector<std::string> remarks() const;
  /// How much of the file was read.
  [[nodiscard]] std::uint64_t file_position() const noexcept { return stream_.file_position(); }

  /// The next pieces, of about `bytes` together; none at the end. Of text one, cut where no word changes, or longer if
  /// there is no such place; of JSON lines whole documents, of which those without text behind the prompt are left out.
  /// They last until the next call. Throws as ByteStream does, and ErrorCode::data, naming file and line, for a line
  /// that is no JSON object with text in that field and in the fields of the prompt, or without a label if it has a
  /// field.
  std::span<const Text> next(std::size_t bytes);

 private:
  void take_text(std::size_t bytes);
  void take_lines(std::size_t bytes);
  struct Document {
    std::string text;
    std::size_t prompt = 0;  // as a piece's
    std::string label;
  };
  /// Of the next line; none: the file has ended.
  std::optional<Document> next_document();
  /// Reads until `bytes` are there, or all. Whether that is all.
  bool fill(std::size_t bytes);
  [[nodiscard]] Document document_of(std::string_view line);
  void count_unread(const boost::json::object& object);
  [[nodiscard]] std::string_view text_of(const boost::json::object& object, const std::string& field,
                                         const char* flag) const;
  [[nodiscard]] std::string label_of(const boost::json::object& object) const;
  /// Throws where there is none; `what` it is to have.
  [[nodiscard]] const boost::json::value& field_of(const boost::json::object& object, const std::string& field,
                                                   const char* what, const char* flag) const;
  /// Throws if the object has a chat, with how to convert it.
  void refuse_chat(const boost::json::object& object) const;
  [[nodiscard]] std::string name_of_line() const;

  DataFile file_;
  std::string json_field_, label_field_;
  std::vector<std::string> prompt_fields_;
  TextCuts cuts_;
  ByteStream stream_;
  std::uint64_t offset_;
  bool begins_;  // a document, of text
  bool whole_ = false;
  std::string text_;                 // from offset_ - taken_ on
  std::size_t taken_ = 0;            // of it
  std::string documents_;            // of lines, one after another
  std::vector<std::string> labels_;  // of the pieces
  std::vector<Text> pieces_;
  std::int64_t rows_ = 0, empty_rows_ = 0;
  std::map<std::string_view, std::int64_t> unread_rows_;  // by the field with the text
};

}  // namespace ranvier::models

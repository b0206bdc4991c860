// What a file of data is, by its name and how it begins:
//
//   text       any bytes, of which UTF-8 makes sense; the file is a document
//   jsonl      on each line a JSON object, of which a field is a document
//   llmc, uint16, megatron    tokens: token_file.hpp
//
// Text and JSON lines may be compressed with gzip or zstd. Any thread.
#pragma once

#include "models/text/byte_stream.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <variant>

namespace ranvier::models {

enum class TokenFormat { automatic, text, jsonl, llmc, uint16, megatron };

/// Whether files of this format have tokens already, as those of `automatic` may or may not.
[[nodiscard]] bool has_tokens(TokenFormat format);

/// Whether the file or folder at `path` will be read as tokens, as far as its name and its first bytes show; one that
/// is not there by its name alone.
[[nodiscard]] bool holds_tokens(const std::filesystem::path& path, TokenFormat format);

/// How text is to be read.
struct TextReading {
  TokenFormat format = TokenFormat::automatic;
  std::string json_field = "text";             ///< the documents' field in JSON lines
  std::string prompt_field;                    ///< fields of JSON lines for the prompt, "a,b"; empty: none
  std::string label_field;                     ///< field of JSON lines with the text's class; empty: none
  std::string format_flag = "--token-format";  ///< that messages name
  bool needs_utf8 = false;  ///< text in another encoding is refused, as a tokenizer would misread it
  /// Told of each piece of a file that is read when data are opened, by the thread that waits for it; null: nobody is.
  std::function<void(const std::filesystem::path&)> reads = nullptr;

  void tell(const std::filesystem::path& file) const {
    if (reads) reads(file);
  }
};

struct DataFile {
  std::filesystem::path path;              ///< of its bytes: Megatron's .bin
  TokenFormat format = TokenFormat::text;  ///< never automatic
  Compression compression = Compression::none;
  std::string remark;  ///< about it, for people; empty: nothing
};

/// Why a file is not read, and what to do.
struct FormatError {
  std::string what;    ///< "an array of NumPy's (.npy)"
  std::string remedy;  ///< "write …"
  bool data = false;   ///< a conversion makes data of it, so that it is not one of the files that folders just have
};

/// A format that was asked for is taken for granted, but for what compresses it; reading finds out if it is another.
/// `automatic` takes a file with llm.c's magic for that, a .bin or .idx with the other beside it, or what both names
/// begin with, for Megatron's, another .bin beside a meta.pkl for nanoGPT's tokens without a header, a name of JSON
/// lines or a first line that is such an object for those, and what is left for text. It refuses other .bin files,
/// formats that are known to be neither, JSON that is no JSON lines, tables called .csv or .tsv, what is mostly no
/// text, and, if UTF-8 is needed, text that begins in another encoding. Throws ErrorCode::io if it cannot be read.
[[nodiscard]] std::variant<DataFile, FormatError> look_at(const std::filesystem::path& path,
                                                          const TextReading& reading);

/// The same; throws a refusal as ErrorCode::data.
[[nodiscard]] DataFile recognise(const std::filesystem::path& path, const TextReading& reading);

}  // namespace ranvier::models

// Recognises the format of a data file by its name and first bytes:
//
//   text       any bytes, of which UTF-8 makes sense; the file is a document
//   jsonl      on each line a JSON object, of which a field is a document
//   llmc, uint16, megatron    tokens: token_file.hpp
//
// Text and JSON lines may be compressed with gzip or zstd. Any thread.
#pragma once

#include "models/text/byte_stream.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

namespace ranvier::models {

enum class TokenFormat { automatic, text, jsonl, llmc, uint16, megatron };

/// Whether files of this format contain tokens; false for `automatic`.
[[nodiscard]] bool has_tokens(TokenFormat format);

/// Whether the file or folder at `path` is read as tokens, according to its name and first bytes. For a missing file
/// only the name counts.
[[nodiscard]] bool holds_tokens(const std::filesystem::path& path, TokenFormat format);

/// Options for reading text.
struct TextReading {
  TokenFormat format = TokenFormat::automatic;
  std::string json_field = "text";             ///< the documents' field in JSON lines
  std::string prompt_field;                    ///< fields of JSON lines for the prompt, "a,b"; empty: none
  std::string label_field;                     ///< field of JSON lines with the text's class; empty: none
  std::string format_flag = "`token_format`";  ///< flag to name in messages
  bool needs_utf8 = false;  ///< refuse text in another encoding than UTF-8, which a tokenizer would misread
  /// Called with each piece of a file that is read while opening data, on the waiting thread; may be null.
  std::function<void(const std::filesystem::path&)> reads = nullptr;

  void tell(const std::filesystem::path& file) const {
    if (reads) reads(file);
  }
};

struct DataFile {
  std::filesystem::path path;              ///< file with the data: for Megatron the .bin
  TokenFormat format = TokenFormat::text;  ///< never automatic
  Compression compression = Compression::none;
  std::string remark;  ///< remark for the user; empty: none
};

/// Reason and remedy for a file that is not read.
struct FormatError {
  std::string what;    ///< reason: "a NumPy array (.npy)"
  std::string remedy;  ///< remedy: "write …"
  bool data = false;   ///< whether the remedy converts it to data, unlike files that folders happen to contain
};

/// Recognizes a file. A requested format is taken for granted except for its compression; reading detects a wrong
/// one. `automatic` recognizes llm.c's magic, a .bin next to a meta.pkl (nanoGPT), and JSON lines by name or first
/// line. It also recognizes a Megatron .bin or .idx with its counterpart, or their common path without extension.
/// Everything else is text.
/// Refuses other .bin files, known foreign formats, JSON that is not JSON lines, .csv and .tsv, and mostly binary
/// files. If UTF-8 is needed, also refuses text that starts in another encoding. Throws ErrorCode::io if the file
/// cannot be read.
[[nodiscard]] std::variant<DataFile, FormatError> look_at(const std::filesystem::path& path,
                                                          const TextReading& reading);

/// Like look_at(), but throws a refusal as ErrorCode::data.
[[nodiscard]] DataFile recognise(const std::filesystem::path& path, const TextReading& reading);

// llm.c's .bin: 256 int32 (magic, version, count, zeros), then the tokens: uint16 in GPT-2's, uint32 in Llama 3's.
inline constexpr std::size_t llmc_header_bytes = 256 * sizeof(std::int32_t);
inline constexpr std::int32_t llmc_magic = 20240520, llmc_version = 1;
inline constexpr std::int32_t llmc_wide_magic = 20240801, llmc_wide_version = 7;

// Megatron's .idx: magic, version (uint64), token type (one byte), numbers of sequences and document bounds (uint64
// each). Then the sizes of the sequences in tokens (int32), their byte offsets in the .bin (int64), and the document
// bounds as sequence numbers, from 0 to the number of sequences (int64). The magic has 9 bytes, so nothing after it
// is aligned.
inline constexpr std::string_view megatron_magic{"MMIDIDX\0\0", 9};
inline constexpr std::uint64_t megatron_version = 1;
inline constexpr std::size_t megatron_header_bytes = 9 + 8 + 1 + 8 + 8;
inline constexpr std::uint8_t megatron_int32 = 4, megatron_uint16 = 8;

}  // namespace ranvier::models

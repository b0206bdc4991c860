#include "models/text/data_file.hpp"

#include "models/text/foreign_format.hpp"
#include "models/text/text_survey.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/json_text.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t beginning_bytes = std::size_t{1} << 16;
static_assert(beginning_bytes >= foreign_format_bytes);

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Path of the data. Like Megatron's flags, `path` may name a .bin and .idx pair without extension.
fs::path data_path(const fs::path& path, TokenFormat format) {
  const bool may_be_megatron = format == TokenFormat::automatic || format == TokenFormat::megatron;
  if (may_be_megatron && !is_there(path)) {
    fs::path data = path;
    data += ".bin";
    fs::path index = path;
    index += ".idx";
    if (is_there(data) && (format == TokenFormat::megatron || is_there(index))) return data;
  }
  return may_be_megatron && path.extension() == ".idx" ? fs::path(path).replace_extension(".bin") : path;
}

std::int32_t magic_of(std::string_view beginning) {
  std::int32_t magic = 0;
  if (beginning.size() >= sizeof magic) std::memcpy(&magic, beginning.data(), sizeof magic);
  return magic;
}

bool is_llmc(std::string_view beginning) {
  const std::int32_t magic = magic_of(beginning);
  return magic == llmc_magic || magic == llmc_wide_magic;
}

/// Path without the extension of a compression format.
fs::path plain_name(const fs::path& path) {
  const fs::path extension = path.extension();
  return extension == ".gz" || extension == ".zst" || extension == ".zstd" ? path.stem() : path.filename();
}

std::optional<std::string_view> take_line(std::string_view& text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;  // its end was not read
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) return line;
  }
  return std::nullopt;
}

std::optional<boost::json::object> object_of(std::string_view line) {
  try {
    boost::json::value value = runtime::parse_json(line, {});
    if (value.is_object()) return std::move(value.get_object());
  } catch (const Error&) {  // it is no JSON then, which is an answer
  }
  return std::nullopt;
}

/// A first line that is an object with the field, or another object after it: a pretty-printed object has neither.
bool is_json_lines(const fs::path& path, std::string_view beginning, const std::string& field) {
  const std::string extension = plain_name(path).extension().string();
  constexpr std::array names{".jsonl", ".ndjson", ".jsonlines"};
  if (std::find(names.begin(), names.end(), extension) != names.end()) return true;
  if (!beginning.starts_with('{')) return false;
  const auto first = take_line(beginning);
  const auto object = first ? object_of(*first) : std::nullopt;
  if (!object) return false;
  const auto* const value = object->if_contains(field);
  if (value != nullptr && value->is_string()) return true;
  const auto second = take_line(beginning);
  return second && object_of(*second).has_value();
}

/// Data that other programs keep in one array, object or table.
std::optional<FormatError> structured_data(const fs::path& path, std::string_view beginning,
                                           const TextReading& reading) {
  const std::string extension = plain_name(path).extension().string(), name = path.string();
  if (extension == ".csv" || extension == ".tsv")
    return FormatError{fmt::format("a table ({})", extension),
                       fmt::format("convert it and use `json_field` COLUMN: python3 -c 'import csv, "
                                   "json; [print(json.dumps(row)) for row in csv.DictReader(open(\"{0}\"){1})]' > "
                                   "'{0}.jsonl'",
                                   name, extension == ".tsv" ? ", dialect=\"excel-tab\"" : ""),
                       true};
  const auto take = [&beginning](std::string_view what) {
    beginning.remove_prefix(std::min(beginning.find_first_not_of(" \t\r\n"), beginning.size()));
    if (!beginning.starts_with(what)) return false;
    beginning.remove_prefix(what.size());
    return true;
  };
  take("\xef\xbb\xbf");
  const bool is_json = extension == ".json";
  const bool has_field = beginning.find('"' + reading.json_field + '"') != std::string_view::npos;
  if (take("[") && (is_json || (take("{") && take("\""))))
    return FormatError{"a JSON array, not JSON lines",
                       fmt::format("convert it: jq -c '.[]' '{0}' > '{0}.jsonl'", name), true};
  if (is_json && take("{"))
    return FormatError{
        "one JSON object, not JSON lines",
        fmt::format(
            "convert it to one object per line: jq -c . '{0}' > '{0}.jsonl', or jq -c '.data[]' for a list named "
            "data; if each line is an object, use {1} jsonl",
            name, reading.format_flag),
        has_field};
  return std::nullopt;
}

FormatError unknown_tokens(const fs::path& path, std::string_view beginning, const std::string& flag) {
  return {fmt::format("a .bin that starts with {}, not with llm.c's magic number {}, and has neither an .idx nor a "
                      "meta.pkl next to it",
                      magic_of(beginning), llmc_magic),
          flag == "`token_format`" ? "use `token_format` uint16 for tokens without a header, or text"
                                   : fmt::format("use {} text if {} is text", flag, path.filename().string()),
          true};
}

std::variant<DataFile, FormatError> tokens_of(const fs::path& path, std::string_view beginning,
                                              const std::string& flag) {
  if (is_llmc(beginning)) return DataFile{path, TokenFormat::llmc};
  if (is_there(fs::path(path).replace_extension(".idx"))) return DataFile{path, TokenFormat::megatron};
  const fs::path meta = path.parent_path() / "meta.pkl";
  if (!is_there(meta)) return unknown_tokens(path, beginning, flag);
  return DataFile{path, TokenFormat::uint16, Compression::none,
                  fmt::format("{}: read as uint16 tokens without a header (nanoGPT), because of the "
                              "meta.pkl next to it",
                              path.string())};
}

}  // namespace

bool has_tokens(TokenFormat format) {
  return format == TokenFormat::llmc || format == TokenFormat::uint16 || format == TokenFormat::megatron;
}

bool holds_tokens(const fs::path& path, TokenFormat format) {
  if (format != TokenFormat::automatic) return has_tokens(format);
  const fs::path data = data_path(path, format);
  if (data.extension() == ".bin") return true;
  std::error_code ignored;
  if (!fs::is_regular_file(data, ignored)) return false;  // a pipe must not block here
  std::string beginning(sizeof(std::int32_t), '\0');
  std::ifstream(data, std::ios::binary).read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  return is_llmc(beginning);
}

std::variant<DataFile, FormatError> look_at(const fs::path& given, const TextReading& reading) {
  const fs::path path = data_path(given, reading.format);
  if (has_tokens(reading.format)) return DataFile{path, reading.format};
  reading.tell(path);
  ByteStream stream(path);
  if (stream.file_bytes() == 0) return FormatError{"the file is empty", "use a file with tokens or text"};
  std::string content(beginning_bytes, '\0');
  content.resize(stream.read(content.data(), content.size()));
  const Compression compression = stream.compression();
  const bool compressed = compression != Compression::none, automatic = reading.format == TokenFormat::automatic;
  if (content.empty()) return FormatError{"the compressed file is empty", "use a file with text"};
  if (reading.format == TokenFormat::text) return DataFile{path, TokenFormat::text, compression};

  const std::string anyway = fmt::format(", or use {} text to read any bytes unchanged", reading.format_flag);
  if (compressed && (is_llmc(content) || plain_name(path).extension() == ".bin"))
    return FormatError{"compressed tokens", "decompress them: token files are memory-mapped" + anyway, true};
  if (automatic && !compressed && (is_llmc(content) || path.extension() == ".bin"))
    return tokens_of(path, content, reading.format_flag);
  if (const ForeignFormat* const foreign = foreign_format(content))
    return FormatError{fmt::format("{}{}", foreign->name, compressed ? ", compressed" : ""),
                       std::string(foreign->remedy.text) + anyway, foreign->remedy.gives_data};
  if (!automatic || is_json_lines(path, content, reading.json_field))
    return DataFile{path, TokenFormat::jsonl, compression};
  if (auto refusal = structured_data(path, content, reading)) {
    refusal->remedy = (compressed ? "decompress it and " : "") + refusal->remedy + anyway;
    return *refusal;
  }
  TextSurvey survey;
  survey.add(content);
  if (survey.is_text() && reading.needs_utf8 && survey.is_other_encoding())
    return FormatError{fmt::format("not UTF-8 (Latin-1, for instance): byte 0x{:02x} at offset {}",
                                   static_cast<unsigned char>(content[survey.first_stray()]), survey.first_stray()),
                       (compressed ? "decompress it and use " : "use ") + conversion_to_utf8(path) + anyway, true};
  if (survey.is_text()) return DataFile{path, TokenFormat::text, compression};
  return FormatError{fmt::format("not text: {} of the first {} bytes are not UTF-8, the first at offset {}",
                                 survey.strange(), survey.bytes(), survey.first().value_or(0)),
                     "convert text to UTF-8 (iconv -f UTF-16 -t UTF-8), or name the token format with " +
                         reading.format_flag + anyway};
}

DataFile recognise(const fs::path& path, const TextReading& reading) {
  auto seen = look_at(path, reading);
  if (auto* const file = std::get_if<DataFile>(&seen)) return std::move(*file);
  const auto& [what, remedy, is_data] = std::get<FormatError>(seen);
  fail(ErrorCode::data, "{}: {}; {}", path.string(), what, remedy);
}

}  // namespace ranvier::models

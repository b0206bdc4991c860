#include "models/text/foreign_format.hpp"

#include "models/text/text_survey.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ranvier::models {
namespace {

using namespace std::string_view_literals;

using Remedy = ForeignFormat::Remedy;

constexpr Remedy decompress{"decompress it, or recompress it with gzip or zstd", true};
constexpr Remedy unpack{"unpack it and use the folder or the files"};
constexpr Remedy export_lines{"write its texts as JSON lines, one {\"text\": \"…\"} per line", true};
constexpr Remedy export_table{
    "convert it: python3 -c 'import pandas; pandas.read_parquet(\"FILE\").to_json(\"FILE.jsonl\", "
    "orient=\"records\", "
    "lines=True)'",
    true};
constexpr Remedy export_dataset{
    "convert the folder that save_to_disk() wrote: python3 -c 'import datasets; "
    "datasets.load_from_disk(\"FOLDER\").to_json(\"data.jsonl\")' (of several splits: "
    "load_from_disk(\"FOLDER\")[\"train\"])",
    true};
constexpr Remedy export_tokens{
    "write text as JSON lines, or tokens as uint16 without a header (NumPy's tofile()) for `token_format` uint16",
    true};
constexpr Remedy convert_utf16{"convert it: iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8", true};
constexpr Remedy convert_utf32{"convert it: iconv -f UTF-32 -t UTF-8 FILE > FILE.utf8", true};
constexpr Remedy extract{"extract its text first"};
constexpr Remedy weights{"convert the weights to safetensors and use them with `init_from`, not as data"};
constexpr Remedy no_text{"use files of text or tokens"};

struct Signature {
  std::size_t offset;
  std::string_view bytes;
  ForeignFormat format;
};

// Longer ones before those that they begin with. Words that a text could begin with count only where bytes follow that
// no text has.
constexpr Signature signatures[] = {
    {0, "\xff\xfe\0\0"sv, {"UTF-32 text", convert_utf32}},
    {0, "\0\0\xfe\xff"sv, {"UTF-32 text", convert_utf32}},
    {0, "\xff\xfe"sv, {"UTF-16 text", convert_utf16}},
    {0, "\xfe\xff"sv, {"UTF-16 text", convert_utf16}},
    {0, "\xfd\x37zXZ\0"sv, {"a file compressed with xz", decompress}},
    {4, "1AY&SY"sv, {"a file compressed with bzip2", decompress}},
    {0, "\x04\x22\x4d\x18"sv, {"a file compressed with lz4", decompress}},
    {0, "\x1f\x9d"sv, {"a file compressed with compress", decompress}},
    {0, "7z\xbc\xaf\x27\x1c"sv, {"a 7-Zip archive", unpack}},
    {0, "Rar!\x1a\x07"sv, {"a RAR archive", unpack}},
    {257, "ustar"sv, {"a tar archive", unpack}},
    {0, "PK\x05\x06"sv, {"an empty zip archive", unpack}},
    {0, "\x93NUMPY"sv, {"a NumPy array (.npy)", export_tokens}},
    {0, "PAR1"sv, {"a Parquet table", export_table}},
    {0, "ARROW1"sv, {"an Arrow table", export_lines}},
    {0, "\xff\xff\xff\xff"sv, {"an Arrow stream", export_dataset}},
    {0, "FEA1"sv, {"a Feather table", export_lines}},
    {0, "Obj\x01"sv, {"an Avro file", export_lines}},
    {0, "ORC"sv, {"an ORC table", export_lines}},
    {0, "\x89HDF\r\n\x1a\n"sv, {"an HDF5 file", export_tokens}},
    {0, "SQLite format 3\0"sv, {"an SQLite database", export_lines}},
    {0, "MMIDIDX\0\0"sv, {"a Megatron index (.idx)", {"use the .bin next to it with `token_format` megatron"}}},
    {0, "\x8a\xd8\x34\x01"sv, {"an llm.c question file", {"use it with `hellaswag`"}}},
    {0, "GGUF"sv, {"weights in GGUF", weights}},
    {0, "%PDF-"sv, {"a PDF", extract}},
    {0, "{\\rtf"sv, {"an RTF document", extract}},
    {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, {"an office document", extract}},
    {0,
     "\x7f"
     "ELF"sv,
     {"a program or library (ELF)", no_text}},
    {0, "\xcf\xfa\xed\xfe"sv, {"a program or library (Mach-O)", no_text}},
    {0, "\0asm"sv, {"a program (WebAssembly)", no_text}},
    {0, "\x89PNG"sv, {"an image (PNG)", no_text}},
    {0, "\xff\xd8\xff"sv, {"an image (JPEG)", no_text}},
    {0, "GIF8"sv, {"an image (GIF)", no_text}},
    {8, "WEBP"sv, {"an image (WebP)", no_text}},
    {8, "WAVE"sv, {"a sound (WAV)", no_text}},
    {0, "OggS"sv, {"a sound (Ogg)", no_text}},
    {0, "fLaC"sv, {"a sound (FLAC)", no_text}},
    {4, "ftyp"sv, {"a video or sound (MP4)", no_text}},
};

constexpr ForeignFormat zip{"a zip archive", unpack};
constexpr ForeignFormat numpy_archive{"NumPy arrays (.npz)", export_tokens};
constexpr ForeignFormat torch_archive{"a PyTorch file (.pt)", weights};
constexpr ForeignFormat pickle{"a Python pickle", export_lines};
constexpr ForeignFormat safetensors{"weights in safetensors", {"use them with `init_from`, not as data"}};

/// By the name of the first member.
const ForeignFormat& kind_of_zip(std::string_view beginning) {
  constexpr std::size_t name_at = 30;
  if (beginning.size() < name_at) return zip;
  const auto length = static_cast<std::size_t>(static_cast<unsigned char>(beginning[26])) |
                      static_cast<std::size_t>(static_cast<unsigned char>(beginning[27])) << 8;
  const std::string_view name = beginning.substr(name_at, length);
  if (name.ends_with(".npy")) return numpy_archive;
  return name.ends_with("data.pkl") ? torch_archive : zip;
}

bool is_printable(char c) { return c >= ' ' && c <= '~'; }

/// Whether no text begins with the signature, or this is none.
bool tells_from_text(const Signature& one, std::string_view beginning) {
  TextSurvey survey;
  survey.add(beginning.substr(0, foreign_format_bytes));
  const bool is_word = std::all_of(one.bytes.begin(), one.bytes.end(), is_printable);
  return !is_word || one.format.remedy.text == extract.text || survey.strange() > 0;
}

bool is_pickle(std::string_view beginning) {
  if (beginning.size() < 3 || beginning[0] != '\x80') return false;
  const char protocol = beginning[1], operation = beginning[2];
  if (protocol >= 4) return protocol <= 5 && operation == '\x95';
  return protocol >= 2 && "}](cX)KMJ\x8a"sv.find(operation) != std::string_view::npos;
}

/// Eight bytes with the length of the JSON that follows.
bool is_safetensors(std::string_view beginning) {
  std::uint64_t header = 0;
  if (beginning.size() < sizeof header + 2) return false;
  std::memcpy(&header, beginning.data(), sizeof header);
  return header >= 2 && header < std::uint64_t{1} << 32 && beginning.substr(sizeof header).starts_with("{\"");
}

}  // namespace

const ForeignFormat* foreign_format(std::string_view beginning) {
  const auto* const found = std::find_if(std::begin(signatures), std::end(signatures), [&](const Signature& one) {
    return beginning.size() > one.offset && beginning.substr(one.offset).starts_with(one.bytes) &&
           tells_from_text(one, beginning);
  });
  if (found != std::end(signatures)) return &found->format;
  if (beginning.starts_with("PK\x03\x04")) return &kind_of_zip(beginning);
  if (is_pickle(beginning)) return &pickle;
  return is_safetensors(beginning) ? &safetensors : nullptr;
}

}  // namespace ranvier::models

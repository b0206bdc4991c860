#include "offload/checkpoint/manifest.hpp"

#include "offload/tier.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/json_text.hpp"
#include "runtime/files/xxh3.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace ranvier::offload {
namespace {

namespace json = boost::json;
using runtime::DType;

constexpr std::string_view format_name = "ranvier checkpoint";
constexpr std::string_view sum_begin = "\"xxh3\":\"", sum_end = "\"}\n";
constexpr std::size_t sum_digits = 16;
constexpr std::size_t tail_bytes = sum_begin.size() + sum_digits + sum_end.size();

/// Upper limit of sizes: larger than any file system, and two of them can be added without overflow.
constexpr std::uint64_t most = std::uint64_t{1} << 60;
constexpr std::size_t longest_name = 255;

constexpr std::array dtypes{DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i8, DType::u8};

std::uint64_t sum_of(std::string_view text) { return runtime::xxh3(std::as_bytes(std::span(text))); }

/// Number written as "{:016x}".
std::optional<std::uint64_t> number_of(std::string_view digits) {
  std::uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return fmt::format("{:016x}", number) == digits ? std::optional(number) : std::nullopt;
}

json::value finite(const json::value& value) {
  if (const double* number = value.if_double(); number != nullptr && !std::isfinite(*number)) return nullptr;
  if (const json::object* object = value.if_object()) {
    json::object copy;
    for (const auto& [name, member] : *object) copy[name] = finite(member);
    return copy;
  }
  if (const json::array* array = value.if_array()) {
    json::array copy;
    for (const json::value& item : *array) copy.push_back(finite(item));
    return copy;
  }
  return value;
}

std::string as_json(std::string_view text) { return json::serialize(json::value(json::string(text))); }

/// Returns whether the name is plain: not hidden, not outside the folder, not the name of the manifest.
bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= longest_name && name.front() != '.' && name != Manifest::file_name &&
         name.find_first_not_of(std::string(letters_and_digits) + "-_.") == std::string_view::npos;
}

class ManifestReading {
 public:
  explicit ManifestReading(const std::string& source) : source_(source) {}

  Manifest read(std::string_view text) const {
    const std::uint64_t sum = checked_sum(text);
    json::value value = runtime::parse_json(text, source_);
    json::object* root = value.if_object();
    if (root == nullptr) refuse("not a JSON object");
    check_version(*root);
    Manifest manifest;
    manifest.sum = sum;
    manifest.step = static_cast<std::int64_t>(number(member(*root, "step"), "step"));
    manifest.training = std::move(object(*root, "training"));
    manifest.about = std::move(object(*root, "about"));
    read_arrays(*root, manifest);
    read_files(*root, manifest);
    read_pieces(*root, manifest);
    check_arrays(manifest);
    check_files(manifest);
    return manifest;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::data, "{}: {}", source_, fmt::format(format, std::forward<Args>(args)...));
  }

  /// Checksum at the end of the text; throws if it does not match the preceding bytes.
  std::uint64_t checked_sum(std::string_view text) const {
    const std::string_view tail = text.substr(text.size() - std::min(text.size(), tail_bytes));
    const auto stored = tail.starts_with(sum_begin) && tail.ends_with(sum_end)
                            ? number_of(tail.substr(sum_begin.size(), sum_digits))
                            : std::nullopt;
    if (!stored || tail.size() != tail_bytes)
      refuse("no checksum at the end: truncated or changed after it was written; use another checkpoint");
    const std::uint64_t sum = sum_of(text.substr(0, text.size() - tail_bytes));
    if (sum != *stored)
      refuse("changed after it was written: checksum {:016x} instead of {:016x}; use another checkpoint", sum,
             *stored);
    return sum;
  }

  void check_version(const json::object& root) const {
    const json::value* format = root.if_contains("format");
    if (format == nullptr || !format->is_string() || format->get_string() != format_name)
      refuse("not the manifest of a checkpoint");
    const std::uint64_t version = number(member(root, "version"), "version");
    if (version != Manifest::version)
      refuse(
          "format version {} is not supported, only {}; use the program version that wrote the checkpoint, or a "
          "newer version",
          version, Manifest::version);
  }

  const json::value& member(const json::object& root, std::string_view name) const {
    const json::value* value = root.if_contains(name);
    if (value == nullptr) refuse("'{}' is missing", name);
    return *value;
  }

  json::object& object(json::object& root, std::string_view name) const {
    if (!member(root, name).is_object()) refuse("'{}' is not an object", name);
    return root[name].get_object();
  }

  std::uint64_t number(const json::value& value, std::string_view what) const {
    const std::int64_t* number = value.if_int64();
    if (number == nullptr || *number < 0 || static_cast<std::uint64_t>(*number) > most)
      refuse("{} {} is not an integer from 0 to 2^60", what, json::serialize(value));
    return static_cast<std::uint64_t>(*number);
  }

  std::string text(const json::value& value, std::string_view what) const {
    const json::string* string = value.if_string();
    if (string == nullptr || string->empty() || string->size() > longest_name)
      refuse("{} {} is not a string of 1 to {} bytes", what, json::serialize(value), longest_name);
    return std::string(*string);
  }

  /// Calls `use` with each item of the list `name`, which has `count` parts.
  template <typename Use>
  void for_each(const json::object& root, std::string_view name, std::size_t count, Use&& use) const {
    const json::array* items = member(root, name).if_array();
    if (items == nullptr) refuse("'{}' is not a list", name);
    for (const json::value& item : *items) {
      const json::array* parts = item.if_array();
      if (parts == nullptr || parts->size() != count)
        refuse("item {} of '{}' does not have {} parts", &item - items->data(), name, count);
      use(*parts);
    }
  }

  void read_arrays(const json::object& root, Manifest& manifest) const {
    std::set<std::pair<std::string, std::string>> known;
    for_each(root, "arrays", 4, [&](const json::array& parts) {
      CheckpointArray array{text(parts[0], "the unit"), text(parts[1], "the array"), {}, {}};
      const std::string dtype_name = text(parts[2], "the element type");
      const auto* dtype =
          std::find_if(dtypes.begin(), dtypes.end(), [&](DType each) { return to_string(each) == dtype_name; });
      if (dtype == dtypes.end())
        refuse("{} of {} has elements of unknown type {}", array.name, array.unit, dtype_name);
      array.dtype = *dtype;
      array.elements = number(parts[3], "the number of elements");
      if (runtime::bytes_of(array.dtype, array.elements) > most)
        refuse("{} of {} has too many elements: {}", array.name, array.unit, array.elements);
      if (!known.emplace(array.unit, array.name).second) refuse("{} of {} is listed twice", array.name, array.unit);
      manifest.arrays.push_back(std::move(array));
    });
  }

  void read_files(const json::object& root, Manifest& manifest) const {
    std::set<std::string> known;
    for_each(root, "files", 2, [&](const json::array& parts) {
      CheckpointFile file{text(parts[0], "the file"), number(parts[1], "the size of a file")};
      if (!is_file_name(file.name))
        refuse("{} is not the name of a checkpoint file (letters, digits, '.', '-' and '_')", as_json(file.name));
      if (!known.insert(file.name).second) refuse("file {} is listed twice", file.name);
      manifest.files.push_back(std::move(file));
    });
  }

  void read_pieces(const json::object& root, Manifest& manifest) const {
    for_each(root, "pieces", 6, [&](const json::array& parts) {
      CheckpointSegment piece;
      const std::uint64_t array = number(parts[0], "the array of a segment");
      const std::uint64_t file = number(parts[1], "the file of a segment");
      if (array >= manifest.arrays.size())
        refuse("array of a segment is out of range: {} of {}", array, manifest.arrays.size());
      if (file >= manifest.files.size())
        refuse("file of a segment is out of range: {} of {}", file, manifest.files.size());
      piece.array = static_cast<std::uint32_t>(array);
      piece.file = static_cast<std::uint32_t>(file);
      piece.begin = number(parts[2], "the start of a segment");
      piece.count = number(parts[3], "the length of a segment");
      piece.offset = number(parts[4], "the offset of a segment");
      const auto hash = parts[5].is_string() ? number_of(parts[5].get_string()) : std::nullopt;
      if (!hash) refuse("{} is not a checksum of 16 digits", json::serialize(parts[5]));
      piece.hash = *hash;
      const DType dtype = manifest.arrays[piece.array].dtype;
      const std::size_t largest = runtime::elements_in(checkpoint_segment_bytes, dtype);
      if (piece.count == 0 || piece.count > largest)
        refuse("a segment of {} has {} elements, not 1 to {}", name_of(manifest, piece), piece.count, largest);
      if (runtime::is_in_blocks(dtype) && piece.begin % runtime::int8_block_elements != 0)
        refuse("a segment of {} starts at element {}, not a multiple of {}", name_of(manifest, piece), piece.begin,
               runtime::int8_block_elements);
      manifest.pieces.push_back(piece);
    });
  }

  static std::string name_of(const Manifest& manifest, const CheckpointSegment& piece) {
    const CheckpointArray& array = manifest.arrays[piece.array];
    return fmt::format("{} of {}", array.name, array.unit);
  }

  /// Checks that each element of each array is in exactly one segment.
  void check_arrays(const Manifest& manifest) const {
    std::vector<std::uint64_t> reached(manifest.arrays.size());
    for (const CheckpointSegment& piece :
         in_order(manifest, [](const CheckpointSegment& each) { return std::pair(each.array, each.begin); })) {
      std::uint64_t& end = reached[piece.array];
      if (piece.begin > end)
        refuse("elements {} to {} of {} are missing", end, piece.begin, name_of(manifest, piece));
      if (piece.begin < end)
        refuse("elements {} to {} of {} are listed twice", piece.begin, end, name_of(manifest, piece));
      end = piece.begin + piece.count;
    }
    for (std::size_t i = 0; i < reached.size(); ++i) {
      const CheckpointArray& array = manifest.arrays[i];
      if (reached[i] < array.elements)
        refuse("elements {} to {} of {} of {} are missing", reached[i], array.elements, array.name, array.unit);
      if (reached[i] > array.elements)
        refuse("{} of {} has {} elements, but segments reach {}", array.name, array.unit, array.elements,
               reached[i]);
    }
  }

  /// Checks that each block of each file belongs to exactly one segment.
  void check_files(const Manifest& manifest) const {
    std::vector<std::uint64_t> reached(manifest.files.size());
    for (const CheckpointSegment& piece :
         in_order(manifest, [](const CheckpointSegment& each) { return std::pair(each.file, each.offset); })) {
      const CheckpointFile& file = manifest.files[piece.file];
      if (piece.offset % Tier::block_bytes != 0)
        refuse("a segment is stored at offset {} of {}, not a multiple of {}", piece.offset, file.name,
               Tier::block_bytes);
      std::uint64_t& end = reached[piece.file];
      if (piece.offset < end) refuse("two segments of {} overlap at offset {}", file.name, piece.offset);
      if (piece.offset > end) refuse("{} has no segment at offset {}", file.name, end);
      end = piece.offset + manifest.block_bytes_of(piece);
      if (end > file.bytes)
        refuse("a segment at offset {} of {} exceeds its {} bytes", piece.offset, file.name, file.bytes);
    }
    for (std::size_t i = 0; i < reached.size(); ++i) {
      const CheckpointFile& file = manifest.files[i];
      if (reached[i] < file.bytes)
        refuse("{} has {} bytes, but segments reach {}", file.name, file.bytes, reached[i]);
    }
  }

  template <typename Key>
  static std::vector<CheckpointSegment> in_order(const Manifest& manifest, const Key& key) {
    std::vector<CheckpointSegment> pieces = manifest.pieces;
    std::ranges::sort(pieces, {}, key);
    return pieces;
  }

  const std::string& source_;
};

template <typename Items, typename Write>
void append_list(std::string& text, const char* name, const Items& items, Write&& write) {
  text += fmt::format("\"{}\":[", name);
  const char* before = "\n";
  for (const auto& item : items) {
    text += std::exchange(before, ",\n");
    write(std::back_inserter(text), item);
  }
  text += "],\n";
}

}  // namespace

std::uint64_t Manifest::block_bytes_of(const CheckpointSegment& piece) const {
  return Tier::whole_blocks(bytes_of(piece));
}

std::uint64_t Manifest::data_bytes() const {
  return std::accumulate(files.begin(), files.end(), std::uint64_t{0},
                         [](std::uint64_t bytes, const CheckpointFile& file) { return bytes + file.bytes; });
}

std::string to_json(const Manifest& manifest) {
  std::string text =
      fmt::format("{{\"format\":{},\"version\":{},\n\"step\":{},\n\"training\":{},\n\"about\":{},\n",
                  as_json(format_name), Manifest::version, manifest.step,
                  json::serialize(finite(manifest.training)), json::serialize(finite(manifest.about)));
  append_list(text, "arrays", manifest.arrays, [](auto out, const CheckpointArray& array) {
    fmt::format_to(out, "[{},{},\"{}\",{}]", as_json(array.unit), as_json(array.name), to_string(array.dtype),
                   array.elements);
  });
  append_list(text, "files", manifest.files, [](auto out, const CheckpointFile& file) {
    fmt::format_to(out, "[{},{}]", as_json(file.name), file.bytes);
  });
  append_list(text, "pieces", manifest.pieces, [](auto out, const CheckpointSegment& piece) {
    fmt::format_to(out, "[{},{},{},{},{},\"{:016x}\"]", piece.array, piece.file, piece.begin, piece.count,
                   piece.offset, piece.hash);
  });
  text += fmt::format("{}{:016x}{}", sum_begin, sum_of(text), sum_end);
  return text;
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  return ManifestReading(source).read(text);
}

}  // namespace ranvier::offload

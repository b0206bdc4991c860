#include "models/weights/safetensors.hpp"

#include "models/core/name_pattern.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/json_text.hpp"

#include <boost/json/parser.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>

namespace ranvier::models {
namespace {

namespace json = boost::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t length_bytes = 8;
constexpr std::size_t longest_header = 100'000'000;  // the limit of the reference implementation
constexpr std::size_t max_dimensions = 16;
constexpr std::size_t longest_name = 4096;
constexpr const char* blanks = " \t\r\n";

using runtime::DType;

struct DTypeName {
  std::string_view name;
  std::size_t bytes = 0;
  std::optional<DType> dtype;
};

constexpr DTypeName dtype_names[] = {
    {"F32", 4, DType::f32}, {"BF16", 2, DType::bf16}, {"F16", 2, DType::f16}, {"F64", 8, {}},
    {"I64", 8, {}},         {"U64", 8, {}},           {"I32", 4, {}},         {"U32", 4, {}},
    {"I16", 2, {}},         {"U16", 2, {}},           {"I8", 1, {}},          {"U8", 1, {}},
    {"BOOL", 1, {}},        {"F8_E4M3", 1, {}},       {"F8_E5M2", 1, {}},
};

/// Reads the tensors of a header and accepts exactly its form. A parsed object would lose duplicate names, so it reads
/// member by member.
std::vector<StoredTensor> read_header(const std::string& file, std::string_view header, std::size_t data_bytes) {
  json::error_code error;
  json::parser parser;
  const std::size_t parsed = parser.write_some(header.data(), header.size(), error);
  if (!error && header.find_first_not_of(blanks, parsed) != std::string_view::npos) error = json::error::extra_data;
  if (!error && header.find_first_not_of(blanks) != 0) error = json::error::syntax;
  if (error)
    fail(ErrorCode::data, "{}: not a safetensors file: {} at offset {}; download or save the file again", file,
         error.message(), length_bytes + parsed);
  std::string where = "the header";
  const auto damaged = [&](const std::string& what) {
    fail(ErrorCode::data, "{}: not a safetensors file: {} {}; download or save the file again", file, where, what);
  };
  const auto expect_kind = [&](bool expected, const json::value& value) {
    constexpr const char* kinds[] = {"null", "boolean", "number", "number", "number", "string", "list"};
    if (expected) return;
    if (value.is_object()) damaged("has an object instead of a value");
    damaged(fmt::format("has an unexpected {}", kinds[static_cast<std::size_t>(value.kind())]));
  };
  const auto numbers = [&](const json::value& list) {
    expect_kind(list.is_array(), list);
    if (list.get_array().size() > max_dimensions)
      damaged(fmt::format("has an array of more than {} numbers", max_dimensions));
    std::vector<std::size_t> all;
    for (const json::value& one : list.get_array()) {
      expect_kind(one.is_number(), one);
      if (one.is_double()) damaged("has a number that is not an integer");
      if (one.is_int64() && one.get_int64() < 0) damaged("has a negative number");
      all.push_back(one.to_number<std::size_t>());
    }
    return all;
  };
  const json::value whole = parser.release();
  expect_kind(whole.is_object(), whole);
  std::vector<StoredTensor> tensors;
  for (const auto& [name, text] : runtime::json_members(header)) {
    const bool is_metadata = name == "__metadata__";
    if (!is_metadata) where = "the header, near tensor '" + name + "',";
    if (name.size() > longest_name) damaged("has a name that is too long");
    if (!text.starts_with('{')) expect_kind(false, runtime::parse_json(text, file));
    StoredTensor tensor{.name = name};
    std::vector<std::size_t> offsets;
    std::set<std::string> known;
    for (const auto& [key, written] : runtime::json_members(text)) {
      const json::value value = runtime::parse_json(written, file);
      const bool is_text = is_metadata || key == "dtype";
      expect_kind(is_text ? value.is_string() : key == "shape" || key == "data_offsets", value);
      if (!known.insert(key).second && !is_metadata) damaged("has '" + key + "' twice");
      if (is_text)
        tensor.dtype_name = value.get_string();
      else
        (key == "shape" ? tensor.shape : offsets) = numbers(value);
    }
    if (is_metadata) continue;
    const auto refuse = [&](const std::string& what) {
      fail(ErrorCode::data, "{}: tensor '{}' {}; download or save the file again", file, tensor.name, what);
    };
    if (known.size() < 3) refuse("lacks its dtype, shape or data_offsets");
    if (offsets.size() != 2) refuse("has data_offsets that are not two numbers");
    const auto* const type = std::find_if(std::begin(dtype_names), std::end(dtype_names),
                                          [&](const DTypeName& one) { return one.name == tensor.dtype_name; });
    if (type == std::end(dtype_names)) refuse("has an unknown dtype, '" + tensor.dtype_name + "'");
    const std::size_t begin = offsets[0], end = offsets[1];
    if (begin > end || end > data_bytes)
      refuse(fmt::format("is stored at offsets {} to {} of {} bytes of data", begin, end, data_bytes));
    std::size_t bytes = type->bytes;
    bool overflows = false;
    for (const std::size_t size : tensor.shape)
      overflows = __builtin_mul_overflow(bytes, size, &bytes) || overflows;
    if (overflows || bytes != end - begin)
      refuse(fmt::format("has {} bytes at offset {}, which do not match {} of shape {}", end - begin, begin,
                         tensor.dtype_name, shape_text(tensor.shape)));
    tensor.dtype = type->dtype;
    tensor.begin = length_bytes + header.size() + begin;
    tensor.end = length_bytes + header.size() + end;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

template <typename T>
void convert(const std::byte* from, std::size_t n, float* to) {
  for (std::size_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));  // tensors need not be aligned in a file
    to[i] = runtime::to_float(value);
  }
}

constexpr std::size_t header_alignment = 8;

std::string_view name_of(DType dtype) {
  for (const DTypeName& known : dtype_names)
    if (known.dtype == dtype) return known.name;
  fail(ErrorCode::internal, "unsupported dtype of weights: {}", to_string(dtype));
}

std::size_t product_of(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

}  // namespace

std::map<std::string, std::set<std::string>> files_of_index(const std::filesystem::path& index) {
  const std::string where = index.string();
  const runtime::MemoryMap file(index);
  if (file.bytes().size() > longest_header)
    fail(ErrorCode::data, "{}: the file is too large for an index of weights: {} bytes", where,
         file.bytes().size());
  const auto value = runtime::parse_json(file.text(), where);
  const auto* const object = value.if_object();
  const auto* const map = object == nullptr ? nullptr : object->if_contains("weight_map");
  if (map == nullptr || !map->is_object() || map->as_object().empty())
    fail(ErrorCode::data, "{}: not an index of weights: 'weight_map' is missing", where);
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [tensor, name] : map->as_object()) {
    const auto* const text = name.if_string();
    const std::filesystem::path path(text == nullptr ? "" : std::string(*text));
    if (!path.has_filename() || path.has_parent_path() || path == ".." || path == ".")
      fail(ErrorCode::data, "{}: tensor '{}' is in {}, which is not a file name in the index's folder", where,
           std::string(tensor), boost::json::serialize(name));
    files[path.string()].insert(std::string(tensor));
  }
  return files;
}

std::string shape_text(const std::vector<std::size_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool has_weights_extension(const std::filesystem::path& path) {
  const auto extensions = {".safetensors", ".bin", ".json", ".pt"};
  return std::find(extensions.begin(), extensions.end(), path.extension()) != extensions.end();
}

std::size_t StoredTensor::elements() const { return product_of(shape); }

Safetensors::Safetensors(const std::filesystem::path& path, const std::string& ignored) : path_(path) {
  if (path.extension() == ".json") {
    open_all(path);
  } else {
    open(path);
  }
  if (!ignored.empty()) ignore(ignored);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!by_name_.emplace(tensors_[i].name, i).second)
      fail(ErrorCode::data, "{}: two tensors have the name '{}'; download or save the file again", path.string(),
           tensors_[i].name);
  }
}

void Safetensors::open_all(const std::filesystem::path& index) {
  const auto files = files_of_index(index);
  for (const auto& [name, tensors] : files) {
    const std::size_t first = tensors_.size();
    open(index.parent_path() / name);
    // Only tensors that the index names count.
    std::set<std::string> missing = tensors;
    const auto is_unlisted = [&, &names = tensors](const StoredTensor& tensor) {
      missing.erase(tensor.name);
      return !names.contains(tensor.name);
    };
    const auto begin = tensors_.begin() + static_cast<std::ptrdiff_t>(first);
    tensors_.erase(std::remove_if(begin, tensors_.end(), is_unlisted), tensors_.end());
    if (!missing.empty())
      fail(ErrorCode::data,
           "{}: the index lists tensor '{}' in {}, but the file lacks this tensor; download both files again",
           index.string(), *missing.begin(), name);
  }
}

void Safetensors::open(const std::filesystem::path& path) {
  const std::string_view bytes = files_.emplace_back(path).text();
  const std::string file = path.string();
  constexpr std::string_view pointer = "version https://git-lfs.github.com/spec/";
  if (bytes.starts_with(pointer))
    fail(ErrorCode::data, "{}: a git-LFS pointer, not the weights; run 'git lfs pull' in the folder of the file",
         file);
  if (bytes.size() < length_bytes)
    fail(ErrorCode::data,
         "{}: not a safetensors file: {} bytes, too short for a header; download or save the file again", file,
         bytes.size());
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), length_bytes);
  if (header_bytes > longest_header || header_bytes > bytes.size() - length_bytes)
    fail(ErrorCode::data,
         "{}: incomplete safetensors file: the header has {} bytes, but the file has {}; download or save the file "
         "again",
         file, header_bytes, bytes.size());

  const std::size_t data_begin = length_bytes + header_bytes;
  std::vector<StoredTensor> tensors =
      read_header(file, bytes.substr(length_bytes, header_bytes), bytes.size() - data_begin);
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::size_t expected = data_begin;
  for (StoredTensor& tensor : tensors) {
    tensor.file = files_.size() - 1;
    if (tensor.begin != expected)
      fail(ErrorCode::data,
           "{}: tensor '{}' starts at offset {} of the data, {} the end of the previous tensor; download or save "
           "the file again",
           file, tensor.name, tensor.begin - data_begin, tensor.begin < expected ? "before" : "after");
    expected = tensor.end;
  }
  if (expected != bytes.size())
    fail(ErrorCode::data, "{}: {} bytes after the last tensor; download or save the file again", file,
         bytes.size() - expected);
  std::move(tensors.begin(), tensors.end(), std::back_inserter(tensors_));
}

void Safetensors::ignore(const std::string& expression) {
  const NamePattern pattern(expression, "`ignore_tensors`");
  std::erase_if(tensors_, [&](const StoredTensor& tensor) {
    if (!pattern.matches_in(tensor.name)) return false;
    ignored_.push_back(tensor.name);
    return true;
  });
  if (ignored_.empty())
    fail(ErrorCode::usage, "`ignore_tensors` {} matches no tensor of {}; remove `ignore_tensors`", expression,
         path_.string());
}

const StoredTensor* Safetensors::find(std::string_view name) const {
  auto found = by_name_.find(name);
  if (found == by_name_.end()) found = by_name_.find(std::string(stored_prefix) + std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void Safetensors::read(const StoredTensor& tensor, std::size_t begin, std::size_t end, float* to) const {
  expect(begin <= end && end <= tensor.elements(),
         "{}: elements are out of range: {} to {} of tensor '{}' of shape {}", path_.string(), begin, end,
         tensor.name, shape_text(tensor.shape));
  check_dtype(tensor);
  const std::byte* const from = bytes_of(tensor).data() + begin * size_of(*tensor.dtype);
  runtime::with_float_type(*tensor.dtype, [&](auto zero) { convert<decltype(zero)>(from, end - begin, to); });
}

void Safetensors::check_dtype(const StoredTensor& tensor) const {
  if (!tensor.dtype)
    fail(ErrorCode::data, "{}: tensor '{}' has unsupported dtype {}; convert it to F32, BF16 or F16",
         path_.string(), tensor.name, tensor.dtype_name);
}

bool Safetensors::equal(const StoredTensor& a, const StoredTensor& b) const {
  return a.dtype_name == b.dtype_name && a.shape == b.shape && std::ranges::equal(bytes_of(a), bytes_of(b));
}

std::span<const std::byte> Safetensors::bytes_of(const StoredTensor& tensor) const {
  return files_[tensor.file].bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

std::filesystem::path find_weights(const std::filesystem::path& given, const char* flag) {
  const bool is_folder = std::filesystem::is_directory(given);
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (is_folder && std::filesystem::exists(given / name)) return given / name;
  }
  if (is_folder ? std::filesystem::exists(given / "adapter_config.json")
                : given.filename() == "adapter_model.safetensors")
    fail(ErrorCode::usage,
         "{0} {1} has an adapter, not a model; use the model's folder with {0}, and `init_adapter` {2} for the "
         "adapter (ranvier-generate: `adapter`)",
         flag, given.string(), (is_folder ? given : "." / given.parent_path()).lexically_normal().string());
  if (!is_folder) return given;
  fail(ErrorCode::io,
       "{} {}: the folder has no model.safetensors and no model.safetensors.index.json; use the folder of a model",
       flag, given.string());
}

std::size_t TensorToStore::elements() const { return product_of(shape); }

std::string safetensors_header(std::span<const TensorToStore> tensors) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  std::size_t begin = 0;
  for (const TensorToStore& tensor : tensors) {
    const std::size_t end = begin + tensor.bytes();
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        boost::json::serialize(boost::json::string(tensor.name)), name_of(tensor.dtype),
                        fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  json += '}';
  json.append((header_alignment - json.size() % header_alignment) % header_alignment, ' ');
  const std::uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json;
}

}  // namespace ranvier::models

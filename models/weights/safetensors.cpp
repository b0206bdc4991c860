#include "models/weights/safetensors.hpp"

#include "models/core/name_pattern.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/json_text.hpp"

#include <boost/json/basic_parser_impl.hpp>
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

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t length_bytes = 8;
constexpr std::size_t longest_header = 100'000'000;  // the limit of the reference implementation
constexpr std::size_t max_dimensions = 16;

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

/// Header entry of one tensor, not yet checked.
struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

/// Handler of JSON parser events that accepts exactly the form of a safetensors header. A parsed object would lose
/// duplicate names.
class HeaderHandler {
 public:
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = max_dimensions;
  static constexpr std::size_t max_key_size = 4096;
  static constexpr std::size_t max_string_size = std::size_t(-1);

  using Code = boost::json::error_code;
  using Text = boost::json::string_view;

  explicit HeaderHandler(const std::string& file) : file_(file) {}

  [[nodiscard]] std::vector<Entry>& entries() { return entries_; }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }

  bool on_object_begin(Code&) {
    if (level_ == 2 || (level_ == 1 && in_list())) refuse("has an object instead of a value");
    ++level_;
    return true;
  }
  bool on_object_end(std::size_t, Code&) {
    --level_;
    key_.clear();
    return true;
  }
  bool on_array_begin(Code&) {
    if (level_ != 2 || in_metadata_ || list_ != nullptr) refuse("has an unexpected list");
    Entry& entry = entries_.back();
    if (key_ != "shape" && key_ != "data_offsets") refuse("has an unexpected list");
    auto& list = key_ == "shape" ? entry.shape : entry.offsets;
    if (list) refuse("has '" + key_ + "' twice");
    list_ = &list.emplace();
    return true;
  }
  bool on_array_end(std::size_t, Code&) {
    list_ = nullptr;
    return true;
  }
  bool on_key_part(Text text, std::size_t, Code&) {
    part_.append(text.data(), text.size());
    return true;
  }
  bool on_key(Text text, std::size_t, Code&) {
    part_.append(text.data(), text.size());
    key_ = std::exchange(part_, {});
    if (level_ != 1) return true;
    in_metadata_ = key_ == "__metadata__";
    if (!in_metadata_) entries_.push_back({.name = key_});
    return true;
  }
  bool on_string_part(Text text, std::size_t, Code&) {
    part_.append(text.data(), text.size());
    return true;
  }
  bool on_string(Text text, std::size_t, Code&) {
    part_.append(text.data(), text.size());
    const std::string value = std::exchange(part_, {});
    if (level_ == 2 && in_metadata_) return true;
    if (level_ != 2 || key_ != "dtype" || in_list()) refuse("has an unexpected string");
    if (entries_.back().dtype) refuse("has 'dtype' twice");
    entries_.back().dtype = value;
    return true;
  }
  bool on_number_part(Text, Code&) { return true; }
  bool on_int64(std::int64_t value, Text, Code&) {
    if (value < 0) refuse("has a negative number");
    return number(static_cast<std::uint64_t>(value));
  }
  bool on_uint64(std::uint64_t value, Text, Code&) { return number(value); }
  bool on_double(double, Text, Code&) { refuse("has a number that is not an integer"); }
  bool on_bool(bool, Code&) { refuse("has an unexpected boolean"); }
  bool on_null(Code&) { refuse("has an unexpected null"); }
  bool on_comment_part(Text, Code&) { return true; }
  bool on_comment(Text, Code&) { return true; }

 private:
  [[nodiscard]] bool in_list() const { return list_ != nullptr; }

  bool number(std::uint64_t value) {
    if (!in_list()) refuse("has an unexpected number");
    list_->push_back(value);
    return true;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    const std::string where =
        entries_.empty() ? "the header" : "the header, near tensor '" + entries_.back().name + "',";
    fail(ErrorCode::data, "{}: not a safetensors file: {} {}; download or save the file again", file_, where, what);
  }

  const std::string& file_;
  std::vector<Entry> entries_;
  std::vector<std::uint64_t>* list_ = nullptr;
  std::string part_;
  std::string key_;
  int level_ = 0;
  bool in_metadata_ = false;
};

std::vector<Entry> parse_header(const std::string& file, std::string_view header) {
  boost::json::parse_options options;
  options.max_depth = 4;
  boost::json::basic_parser<HeaderHandler> parser(options, file);
  boost::json::error_code error;
  std::size_t parsed = parser.write_some(false, header.data(), header.size(), error);
  if (!error && header.find_first_not_of(" \t\r\n", parsed) != std::string_view::npos)
    error = boost::json::error::extra_data;
  if (!error && !header.starts_with('{')) error = boost::json::error::syntax;
  if (error)
    fail(ErrorCode::data, "{}: not a safetensors file: {} at offset {}; download or save the file again", file,
         error.message(), length_bytes + parsed);
  return std::move(parser.handler().entries());
}

StoredTensor checked(const std::string& file, const Entry& entry, std::size_t data_begin, std::size_t data_bytes) {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorCode::data, "{}: tensor '{}' {}; download or save the file again", file, entry.name, what);
  };
  if (!entry.dtype || !entry.shape || !entry.offsets) refuse("lacks its dtype, shape or data_offsets");
  if (entry.offsets->size() != 2) refuse("has data_offsets that are not two numbers");
  const auto* const known = std::find_if(std::begin(dtype_names), std::end(dtype_names),
                                         [&](const DTypeName& one) { return one.name == *entry.dtype; });
  if (known == std::end(dtype_names)) refuse("has an unknown dtype, '" + *entry.dtype + "'");

  const std::uint64_t begin = entry.offsets->at(0);
  const std::uint64_t end = entry.offsets->at(1);
  if (begin > end || end > data_bytes)
    refuse(fmt::format("is stored at offsets {} to {} of {} bytes of data", begin, end, data_bytes));
  std::uint64_t bytes = known->bytes;
  bool overflows = false;
  for (const auto size : *entry.shape) overflows = __builtin_mul_overflow(bytes, size, &bytes) || overflows;
  std::vector<std::size_t> shape(entry.shape->begin(), entry.shape->end());
  if (overflows || bytes != end - begin)
    refuse(fmt::format("has {} bytes at offset {}, which do not match {} of shape {}", end - begin, begin,
                       *entry.dtype, shape_text(shape)));
  return {entry.name, *entry.dtype, known->dtype, std::move(shape), data_begin + begin, data_begin + end};
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
    const auto begin = tensors_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = std::remove_if(
        begin, tensors_.end(), [&names = tensors](const auto& tensor) { return !names.contains(tensor.name); });
    std::set<std::string> there;
    for (auto tensor = begin; tensor != end; ++tensor) there.insert(tensor->name);
    for (const auto& tensor : tensors) {
      if (!there.contains(tensor))
        fail(ErrorCode::data,
             "{}: the index lists tensor '{}' in {}, but the file lacks this tensor; download both files again",
             index.string(), tensor, name);
    }
    tensors_.erase(end, tensors_.end());
  }
}

void Safetensors::open(const std::filesystem::path& path) {
  const std::string_view bytes = files_.emplace_back(path).text();
  const std::string file = path.string();
  std::vector<StoredTensor> tensors;
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
  const std::size_t data_bytes = bytes.size() - data_begin;
  for (const auto& entry : parse_header(file, bytes.substr(length_bytes, header_bytes)))
    tensors.push_back(checked(file, entry, data_begin, data_bytes));

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

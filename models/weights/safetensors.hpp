// Reads weights from a safetensors file, and writes its header. The file has 8 bytes with the length of the JSON
// header, the header with name, dtype, shape and offsets of each tensor, then the tensors, little-endian.
//
// Opening checks the complete header: each tensor is inside the file, has the size of its shape and starts at the end
// of its predecessor; names are unique. So later reads cannot leave the file. Any thread.
//
// Several files with an index (model.safetensors.index.json) are read as one.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/files/memory_map.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

struct StoredTensor {
  std::string name;
  std::string dtype_name;               ///< as in the file: "F32", "BOOL"
  std::optional<runtime::DType> dtype;  ///< f32, bf16 or f16; none: its values cannot be read
  std::vector<std::size_t> shape;
  std::size_t begin = 0;  ///< bytes from the start of its file
  std::size_t end = 0;
  std::size_t file = 0;  ///< index of its file

  [[nodiscard]] std::size_t elements() const;
};

/// Whether a path that does not exist yet names a weights file, not a folder: it ends with an extension of weights
/// files. Other dots ("llama-3.1-ft") do not count.
[[nodiscard]] bool has_weights_extension(const std::filesystem::path& path);

/// Optional prefix of tensor names.
inline constexpr std::string_view stored_prefix = "transformer.";

class Safetensors {
 public:
  /// Opens a safetensors file, or an index of several (.json). Hides tensors whose names match the regular expression
  /// `ignored` (NamePattern); empty: none. Throws ErrorCode::io if a file cannot be read, ErrorCode::data if one is
  /// incomplete or lacks a tensor of the index. Throws ErrorCode::usage for an expression that is invalid or matches
  /// nothing.
  explicit Safetensors(const std::filesystem::path& path, const std::string& ignored = {});

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Tensors in the order of their bytes, file by file.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }
  /// Names of the tensors hidden by `ignored`.
  [[nodiscard]] const std::vector<std::string>& ignored() const noexcept { return ignored_; }
  /// Tensor with that name, with or without stored_prefix; null if there is none.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;

  /// Reads elements [begin, end) of one of tensors() as floats. Throws ErrorCode::data for an unsupported dtype,
  /// ErrorCode::internal for a range outside the tensor.
  void read(const StoredTensor& tensor, std::size_t begin, std::size_t end, float* to) const;

  /// Throws ErrorCode::data if read() does not support the dtype.
  void check_dtype(const StoredTensor& tensor) const;

  /// Whether two of tensors() have the same dtype, shape and bits.
  [[nodiscard]] bool equal(const StoredTensor& a, const StoredTensor& b) const;

 private:
  void open(const std::filesystem::path& path);
  void open_all(const std::filesystem::path& index);
  void ignore(const std::string& expression);
  [[nodiscard]] std::span<const std::byte> bytes_of(const StoredTensor& tensor) const;

  std::filesystem::path path_;
  std::vector<runtime::MemoryMap> files_;
  std::vector<StoredTensor> tensors_;
  std::vector<std::string> ignored_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

/// Path of the weights file for `given`: itself or, for a folder, its model.safetensors or index. Throws
/// ErrorCode::io if there is none; the message names `flag`.
[[nodiscard]] std::filesystem::path find_weights(const std::filesystem::path& given, const char* flag);

/// Tensors per file of an index. Throws ErrorCode::io and ErrorCode::data.
[[nodiscard]] std::map<std::string, std::set<std::string>> files_of_index(const std::filesystem::path& index);

/// "[768, 2304]".
[[nodiscard]] std::string shape_text(const std::vector<std::size_t>& shape);

/// Tensor of a file to write.
struct TensorToStore {
  std::string name;
  runtime::DType dtype = runtime::DType::f32;  ///< f32, bf16 or f16
  std::vector<std::size_t> shape;

  [[nodiscard]] std::size_t elements() const;
  [[nodiscard]] std::size_t bytes() const { return elements() * runtime::size_of(dtype); }
};

/// Tensor dtypes by name; fp32 if missing.
using TensorTypes = std::map<std::string, runtime::DType, std::less<>>;

/// Everything before the values of the first tensor; the tensors follow in order without gaps.
[[nodiscard]] std::string safetensors_header(std::span<const TensorToStore> tensors);

}  // namespace ranvier::models

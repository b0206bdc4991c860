// Reading weights from a safetensors file: eight bytes with the length of a JSON header, the header with name,
// dtype, shape and place of every tensor, then the tensors one after another, little-endian.
//
// The whole header is checked when the file is opened: every tensor lies inside the file, has the bytes that
// its shape needs, and begins where the one before it ended; no name comes twice. After that nothing that the
// file says can lead a read astray. Any thread.
//
// Weights that Hugging Face has cut into several such files are read as one, through the index beside them
// (model.safetensors.index.json: which tensor is in which file).
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/memory_map.hpp"

#include <cstddef>
#include <filesystem>
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
  std::size_t file = 0;  ///< which of several

  [[nodiscard]] std::size_t elements() const;
};

/// Whether a path that does not exist yet names a file of weights, not a folder: it ends with an extension that files
/// of weights have. A dot elsewhere ("llama-3.1-ft") does not count.
[[nodiscard]] bool has_weights_extension(const std::filesystem::path& path);

/// What the names of tensors may begin with.
inline constexpr std::string_view stored_prefix = "transformer.";

class Safetensors {
 public:
  /// A safetensors file, or an index of several (.json). Tensors of a name in which the regular expression
  /// `ignored` (NamePattern) matches are as if they were not there; empty: all are. Throws ErrorCode::io if a file
  /// cannot be read, ErrorCode::data if one is not a whole safetensors file, or lacks what the index says is in it,
  /// ErrorCode::usage for an expression that is none, or matches nowhere.
  explicit Safetensors(const std::filesystem::path& path, const std::string& ignored = {});

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// In the order of their bytes, file by file.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }
  /// Names of those that `ignored` left out.
  [[nodiscard]] const std::vector<std::string>& ignored() const noexcept { return ignored_; }
  /// The tensor of that name, or of that name after stored_prefix; null if there is none.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;

  /// Writes elements [begin, end) of one of tensors() as floats. Throws ErrorCode::data for a dtype that
  /// cannot be read, ErrorCode::internal for a range outside the tensor.
  void read(const StoredTensor& tensor, std::size_t begin, std::size_t end, float* to) const;

  /// Whether two of tensors() are alike in dtype, shape and every bit.
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

/// The file of the weights that `given` means: itself or, of a folder, its model.safetensors or the index of
/// several. Throws ErrorCode::io if there is none; the message names `flag`.
[[nodiscard]] std::filesystem::path find_weights(const std::filesystem::path& given, const char* flag);

/// What an index says: the tensors that are in each of the files beside it. Throws ErrorCode::io and ErrorCode::data.
[[nodiscard]] std::map<std::string, std::set<std::string>> files_of_index(const std::filesystem::path& index);

/// "[768, 2304]".
[[nodiscard]] std::string shape_text(const std::vector<std::size_t>& shape);

}  // namespace ranvier::models

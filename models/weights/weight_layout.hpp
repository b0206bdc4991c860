// Position of every element of a model's units in its weights files: one file, or several of limited size with an
// index, like transformers. Any process that knows the model computes all headers, names and offsets, so processes
// can write in parallel without communication. Pure data; any thread.
//
// Files contain no gaps and padding of units. Values are fp32 unless a tensor has another type.
#pragma once

#include "models/core/layer.hpp"
#include "models/weights/safetensors.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

class WeightLayout {
 public:
  static constexpr std::uint64_t default_file_bytes = std::uint64_t{5} << 30;
  static constexpr const char* single_name = "model.safetensors";
  static constexpr const char* index_name = "model.safetensors.index.json";

  struct File {
    std::string header;
    std::uint64_t bytes = 0;  ///< bytes of the complete file
  };

  /// Elements that are contiguous in a unit and in a file.
  struct Run {
    std::size_t file = 0;
    std::uint64_t offset = 0;  ///< bytes from the start of the file
    std::size_t begin = 0;     ///< first element in the unit
    std::size_t count = 0;
    runtime::DType dtype = runtime::DType::f32;  ///< dtype in the file

    friend bool operator==(const Run&, const Run&) = default;
  };

  /// Tensors are ordered by the units' first parameters; in a file, 2-byte types follow fp32, so every value is
  /// aligned. A file ends before the tensor that would make it larger than `max_bytes`; a larger tensor gets a
  /// separate file. `single` is the name of the only file.
  explicit WeightLayout(std::span<const UnitSpec> units, std::uint64_t max_bytes = default_file_bytes,
                        std::string single = single_name, const TensorTypes& types = {});

  [[nodiscard]] const std::vector<File>& files() const noexcept { return files_; }
  /// `single`, or "model-00001-of-00003.safetensors"; `stem` replaces "model" in the latter.
  [[nodiscard]] std::string name(std::size_t file, std::string_view stem = "model") const;
  /// Content of the index of several files: the file of each tensor.
  [[nodiscard]] std::string index(std::string_view stem = "model") const;

  /// Elements of all tensors.
  [[nodiscard]] std::uint64_t elements() const noexcept { return elements_; }
  /// Bytes of all tensors.
  [[nodiscard]] std::uint64_t value_bytes() const noexcept { return value_bytes_; }
  /// Bytes of all files, without the index.
  [[nodiscard]] std::uint64_t bytes() const;

  /// Runs of elements [begin, end) of a unit in the files, in the unit's order.
  [[nodiscard]] std::vector<Run> runs(const UnitSpec& unit, std::size_t begin, std::size_t end) const;

 private:
  struct FileOffset {
    std::size_t file = 0;
    std::uint64_t offset = 0;  // bytes
    runtime::DType dtype = runtime::DType::f32;
  };

  std::string single_;
  std::vector<File> files_;
  std::map<std::string, FileOffset, std::less<>> places_;  // by tensor
  std::uint64_t elements_ = 0;
  std::uint64_t value_bytes_ = 0;
};

}  // namespace ranvier::models

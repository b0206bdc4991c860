// Where every element of a model's units lies in its weights files: one file, or several of a limited size beside an
// index, as transformers cuts them. Everyone who knows the model knows all headers, names and offsets, so that any
// number of processes write their parts at once without a word between them. Pure data; any thread.
//
// A unit's gaps and padding are in no file. Values are fp32 unless a tensor has another type.
#pragma once

#include "models/layer.hpp"
#include "models/weights/safetensors_header.hpp"

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
    std::uint64_t bytes = 0;  ///< of all of it
  };

  /// Neighbours in a unit that are neighbours in a file.
  struct Run {
    std::size_t file = 0;
    std::uint64_t offset = 0;  ///< bytes from the file's start
    std::size_t begin = 0;     ///< of the unit
    std::size_t count = 0;
    runtime::DType dtype = runtime::DType::f32;  ///< in the file

    friend bool operator==(const Run&, const Run&) = default;
  };

  /// Tensors come in the order of the units, each where the first of its parameters does; in a file, 2-byte types
  /// follow fp32, so that every value is aligned. A file ends before the tensor whose values would make it larger
  /// than `max_bytes`; a tensor that is larger itself has a file of its own. `single` is the name of the only file.
  explicit WeightLayout(std::span<const UnitSpec> units, std::uint64_t max_bytes = default_file_bytes,
                        std::string single = single_name, const TensorTypes& types = {});

  [[nodiscard]] const std::vector<File>& files() const noexcept { return files_; }
  /// The single one's, or "model-00001-of-00003.safetensors"; `stem` takes the place of "model" in the latter.
  [[nodiscard]] std::string name(std::size_t file, std::string_view stem = "model") const;
  /// What the index of several files says: which tensor is in which of them.
  [[nodiscard]] std::string index(std::string_view stem = "model") const;

  /// Of all tensors.
  [[nodiscard]] std::uint64_t elements() const noexcept { return elements_; }
  /// Bytes of all tensors.
  [[nodiscard]] std::uint64_t value_bytes() const noexcept { return value_bytes_; }
  /// Of all files, the index apart.
  [[nodiscard]] std::uint64_t bytes() const;

  /// What elements [begin, end) of a unit have for the files, in the unit's order.
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

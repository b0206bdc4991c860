// Writes a safetensors file of any tensors, for tests of its readers.
//
//   SafetensorsWriter writer(path, {{"wte.weight", DType::bf16, {256, 384}}, …});
//   writer.append(values, count);   // rounded to the dtype of their tensor; in as many calls as needed
//   writer.commit();
//
// write_tensors() does this in one call.
#pragma once

#include "models/weights/safetensors.hpp"
#include "runtime/base/dtype.hpp"

#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

class SafetensorsWriter {
 public:
  SafetensorsWriter(std::filesystem::path path, std::vector<models::TensorToStore> tensors)
      : path_(std::move(path)), content_(models::safetensors_header(tensors)) {
    for (const auto& tensor : tensors) dtypes_.insert(dtypes_.end(), tensor.elements(), tensor.dtype);
  }

  void append(const float* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      runtime::with_float_type(dtypes_.at(next_++), [&](auto zero) {
        const auto value = runtime::from_float<decltype(zero)>(values[i]);
        content_.append(reinterpret_cast<const char*>(&value), sizeof value);
      });
    }
  }

  void commit() const {
    if (next_ != dtypes_.size()) throw std::logic_error("values are missing in " + path_.string());
    std::ofstream(path_, std::ios::binary) << content_;
  }

 private:
  std::filesystem::path path_;
  std::string content_;
  std::vector<runtime::DType> dtypes_;  // dtype of each value
  std::size_t next_ = 0;
};

/// Returns the path.
inline std::filesystem::path write_tensors(const std::filesystem::path& path,
                                           const std::vector<models::TensorToStore>& tensors,
                                           const std::vector<float>& values) {
  SafetensorsWriter writer(path, tensors);
  writer.append(values.data(), values.size());
  writer.commit();
  return path;
}

/// Elements of all tensors.
inline std::size_t elements_of(const std::vector<models::TensorToStore>& tensors) {
  std::size_t elements = 0;
  for (const auto& tensor : tensors) elements += tensor.elements();
  return elements;
}

/// `count` values from `first` on: first, first + 1, …
inline std::vector<float> counted_values(std::size_t count, float first = 1) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

}  // namespace ranvier::tests

// Writes a safetensors file of any tensors, for tests of its readers.
//
//   SafetensorsWriter writer(path, {{"wte.weight", DType::bf16, {256, 384}}, …});
//   writer.append(values, count);   // rounded to the dtype of their tensor; in as many calls as needed
//   writer.commit();
#pragma once

#include "models/weights/safetensors.hpp"
#include "runtime/base/dtype.hpp"

#include <filesystem>
#include <fstream>
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

}  // namespace ranvier::tests

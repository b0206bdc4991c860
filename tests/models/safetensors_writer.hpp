// Writes a safetensors file of any tensors, for tests of its readers.
#pragma once

#include "models/weights/safetensors.hpp"
#include "runtime/base/dtype.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace ranvier::tests {

/// A file with any header, and bytes that count up.
inline std::string safetensors_file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += header;
  for (std::size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<char>(i));
  return file;
}

/// `values` of all tensors in order, rounded to the dtype of their tensor. Returns the path.
inline std::filesystem::path write_tensors(const std::filesystem::path& path,
                                           const std::vector<models::TensorToStore>& tensors,
                                           const std::vector<float>& values) {
  std::string content = models::safetensors_header(tensors);
  std::size_t next = 0;
  for (const auto& tensor : tensors)
    runtime::with_float_type(tensor.dtype, [&](auto zero) {
      for (std::size_t i = 0; i < tensor.elements(); ++i) {
        const auto value = runtime::from_float<decltype(zero)>(values.at(next++));
        content.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
    });
  if (next != values.size()) throw std::logic_error("too many values for " + path.string());
  std::ofstream(path, std::ios::binary) << content;
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

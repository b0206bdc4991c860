// Writing a safetensors file: all shapes first, then the values in pieces of any size, in order or each where it
// belongs, so that whoever writes never holds the whole model. The file appears under its name only when it is
// complete (see AtomicFile). One thread at a time.
//
//   SafetensorsWriter writer(path, {{"wte.weight", DType::f32, {256, 384}}, …});
//   writer.append(values, count);   // as often as it takes
//   writer.commit();
#pragma once

#include "runtime/atomic_file.hpp"
#include "runtime/dtype.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

struct TensorToStore {
  std::string name;
  runtime::DType dtype = runtime::DType::f32;  ///< f32, bf16 or f16
  std::vector<std::size_t> shape;
};

class SafetensorsWriter {
 public:
  /// Throws ErrorCode::io if the file cannot be made.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorToStore> tensors,
                    runtime::AtomicFile::Retry retry = nullptr);

  /// The next `count` values, rounded to the dtype of their tensor. Throws ErrorCode::io if the file cannot
  /// grow, ErrorCode::internal for more values than the tensors have.
  void append(const float* values, std::size_t count);

  /// Elements [begin, begin + count) of a tensor, in any order, each once. Throws likewise; a path that is a pipe
  /// takes them only in the order of the file.
  void put(std::string_view tensor, std::size_t begin, const float* values, std::size_t count);

  /// Makes the file durable and gives it its name. Throws ErrorCode::internal if values are missing,
  /// ErrorCode::io if the system refuses.
  void commit();

 private:
  struct Place {
    std::size_t offset = 0;   // in the file
    std::size_t missing = 0;  // elements
  };

  void put(std::size_t tensor, std::size_t begin, const float* values, std::size_t count);
  void skip_full_tensors();

  runtime::AtomicFile file_;
  std::vector<TensorToStore> tensors_;
  std::vector<Place> places_;  // by tensor
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::vector<std::byte> buffer_;
  std::size_t tensor_ = 0;   // that the next value to append belongs to
  std::size_t element_ = 0;  // of it
};

}  // namespace ranvier::models

#include "models/weights/safetensors_header.hpp"

#include "runtime/base/error.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <fmt/ranges.h>

#include <cstdint>

namespace ranvier::models {
namespace {

constexpr std::size_t header_alignment = 8;

const char* name_of(runtime::DType dtype) {
  switch (dtype) {
    case runtime::DType::f32:
      return "F32";
    case runtime::DType::bf16:
      return "BF16";
    case runtime::DType::f16:
      return "F16";
    default:
      fail(ErrorCode::internal, "unsupported dtype of weights: {}", to_string(dtype));
  }
}

}  // namespace

std::size_t TensorToStore::elements() const {
  std::size_t product = 1;
  for (const std::size_t size : shape) product *= size;
  return product;
}

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

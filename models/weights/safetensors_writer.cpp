#include "models/weights/safetensors_writer.hpp"

#include "runtime/error.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ranvier::models {
namespace {

constexpr std::size_t buffer_elements = std::size_t{1} << 18;
constexpr std::size_t header_alignment = 8;

std::size_t elements_of(const TensorToStore& tensor) {
  std::size_t product = 1;
  for (const auto size : tensor.shape) product *= size;
  return product;
}

const char* dtype_name(runtime::DType dtype) {
  switch (dtype) {
    case runtime::DType::f32:
      return "F32";
    case runtime::DType::bf16:
      return "BF16";
    case runtime::DType::f16:
      return "F16";
    default:
      fail(ErrorCode::internal, "weights are not stored as {}", to_string(dtype));
  }
}

std::string header_of(const std::vector<TensorToStore>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::size_t begin = 0;
  for (const auto& tensor : tensors) {
    const std::size_t end = begin + elements_of(tensor) * size_of(tensor.dtype);
    header += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          boost::json::serialize(boost::json::string(tensor.name)), dtype_name(tensor.dtype),
                          fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  header += '}';
  header.append((header_alignment - header.size() % header_alignment) % header_alignment, ' ');
  return header;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorToStore> tensors,
                                     runtime::AtomicFile::Retry retry)
    : file_(std::move(path), std::move(retry)),
      tensors_(std::move(tensors)),
      buffer_(buffer_elements * sizeof(float)) {
  const std::string header = header_of(tensors_);
  const std::uint64_t header_bytes = header.size();
  file_.append(&header_bytes, sizeof(header_bytes));
  file_.append(header.data(), header.size());
  std::size_t offset = sizeof(header_bytes) + header.size();
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    places_.push_back({offset, elements_of(tensors_[t])});
    offset += places_.back().missing * size_of(tensors_[t].dtype);
    by_name_.emplace(tensors_[t].name, t);
  }
}

void SafetensorsWriter::append(const float* values, std::size_t count) {
  while (count > 0) {
    skip_full_tensors();
    expect(tensor_ < tensors_.size(), "{}: {} values more than its tensors have", file_.path().string(), count);
    const std::size_t n = std::min(count, elements_of(tensors_[tensor_]) - element_);
    put(tensor_, element_, values, n);
    values += n;
    count -= n;
    element_ += n;
  }
}

void SafetensorsWriter::put(std::string_view tensor, std::size_t begin, const float* values, std::size_t count) {
  const auto known = by_name_.find(tensor);
  expect(known != by_name_.end(), "{}: no tensor '{}' was announced", file_.path().string(), tensor);
  put(known->second, begin, values, count);
}

void SafetensorsWriter::put(std::size_t tensor, std::size_t begin, const float* values, std::size_t count) {
  const TensorToStore& stored = tensors_[tensor];
  Place& place = places_[tensor];
  const std::size_t elements = elements_of(stored);
  expect(begin <= elements && count <= elements - begin && count <= place.missing,
         "{}: {} values from element {} on of tensor '{}' of {}, of which {} are missing", file_.path().string(),
         count, begin, stored.name, elements, place.missing);
  place.missing -= count;
  while (count > 0) {
    const std::size_t n = std::min(count, buffer_elements);
    runtime::with_float_type(stored.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (std::size_t i = 0; i < n; ++i) {
        const T value = runtime::from_float<T>(values[i]);
        std::memcpy(buffer_.data() + i * sizeof(T), &value, sizeof(T));
      }
    });
    file_.write_at(place.offset + begin * size_of(stored.dtype), buffer_.data(), n * size_of(stored.dtype));
    values += n;
    begin += n;
    count -= n;
  }
}

void SafetensorsWriter::commit() {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    if (places_[t].missing > 0)
      fail(ErrorCode::internal, "{}: {} of {} values of tensor '{}' are missing", file_.path().string(),
           places_[t].missing, elements_of(tensors_[t]), tensors_[t].name);
  }
  file_.commit();
}

void SafetensorsWriter::skip_full_tensors() {
  while (tensor_ < tensors_.size() && element_ == elements_of(tensors_[tensor_])) {
    ++tensor_;
    element_ = 0;
  }
}

}  // namespace ranvier::models

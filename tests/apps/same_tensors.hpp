// Compares two files of weights, or folders of them.
#pragma once

#include "models/weights/safetensors.hpp"
#include "tests/test.hpp"

namespace ranvier::tests {

/// Checks that they have the same tensors, in any order, whose values differ by less than `tolerance`; 0: not at all.
inline void check_same_tensors(const std::string& one, const std::string& other, float tolerance = 0) {
  const auto file_of = [](const std::string& path) {
    return std::filesystem::is_directory(path) ? models::find_weights(path, "--save") : std::filesystem::path(path);
  };
  const models::Safetensors a(file_of(one)), b(file_of(other));
  REQUIRE(a.tensors().size() == b.tensors().size());
  for (const auto& tensor : a.tensors()) {
    CAPTURE(tensor.name);
    const auto* const same = b.find(tensor.name);
    REQUIRE(same != nullptr);
    REQUIRE(same->shape == tensor.shape);
    std::vector<float> left(tensor.elements()), right(tensor.elements());
    a.read(tensor, 0, left.size(), left.data());
    b.read(*same, 0, right.size(), right.data());
    const bool same_values = std::equal(left.begin(), left.end(), right.begin(), [&](float x, float y) {
      return tolerance > 0 ? std::abs(x - y) < tolerance : x == y;
    });
    CHECK(same_values);
  }
}

}  // namespace ranvier::tests

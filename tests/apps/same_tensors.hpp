// Compares two files of weights, or folders of them.
#pragma once

#include "models/weights/safetensors.hpp"
#include "tests/test.hpp"

namespace ranvier::tests {

/// Checks that they have the same tensors, in any order.
inline void check_same_tensors(const std::string& one, const std::string& other) {
  const models::Safetensors a(models::find_weights(one, "--save")), b(models::find_weights(other, "--save"));
  REQUIRE(a.tensors().size() == b.tensors().size());
  for (const auto& tensor : a.tensors()) {
    CAPTURE(tensor.name);
    const auto* const same = b.find(tensor.name);
    REQUIRE(same != nullptr);
    REQUIRE(same->shape == tensor.shape);
    std::vector<float> left(tensor.elements()), right(tensor.elements());
    a.read(tensor, 0, left.size(), left.data());
    b.read(*same, 0, right.size(), right.data());
    CHECK((left == right));
  }
}

}  // namespace ranvier::tests

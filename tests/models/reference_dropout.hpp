// Dropout of one sample at one site, an element at a time, for references.
#pragma once

#include "models/ops/dropout.hpp"
#include "tests/models/reference_model.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ranvier::models {

class ReferenceDropout {
 public:
  ReferenceDropout(float rate, const ReferenceSamples& in, int sample, std::uint32_t site)
      : rule_(make_dropout(rate, in.key.seed, in.key.step, site, in.key.first_sample)),
        sample_(sample),
        drops_(rate != 0) {}

  /// The element's factor.
  [[nodiscard]] double kept(std::size_t element) const {
    if (!drops_) return 1;
    const float draw = runtime::uniform(dropout_bits(rule_, sample_, element / 4)[element % 4]);
    return draw >= rule_.rate ? 1 / (1 - static_cast<double>(rule_.rate)) : 0;
  }
  void drop(std::vector<double>& x) const {
    if (!drops_) return;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= kept(i);
  }

 private:
  Dropout rule_;
  int sample_;
  bool drops_;
};

}  // namespace ranvier::models

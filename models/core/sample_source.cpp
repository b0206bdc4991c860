#include "models/core/sample_source.hpp"

#include "runtime/base/error.hpp"

#include <cmath>

namespace ranvier::models {

std::int64_t SampleSource::losses(std::int64_t first, std::int64_t count) const {
  std::int64_t losses = 0;
  for (std::int64_t n = first; n < first + count; ++n) losses += losses_of(n);
  return losses;
}

void SampleSource::read_inputs(std::int64_t first, int count, std::byte* to) const {
  for (std::int64_t n = first; n < first + count; ++n, to += input_bytes()) read_input(n, to);
}

void SampleSource::read_targets(std::int64_t first, int count, std::byte* to) const {
  for (std::int64_t n = first; n < first + count; ++n, to += target_bytes()) read_target(n, to);
}

void SampleSource::read_starts(std::int64_t, std::int32_t*) const {
  expect(false, "the samples of this source have no documents");
}

void SampleSource::read_documents(std::int64_t first, int count, std::byte* to) const {
  const auto positions = static_cast<std::int32_t>(document_positions());
  auto* starts = reinterpret_cast<std::int32_t*>(to);
  const std::ptrdiff_t all = static_cast<std::ptrdiff_t>(count) * positions;
  for (std::int64_t n = first; n < first + count; ++n, starts += positions) {
    read_starts(n, starts);
    std::int32_t end = positions;
    for (std::int32_t t = positions; t-- > 0;) {
      starts[all + t] = t - starts[t];
      starts[2 * all + t] = end;
      if (starts[t] == t) end = t;
    }
  }
}

std::int64_t validation_samples(double fraction, std::int64_t samples, const std::string& path, const char* what) {
  const auto count = static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(samples)));
  if (fraction > 0 && (count < 1 || count == samples))
    fail(ErrorCode::data,
         "{}: `validation_split` {} of {} {} leaves {} for training and {} for validation; change the split or "
         "use more data",
         path, fraction, samples, what, samples - count, count);
  return count;
}

}  // namespace ranvier::models

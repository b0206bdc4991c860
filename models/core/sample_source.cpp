#include "models/core/sample_source.hpp"

#include "runtime/base/error.hpp"

#include <cmath>

namespace ranvier::models {

std::int64_t SampleSource::losses(std::int64_t, std::int64_t count) const { return count * losses_per_sample(); }

void SampleSource::read_document_starts(std::int64_t, int, std::int32_t*) const {
  expect(false, "the samples of this source have no documents");
}

void SampleSource::read_documents(std::int64_t first, int count, std::byte* to) const {
  const auto positions = static_cast<std::int32_t>(document_positions());
  auto* const starts = reinterpret_cast<std::int32_t*>(to);
  auto* place = starts + static_cast<std::ptrdiff_t>(count) * positions;
  read_document_starts(first, count, starts);
  const std::int32_t* start = starts;
  for (int s = 0; s < count; ++s)
    for (std::int32_t t = 0; t < positions; ++t) *place++ = t - *start++;
  std::int32_t* const ends = place;
  for (int s = 0; s < count; ++s) {
    const auto sample = static_cast<std::ptrdiff_t>(s) * positions;
    std::int32_t end = positions;
    for (std::int32_t t = positions; t-- > 0;) {
      ends[sample + t] = end;
      if (starts[sample + t] == t) end = t;
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

// Where a model's samples come from: inputs for its first layer, targets for its last, by sample number.
// Every rank opens its own; the first and the last stage of a row each read what they need.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// How much memory a sample takes.
struct SampleBytes {
  std::size_t input = 0;
  std::size_t target = 0;
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// Sample numbers at and above this one wrap.
  [[nodiscard]] virtual std::int64_t samples() const = 0;

  [[nodiscard]] virtual std::size_t input_bytes() const = 0;   ///< of one sample
  [[nodiscard]] virtual std::size_t target_bytes() const = 0;  ///< of one sample
  [[nodiscard]] SampleBytes sample_bytes() const { return {input_bytes(), target_bytes()}; }

  /// Elements of a sample that have a loss: the loss is a mean over those of the global batch.
  [[nodiscard]] virtual std::int64_t losses_per_sample() const = 0;

  /// Write `count` samples from number `first` on, one after another. Any thread, several at a time.
  virtual void read_inputs(std::int64_t first, int count, std::byte* to) const = 0;
  virtual void read_targets(std::int64_t first, int count, std::byte* to) const = 0;

  /// Says that these samples will be read soon, so that the system may fetch meanwhile what they lie in.
  virtual void will_read([[maybe_unused]] std::int64_t first, [[maybe_unused]] int count) const {}
};

}  // namespace ranvier::models

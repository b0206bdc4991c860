// Where a model's samples come from: inputs for its first layer, targets for its last, by sample number.
// Every rank opens its own; the first and the last stage of a row each read what they need, and every stage the
// documents of samples that have such.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// How much memory a sample takes.
struct SampleBytes {
  std::size_t input = 0;
  std::size_t target = 0;
  std::size_t documents = 0;  ///< 0: the positions of a sample all belong together
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// Sample numbers at and above this one wrap.
  [[nodiscard]] virtual std::int64_t samples() const = 0;

  [[nodiscard]] virtual std::size_t input_bytes() const = 0;   ///< of one sample
  [[nodiscard]] virtual std::size_t target_bytes() const = 0;  ///< of one sample
  [[nodiscard]] SampleBytes sample_bytes() const {
    return {input_bytes(), target_bytes(), document_arrays * document_positions() * sizeof(std::int32_t)};
  }

  /// Elements of a sample that may have a loss.
  [[nodiscard]] virtual std::int64_t losses_per_sample() const = 0;
  /// Elements of `count` samples from number `first` on that have one: the loss is a mean over those of the global
  /// batch. Every rank asks for all of a batch, so nothing is read for it.
  [[nodiscard]] virtual std::int64_t losses(std::int64_t first, std::int64_t count) const;

  /// Write `count` samples from number `first` on, one after another. Any thread, several at a time.
  virtual void read_inputs(std::int64_t first, int count, std::byte* to) const = 0;
  virtual void read_targets(std::int64_t first, int count, std::byte* to) const = 0;

  /// Positions of a sample (T) whose documents do not see each other; 0: positions all belong together.
  [[nodiscard]] virtual std::size_t document_positions() const { return 0; }
  /// Writes of each position of these samples the first one of its document within the sample: int32 [count, T].
  virtual void read_document_starts(std::int64_t first, int count, std::int32_t* to) const;
  /// Writes those, behind them each position's place in its document, and then where the document ends, one behind its
  /// last position: int32 [3, count, T].
  void read_documents(std::int64_t first, int count, std::byte* to) const;
  static constexpr std::size_t document_arrays = 3;

  /// Positions at the end of sample n that hold nothing. Nothing is read for it.
  [[nodiscard]] virtual std::int64_t padding([[maybe_unused]] std::int64_t n) const { return 0; }

  /// Says that these samples will be read soon, so that the system may fetch meanwhile what they lie in.
  virtual void will_read([[maybe_unused]] std::int64_t first, [[maybe_unused]] int count) const {}
};

/// What losses are multiplied by for a mean over so many; where there are none, nothing is to be multiplied.
[[nodiscard]] inline double mean_factor(std::int64_t losses) {
  return losses > 0 ? 1.0 / static_cast<double>(losses) : 0.0;
}

}  // namespace ranvier::models

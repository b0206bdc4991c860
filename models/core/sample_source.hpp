// Source of a model's samples by number: inputs for the first layer, targets for the last. Every rank opens it. The
// first and last stage of a row read their parts; every stage reads the documents of samples, if there are any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ranvier::models {

/// Memory per sample.
struct SampleBytes {
  std::size_t input = 0;
  std::size_t target = 0;
  std::size_t documents = 0;  ///< 0: all positions of a sample belong together
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// Sample numbers at and above this one wrap.
  [[nodiscard]] virtual std::int64_t samples() const = 0;

  [[nodiscard]] virtual std::size_t input_bytes() const = 0;   ///< per sample
  [[nodiscard]] virtual std::size_t target_bytes() const = 0;  ///< per sample
  [[nodiscard]] SampleBytes sample_bytes() const {
    return {input_bytes(), target_bytes(), document_arrays * document_positions() * sizeof(std::int32_t)};
  }

  /// Elements of a sample that may have a loss.
  [[nodiscard]] virtual std::int64_t losses_per_sample() const = 0;
  /// Elements with a loss in sample n. The loss is the mean over such elements in the global batch. Must not read the
  /// sample: every rank calls it for complete batches.
  [[nodiscard]] virtual std::int64_t losses_of([[maybe_unused]] std::int64_t n) const {
    return losses_per_sample();
  }
  /// Sum of losses_of() over `count` samples starting at `first`.
  [[nodiscard]] std::int64_t losses(std::int64_t first, std::int64_t count) const;

  /// Write sample n. Any thread, several at a time.
  virtual void read_input(std::int64_t n, std::byte* to) const = 0;
  virtual void read_target(std::int64_t n, std::byte* to) const = 0;
  /// Write `count` samples starting at number `first`, in order.
  void read_inputs(std::int64_t first, int count, std::byte* to) const;
  void read_targets(std::int64_t first, int count, std::byte* to) const;

  /// Positions of a sample (T) with separate documents; 0: all positions belong together.
  [[nodiscard]] virtual std::size_t document_positions() const { return 0; }
  /// Writes for each position of sample n the first position of its document: int32 [T].
  virtual void read_starts(std::int64_t n, std::int32_t* to) const;
  /// Writes document starts, then each position within its document, then the end of the document (one after its last
  /// position): int32 [3, count, T].
  void read_documents(std::int64_t first, int count, std::byte* to) const;
  static constexpr std::size_t document_arrays = 3;

  /// Padding positions at the end of sample n. Does not read the sample.
  [[nodiscard]] virtual std::int64_t padding([[maybe_unused]] std::int64_t n) const { return 0; }

  /// Advises the system to prefetch sample n.
  virtual void prefetch([[maybe_unused]] std::int64_t n) const {}
};

/// Source whose samples are int32 [T] tokens, with a target for each.
class TokenSamples : public SampleSource {
 public:
  explicit TokenSamples(int positions) : positions_(positions) {}

  [[nodiscard]] int positions() const noexcept { return positions_; }  ///< T
  [[nodiscard]] std::size_t input_bytes() const override {
    return static_cast<std::size_t>(positions_) * sizeof(std::int32_t);
  }
  [[nodiscard]] std::size_t target_bytes() const override { return input_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return positions_; }

 protected:
  void set_positions(int positions) { positions_ = positions; }

 private:
  int positions_;
};

/// Number of samples for validation, the last ones. Throws ErrorCode::data if `fraction` is positive but leaves none
/// for training or validation. `what`: "images".
[[nodiscard]] std::int64_t validation_samples(double fraction, std::int64_t samples, const std::string& path,
                                              const char* what);

/// Factor for a mean over `losses` elements; no effect if there are none.
[[nodiscard]] inline double mean_factor(std::int64_t losses) {
  return losses > 0 ? 1.0 / static_cast<double>(losses) : 0.0;
}

}  // namespace ranvier::models

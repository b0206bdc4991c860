// Mixes samples of several sources by weight. A sample's source follows from its number, so it is the same on any
// grid. A round has 2^16 positions; source s gets q_s of them, its rounded fraction of the weights. Sample n is
// position p = n mod 2^16 of round r = n / 2^16. If p is the k-th position (from 0) of source s, it is that source's
// sample r·q_s + k. So each source keeps its own order and repeats no sample within one of its epochs.
//
// Shuffled: positions are drawn once by counter from the seed. In file order: a position goes to the source furthest
// behind its fraction (the first of equals). Any thread.
#pragma once

#include "models/core/sample_source.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

struct WeightedSource {
  std::unique_ptr<SampleSource> source;
  double weight = 1;  ///< positive, relative to the other weights
};

class MixedSource final : public SampleSource {
 public:
  /// Takes at least one source; all have samples of the same size. Throws ErrorCode::usage for a weight below one
  /// position.
  MixedSource(std::vector<WeightedSource> sources, std::optional<std::uint64_t> shuffle_seed);

  [[nodiscard]] std::int64_t samples() const override { return samples_; }  ///< total of all sources
  [[nodiscard]] std::size_t input_bytes() const override { return sources_.front().source->input_bytes(); }
  [[nodiscard]] std::size_t target_bytes() const override { return sources_.front().source->target_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override {
    return sources_.front().source->losses_per_sample();
  }
  [[nodiscard]] std::int64_t losses_of(std::int64_t n) const override { return ask(&SampleSource::losses_of, n); }
  [[nodiscard]] std::size_t document_positions() const override {
    return sources_.front().source->document_positions();
  }
  [[nodiscard]] std::int64_t padding(std::int64_t n) const override { return ask(&SampleSource::padding, n); }
  void read_input(std::int64_t n, std::byte* to) const override { ask(&SampleSource::read_input, n, to); }
  void read_target(std::int64_t n, std::byte* to) const override { ask(&SampleSource::read_target, n, to); }
  void read_starts(std::int64_t n, std::int32_t* to) const override { ask(&SampleSource::read_starts, n, to); }
  void prefetch(std::int64_t n) const override { ask(&SampleSource::prefetch, n); }

  struct Origin {
    std::size_t source = 0;
    std::int64_t sample = 0;
  };
  [[nodiscard]] Origin origin(std::int64_t n) const;

 private:
  /// Calls `what` of the source that has sample n, with the sample's number there.
  template <typename Result, typename... To>
  Result ask(Result (SampleSource::*what)(std::int64_t, To...) const, std::int64_t n, To... to) const {
    const Origin from = origin(n);
    return (*sources_[from.source].source.*what)(from.sample, to...);
  }

  struct Turn {
    std::uint32_t source = 0;
    std::int32_t before = 0;  // earlier positions of that source
  };

  std::vector<WeightedSource> sources_;
  std::vector<std::int64_t> quotas_;  // positions of each source per round
  std::vector<Turn> places_;
  std::int64_t samples_ = 0;
};

struct WeightedPath {
  std::string path;
  double weight = 1;
};

/// Parses "a.bin:0.7,b.bin:0.3". If no part ends in a colon and a number, the text is a single path, commas included.
/// Throws ErrorCode::usage if only some parts have a weight, or a weight is out of range or not positive. Throws it,
/// too, if such a path does not exist but its first part does.
[[nodiscard]] std::vector<WeightedPath> parse_weighted_paths(const std::string& text);

}  // namespace ranvier::models

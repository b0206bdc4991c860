// Samples of several sources by weight. Which source a sample comes from follows from its number alone, so that it
// is the same on any grid: samples come in rounds of 2^16, in each of which source s has q_s places, its share of the
// weights rounded to whole places. Sample n is in round r = n / 2^16 at place p = n mod 2^16; if p is the k-th place
// (from 0) of source s, sample n is that source's sample r·q_s + k. So every source gives its samples in its own
// order, none twice before all others of its epoch.
//
// Shuffled, places are drawn once by counter from the seed. In file order a place goes to the source that is furthest
// behind its share of the places so far, the first of those that are equally far. Any thread.
#pragma once

#include "models/sample_source.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

struct WeightedSource {
  std::unique_ptr<SampleSource> source;
  double weight = 1;  ///< above 0, relative to the others'
};

class MixedSource final : public SampleSource {
 public:
  /// Of at least one source, all with samples of the same size. Throws ErrorCode::usage for a weight too small for a
  /// single place.
  MixedSource(std::vector<WeightedSource> sources, std::optional<std::uint64_t> shuffle_seed);

  [[nodiscard]] std::int64_t samples() const override { return samples_; }  ///< of all sources together
  [[nodiscard]] std::size_t input_bytes() const override { return sources_.front().source->input_bytes(); }
  [[nodiscard]] std::size_t target_bytes() const override { return sources_.front().source->target_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override {
    return sources_.front().source->losses_per_sample();
  }
  [[nodiscard]] std::int64_t losses(std::int64_t first, std::int64_t count) const override;
  [[nodiscard]] std::size_t document_positions() const override {
    return sources_.front().source->document_positions();
  }

  [[nodiscard]] std::int64_t padding(std::int64_t n) const override {
    const Origin from = origin(n);
    return sources_[from.source].source->padding(from.sample);
  }

  void read_inputs(std::int64_t first, int count, std::byte* to) const override;
  void read_targets(std::int64_t first, int count, std::byte* to) const override;
  void read_document_starts(std::int64_t first, int count, std::int32_t* to) const override;
  void will_read(std::int64_t first, int count) const override;

  struct Origin {
    std::size_t source = 0;
    std::int64_t sample = 0;
  };
  [[nodiscard]] Origin origin(std::int64_t n) const;

 private:
  struct Turn {
    std::uint32_t source = 0;
    std::int32_t before = 0;  // places of that source before it
  };

  std::vector<WeightedSource> sources_;
  std::vector<std::int64_t> quotas_;  // places of a source in a round
  std::vector<Turn> places_;
  std::int64_t samples_ = 0;
};

struct WeightedPath {
  std::string path;
  double weight = 1;
};

/// "a.bin:0.7,b.bin:0.3". Text of which no part ends in a colon and a number is one path, commas included. Throws
/// ErrorCode::usage if only some parts have a weight, one is out of range or not above 0, or such a path is of no
/// file while its first part is.
[[nodiscard]] std::vector<WeightedPath> parse_weighted_paths(const std::string& text);

}  // namespace ranvier::models

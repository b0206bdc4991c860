// Samples for masked language modelling (Devlin et al. 2018, §3.1). Some tokens of another source are chosen; their
// originals are the targets, no_target elsewhere.
//
// Exactly max(1, round(probability · T)) of the T tokens without padding are chosen; special tokens only if the
// others are too few. 80 % of them become the mask token, 10 % a random token, 10 % stay. Choice and change are drawn
// by counter from seed, sample number and position: identical on any grid, different in each epoch.
#pragma once

#include "models/core/sample_source.hpp"
#include "models/ops/cross_entropy.hpp"
#include "runtime/base/philox.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace ranvier::models {

struct MaskingOptions {
  double probability = 0.15;
  std::int32_t mask_token = 0;
  std::int32_t tokens = 1;                   ///< upper bound of random tokens
  std::vector<std::int32_t> special_tokens;  ///< tokens that are not chosen if possible
  std::uint64_t seed = 0;
  bool validation = false;  ///< separate random draws for validation
};

/// Number of chosen tokens per `tokens`.
[[nodiscard]] std::int64_t tokens_to_find(double probability, std::int64_t tokens);

class MaskedSource final : public TokenSamples {
 public:
  /// `all` has int32 [T] tokens as inputs, not all of them padding.
  MaskedSource(std::unique_ptr<SampleSource> all, MaskingOptions options);

  [[nodiscard]] std::int64_t samples() const override { return all_->samples(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return chosen_; }
  [[nodiscard]] std::int64_t losses_of(std::int64_t n) const override {
    return tokens_to_find(options_.probability, filled(n));
  }
  [[nodiscard]] std::size_t document_positions() const override { return all_->document_positions(); }
  [[nodiscard]] std::int64_t padding(std::int64_t n) const override { return all_->padding(n); }
  void read_input(std::int64_t n, std::byte* to) const override;
  void read_target(std::int64_t n, std::byte* to) const override;
  void read_starts(std::int64_t n, std::int32_t* to) const override { all_->read_starts(n, to); }
  void prefetch(std::int64_t n) const override { all_->prefetch(n); }

 private:
  /// Candidate position, in the order of choice.
  struct Draw {
    bool special = false;
    std::uint64_t place = 0;
    std::uint32_t position = 0;
    std::uint32_t change = 0, token = 0;  ///< random bits: the kind of change, and the random token
    friend auto operator<=>(const Draw&, const Draw&) = default;
  };
  /// Tokens of sample n that are not padding.
  [[nodiscard]] std::int64_t filled(std::int64_t n) const { return positions() - all_->padding(n); }
  /// Chosen positions of sample n with these tokens.
  [[nodiscard]] std::vector<Draw> choose(std::int64_t n, const std::int32_t* tokens) const;

  std::unique_ptr<SampleSource> all_;
  MaskingOptions options_;
  runtime::PhiloxKey key_;
  std::int64_t chosen_;  ///< chosen tokens of a sample without padding
};

}  // namespace ranvier::models

// Samples for masked language modelling (Devlin et al. 2018, §3.1): the inputs of another source of tokens, of which
// some are chosen, and as targets the tokens that those were; no_target elsewhere.
//
// Of the T tokens of a sample, without padding, exactly max(1, round(probability · T)) are chosen, special tokens only
// where the others are too few. Of those that are, 80 % become the mask token, 10 % any token, and 10 % stay. Choice
// and change are drawn by counter from seed, sample number and position: the same on any grid, others in each epoch.
#pragma once

#include "models/ops/cross_entropy.hpp"
#include "models/sample_source.hpp"
#include "runtime/philox.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace ranvier::models {

struct MaskingOptions {
  double probability = 0.15;
  std::int32_t mask_token = 0;
  std::int32_t tokens = 1;                   ///< those below this one may come in place of a token
  std::vector<std::int32_t> special_tokens;  ///< that are not to be found
  std::uint64_t seed = 0;
  bool validation = false;  ///< draws of its own
};

/// How many of so many tokens are chosen.
[[nodiscard]] std::int64_t tokens_to_find(double probability, std::int64_t tokens);

class MaskedSource final : public SampleSource {
 public:
  /// Of a source whose inputs are tokens, int32 [T], not all of them padding.
  MaskedSource(std::unique_ptr<SampleSource> all, MaskingOptions options);

  [[nodiscard]] std::int64_t samples() const override { return all_->samples(); }
  [[nodiscard]] std::size_t input_bytes() const override { return all_->input_bytes(); }
  [[nodiscard]] std::size_t target_bytes() const override { return all_->input_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return chosen_; }
  [[nodiscard]] std::int64_t losses(std::int64_t first, std::int64_t count) const override;
  [[nodiscard]] std::size_t document_positions() const override { return all_->document_positions(); }
  [[nodiscard]] std::int64_t padding(std::int64_t n) const override { return all_->padding(n); }
  void read_inputs(std::int64_t first, int count, std::byte* to) const override;
  void read_targets(std::int64_t first, int count, std::byte* to) const override;
  void read_document_starts(std::int64_t first, int count, std::int32_t* to) const override {
    all_->read_document_starts(first, count, to);
  }
  void will_read(std::int64_t first, int count) const override { all_->will_read(first, count); }

 private:
  /// A position that may be chosen; those that come first are.
  struct Draw {
    bool special = false;
    std::uint64_t place = 0;
    std::uint32_t position = 0;
    std::uint32_t change = 0, token = 0;  ///< random bits: what becomes of it, and the token instead
    friend auto operator<=>(const Draw&, const Draw&) = default;
  };
  /// Tokens of sample n that are no padding.
  [[nodiscard]] std::int64_t tokens(std::int64_t n) const { return length_ - all_->padding(n); }
  /// Calls f(tokens of the sample, its chosen positions).
  template <typename F>
  void for_each_sample(std::int64_t first, int count, std::byte* to, F&& f) const;

  std::unique_ptr<SampleSource> all_;
  MaskingOptions options_;
  runtime::PhiloxKey key_;
  std::int64_t length_, chosen_;  ///< of a sample without padding
};

}  // namespace ranvier::models

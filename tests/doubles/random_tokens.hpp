// Random tokens as samples, for jobs that read no files.
#pragma once

#include "models/core/sample_source.hpp"
#include "models/ops/cross_entropy.hpp"
#include "runtime/base/philox.hpp"

#include <array>
#include <cstdint>
#include <cstring>

namespace ranvier::tests {

/// Tokens drawn by counter: sample n is the same on every rank. With documents, about a third of the tokens start one.
class RandomTokens final : public models::TokenSamples {
 public:
  RandomTokens(int length, int vocabulary, std::int64_t samples = 1 << 20, bool documents = false)
      : TokenSamples(length), vocabulary_(vocabulary), samples_(samples), documents_(documents) {}

  std::int64_t samples() const override { return samples_; }
  std::int64_t losses_of(std::int64_t n) const override {
    std::int64_t losses = 0;
    for (int t = 1; t <= positions(); ++t) losses += begins(n, t) ? 0 : 1;
    return losses;
  }
  std::size_t document_positions() const override { return documents_ ? static_cast<std::size_t>(positions()) : 0; }
  void read_starts(std::int64_t n, std::int32_t* to) const override {
    for (int t = 0, start = 0; t < positions(); ++t) *to++ = start = t > 0 && begins(n, t) ? t : start;
  }
  void read_input(std::int64_t n, std::byte* to) const override { read(n, 0, to); }
  void read_target(std::int64_t n, std::byte* to) const override { read(n, 1, to); }

 private:
  void read(std::int64_t n, int shift, std::byte* to) const {
    for (int t = shift; t < positions() + shift; ++t, to += sizeof(std::int32_t)) {
      const bool has_loss = shift == 0 || !begins(n, t);
      const auto token = has_loss
                             ? static_cast<std::int32_t>(drawn(n, t)[0] % static_cast<std::uint32_t>(vocabulary_))
                             : models::no_target;
      std::memcpy(to, &token, sizeof token);
    }
  }
  [[nodiscard]] std::array<std::uint32_t, 4> drawn(std::int64_t sample, int position) const {
    return runtime::philox(
        {7, 7}, {static_cast<std::uint32_t>(sample % samples_), static_cast<std::uint32_t>(position), 0, 0});
  }
  /// Whether a token after a sample's first one starts a document.
  [[nodiscard]] bool begins(std::int64_t sample, int position) const {
    return documents_ && drawn(sample, position)[1] % 3 == 0;
  }

  int vocabulary_;
  std::int64_t samples_;
  bool documents_;
};

}  // namespace ranvier::tests

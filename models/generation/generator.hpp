// Generates text: reads a prompt, then samples tokens one by one and reads each. The same weights, prompt and options
// give the same tokens for any number of threads. If the context is full, the decoder empties its cache and reads the
// last half of the context again, so the text may exceed the context. One thread at a time.
#pragma once

#include "models/generation/decoder.hpp"
#include "models/generation/sampler.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::models {

class Generator {
 public:
  /// Reads the prompt (at least one token). If it is longer than the context, only its last tokens are read. The
  /// decoder must outlive the generator and have no other user. Throws like Decoder::read().
  Generator(Decoder& decoder, const SamplingOptions& options, std::span<const std::int32_t> prompt);

  /// Samples the next token.
  std::int32_t next();

  /// Number of times the context was full.
  [[nodiscard]] int slides() const noexcept { return slides_; }

 private:
  Decoder& decoder_;
  SamplingOptions options_;
  std::vector<std::int32_t> read_;     // tokens in the decoder's cache
  std::vector<std::int32_t> pending_;  // tokens of the prompt, or sampled, not read yet
  std::span<const float> logits_;
  std::uint64_t drawn_ = 0;
  int slides_ = 0;
};

}  // namespace ranvier::models

// A text that grows token by token: reads a prompt, draws tokens, and reads what it drew. The same weights, prompt
// and options give the same tokens on any number of threads.
//
// Positions end with the context. When it is full, the decoder forgets, reads the last half of it again as its
// beginning, and goes on from there: the text never ends, but its beginning is forgotten.
//
// One thread at a time.
#pragma once

#include "models/generation/decoder.hpp"
#include "models/generation/sampler.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::models {

class Generator {
 public:
  /// The decoder outlives the generator and is used by nobody else meanwhile. Reads the prompt, of at least one
  /// token; of one longer than the context only its last tokens, as many as the context has. Throws what
  /// Decoder::read() throws.
  Generator(Decoder& decoder, const SamplingOptions& options, std::span<const std::int32_t> prompt);

  /// Draws the next token.
  std::int32_t next();

  /// How often the context was full.
  [[nodiscard]] int slides() const noexcept { return slides_; }

 private:
  Decoder& decoder_;
  SamplingOptions options_;
  std::vector<std::int32_t> read_;     // since the decoder forgot
  std::vector<std::int32_t> pending_;  // drawn or given, not read yet
  std::span<const float> logits_;
  std::uint64_t drawn_ = 0;
  int slides_ = 0;
};

}  // namespace ranvier::models

// Reads samples of token files as a training run does.
#pragma once

#include "models/text/text_source.hpp"
#include "tests/fuzz/input.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::fuzz {

inline void read_samples(const models::TextDataOptions& options) {
  const models::TextData data = models::open_text_data(options);
  std::vector<std::int32_t> tokens(3 * static_cast<std::size_t>(options.sequence_length));
  for (const auto* source : {data.training.get(), data.validation.get()}) {
    if (source == nullptr) continue;
    for (const std::int64_t first : {std::int64_t{0}, source->samples() - 1, std::int64_t{1} << 40}) {
      source->prefetch(first);
      source->read_inputs(first, 3, reinterpret_cast<std::byte*>(tokens.data()));
      source->read_targets(first, 3, reinterpret_cast<std::byte*>(tokens.data()));
      for (const std::int32_t token : tokens)
        require(token >= 0 && token < options.vocab_size, "a token is in the vocabulary");
    }
  }
}

}  // namespace ranvier::fuzz

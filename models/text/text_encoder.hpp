// Text to tokens on several threads. One thread at a time calls.
#pragma once

#include "models/text/tokenizer.hpp"
#include "runtime/compute_pool.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ranvier::models {

class TextEncoder {
 public:
  /// The tokenizer outlives the encoder; `threads` counts the caller's.
  TextEncoder(const Tokenizer& tokenizer, int threads, SpecialTokenPolicy specials);

  /// A document, or a part of one that was cut where Tokenizer::cuts() says.
  struct Passage {
    std::string_view text;
    bool begins = true;  ///< the document
  };

  /// Appends the tokens of a document, the same whatever the number of threads.
  void encode(std::string_view text, std::vector<std::int32_t>& to);
  /// Those of several passages at once; `ends`: the size of `to` after each.
  void encode(std::span<const Passage> passages, std::vector<std::int32_t>& to, std::vector<std::size_t>& ends);

 private:
  TextCuts cuts_;
  runtime::ComputePool pool_;
  std::vector<std::unique_ptr<DocumentEncoder>> encoders_;
  std::vector<std::vector<std::int32_t>> tokens_;  // of a piece each
};

}  // namespace ranvier::models

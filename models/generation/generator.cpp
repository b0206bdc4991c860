#include "models/generation/generator.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::models {

Generator::Generator(Decoder& decoder, const SamplingOptions& options, std::span<const std::int32_t> prompt)
    : decoder_(decoder), options_(options) {
  expect(!prompt.empty(), "a text needs a token to begin with");
  const std::size_t count = std::min(prompt.size(), static_cast<std::size_t>(decoder.context()));
  read_.assign(prompt.end() - static_cast<std::ptrdiff_t>(count), prompt.end());
  decoder_.forget();
  logits_ = decoder_.read(read_);
}

std::int32_t Generator::next() {
  if (!pending_.empty()) {
    if (decoder_.positions() == decoder_.context()) {
      const auto kept = static_cast<std::ptrdiff_t>((decoder_.context() - 1) / 2);
      pending_.insert(pending_.begin(), read_.end() - kept, read_.end());
      read_.clear();
      decoder_.forget();
      ++slides_;
    }
    logits_ = decoder_.read(pending_);
    read_.insert(read_.end(), pending_.begin(), pending_.end());
    pending_.clear();
  }
  const std::int32_t token = sample_token(logits_, options_, drawn_++);
  pending_.push_back(token);
  return token;
}

}  // namespace ranvier::models

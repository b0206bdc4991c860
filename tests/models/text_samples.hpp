// Text samples of a source, files of tokens, and the error of data that cannot be opened.
#pragma once

#include "models/ops/cross_entropy.hpp"
#include "models/text/text_source.hpp"
#include "tests/test.hpp"

namespace ranvier::tests {

using Tokens = std::vector<std::int32_t>;

/// Tokens of `count` samples.
inline Tokens inputs(const models::SampleSource& source, std::int64_t first, int count = 1) {
  Tokens out(static_cast<std::size_t>(count) * source.input_bytes() / sizeof(std::int32_t));
  source.read_inputs(first, count, reinterpret_cast<std::byte*>(out.data()));
  return out;
}
inline Tokens targets(const models::SampleSource& source, std::int64_t first, int count = 1) {
  Tokens out(static_cast<std::size_t>(count) * source.target_bytes() / sizeof(std::int32_t));
  source.read_targets(first, count, reinterpret_cast<std::byte*>(out.data()));
  return out;
}
inline Tokens starts(const models::SampleSource& source, std::int64_t first, int count = 1) {
  Tokens out(static_cast<std::size_t>(count) * source.document_positions());
  for (int i = 0; i < count; ++i)
    source.read_starts(first + i, out.data() + static_cast<std::size_t>(i) * source.document_positions());
  return out;
}
inline Tokens documents(const models::SampleSource& source, std::int64_t first, int count = 1) {
  Tokens out(static_cast<std::size_t>(count) * source.sample_bytes().documents / sizeof(std::int32_t));
  source.read_documents(first, count, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

/// Number of tokens with a loss.
inline std::ptrdiff_t with_loss(const Tokens& targets) {
  return std::ssize(targets) - std::count(targets.begin(), targets.end(), models::no_target);
}

inline std::string shorts(const std::vector<std::uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(std::uint16_t)};
}

/// JSON lines with these texts, spelled as in JSON.
inline std::string json_lines(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += "{\"text\": \"" + text + "\"}\n";
  return lines;
}

inline Error refusal_of(const models::TextDataOptions& options) {
  return error_of([&] { static_cast<void>(models::open_text_data(options)); });
}

}  // namespace ranvier::tests

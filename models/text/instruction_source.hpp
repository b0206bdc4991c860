// Samples for learning answers to prompts: documents of JSON lines with a prompt and an answer, which the model is to
// say after it. A document is its prompt, its answer and what ends it, the tokenizer's end of text or, of bytes, a new
// line; prompt and answer are encoded apart, as a model that is asked sees the prompt's tokens alone. The prompt begins
// with the tokens of the tokenizer's template. Answer and end have losses, the prompt none.
//
// Samples are packed of whole documents in the order of the files: as many of those that follow as there is room for in
// T positions, of which a document takes one less than it has tokens. Positions do not see other documents and count
// from zero in each; those behind the last are padding, which has no loss. A document longer than T + 1 tokens is cut
// there; one of which no answer is left is left out.
#pragma once

#include "models/sample_source.hpp"
#include "models/text/data_files.hpp"
#include "models/text/sample_order.hpp"
#include "models/text/token_sequence.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// The documents, in memory, and which of them are together a sample. Any thread.
class PackedInstructions {
 public:
  /// Of the files that data_files_at() finds, all JSON lines. Throws as that and DocumentReader do, and ErrorCode::data
  /// for other files, more than is kept in memory, a token outside the vocabulary, and where no answer is left.
  PackedInstructions(const std::filesystem::path& path, const TextReading& reading, const TextTokens& text,
                     int sequence_length, int vocab_size);

  struct Document {
    std::int64_t first = 0;   ///< token
    std::int32_t tokens = 0;  ///< one more than it has positions
    std::int32_t prompt = 0;  ///< of them
  };
  [[nodiscard]] std::int64_t samples() const noexcept { return std::ssize(losses_); }
  [[nodiscard]] std::int64_t losses(std::int64_t sample) const { return losses_[static_cast<std::size_t>(sample)]; }
  [[nodiscard]] std::span<const Document> documents_of(std::int64_t sample) const;
  [[nodiscard]] const std::int32_t* tokens_of(const Document& document) const {
    return tokens_.data() + document.first;
  }

  [[nodiscard]] int sequence_length() const noexcept { return length_; }
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const noexcept { return files_; }
  [[nodiscard]] const std::vector<SkippedFile>& left_out() const noexcept { return left_out_; }
  [[nodiscard]] const std::vector<std::string>& remarks() const noexcept { return remarks_; }
  [[nodiscard]] std::int64_t documents() const noexcept { return std::ssize(documents_); }
  [[nodiscard]] std::int64_t tokens() const noexcept { return std::ssize(tokens_); }

 private:
  void read(const DataFile& file, const TextReading& reading, const TextTokens& text);
  /// The last `tokens` tokens are a document, of which `prompt` are its prompt.
  void add(std::int64_t prompt, std::int64_t tokens);
  void pack();

  std::filesystem::path path_;
  int length_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::int32_t> tokens_;
  std::vector<Document> documents_;
  std::vector<std::int64_t> firsts_;  // of each sample, its first document, and the end of the last
  std::vector<std::int32_t> losses_;  // of each sample
  std::int64_t bytes_read_ = 0, cut_ = 0, lost_ = 0;
  std::vector<SkippedFile> left_out_;
  std::vector<std::string> remarks_;
};

class InstructionSource final : public SampleSource {
 public:
  /// Of samples [begin, end), without a seed in their order.
  InstructionSource(std::shared_ptr<const PackedInstructions> packed, std::int64_t begin, std::int64_t end,
                    std::optional<std::uint64_t> shuffle_seed);

  [[nodiscard]] std::int64_t samples() const override { return samples_; }
  [[nodiscard]] std::size_t input_bytes() const override { return document_positions() * sizeof(std::int32_t); }
  [[nodiscard]] std::size_t target_bytes() const override { return input_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return packed_->sequence_length(); }
  [[nodiscard]] std::int64_t losses(std::int64_t first, std::int64_t count) const override;
  [[nodiscard]] std::size_t document_positions() const override {
    return static_cast<std::size_t>(packed_->sequence_length());
  }
  [[nodiscard]] std::int64_t padding(std::int64_t n) const override;
  void read_inputs(std::int64_t first, int count, std::byte* to) const override;
  void read_targets(std::int64_t first, int count, std::byte* to) const override;
  void read_document_starts(std::int64_t first, int count, std::int32_t* to) const override;

 private:
  /// Which of the packed ones.
  [[nodiscard]] std::int64_t packed_sample(std::int64_t n) const {
    return begin_ + (order_ ? (*order_)(n) : n % samples_);
  }
  /// For each sample calls f(document, where its positions are in `to`, its first one) for its documents, then
  /// pad(where those behind them are, their end, the first one).
  template <typename F, typename Pad>
  void for_each_document(std::int64_t first, int count, std::int32_t* to, F&& f, Pad&& pad) const;

  std::shared_ptr<const PackedInstructions> packed_;
  std::int64_t begin_, samples_;
  std::optional<SampleOrder> order_;
};

}  // namespace ranvier::models

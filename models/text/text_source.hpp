// Samples for language models: T tokens as inputs, and the T tokens that follow each of them as targets, both
// int32. With Documents::mask positions of a sample belong to documents, and nothing is to be predicted across the end
// of one: the first token of the next has no loss (Megatron-LM's --eod-mask-loss, where documents end with a token).
//
// Window w of a range of L tokens covers tokens w·T … w·T+T of it, every index modulo L: a window that reaches
// over the end goes on at the start, and w may be any number. An epoch is the floor((L-1)/T) windows that do
// not reach over the end.
//
// In file order sample n is window n, on and on. Shuffled, sample n is the window that SampleOrder gives, so
// every epoch has each of its windows once.
#pragma once

#include "models/sample_source.hpp"
#include "models/text/mixed_source.hpp"
#include "models/text/sample_order.hpp"
#include "models/text/token_sequence.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Half-open.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// What documents of a sample are to each other.
enum class Documents {
  join,  ///< one text
  mask,  ///< positions do not see those of others, and count from zero in each
  pad,   ///< each has samples of its own (document_source.hpp)
};

struct TextSourceOptions {
  TokenRange range;
  int sequence_length = 1;  ///< T
  int vocab_size = 256;
  std::optional<std::uint64_t> shuffle_seed;  ///< none: file order
  Documents documents = Documents::join;      ///< join or mask; mask: after TokenSequence::find_documents()
};

class TextSource final : public SampleSource {
 public:
  /// Throws ErrorCode::data if the range is too short for one window.
  TextSource(std::shared_ptr<const TokenSequence> tokens, const TextSourceOptions& options);

  [[nodiscard]] std::int64_t samples() const override { return samples_; }  ///< of an epoch
  [[nodiscard]] std::size_t input_bytes() const override { return length_ * sizeof(std::int32_t); }
  [[nodiscard]] std::size_t target_bytes() const override { return input_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return options_.sequence_length; }
  [[nodiscard]] std::int64_t losses(std::int64_t first, std::int64_t count) const override;
  [[nodiscard]] std::size_t document_positions() const override { return masks() ? length_ : 0; }

  /// Throw ErrorCode::data if a token is outside the vocabulary.
  void read_inputs(std::int64_t first, int count, std::byte* to) const override { read(first, count, 0, to); }
  void read_targets(std::int64_t first, int count, std::byte* to) const override;
  void read_document_starts(std::int64_t first, int count, std::int32_t* to) const override;
  void will_read(std::int64_t first, int count) const override;

 private:
  [[nodiscard]] bool masks() const { return options_.documents == Documents::mask; }
  void read(std::int64_t first, int count, std::int64_t shift, std::byte* to) const;
  /// Calls f(first, count) for the parts of the data that hold `count` tokens of sample n from its token `from` on.
  template <typename F>
  void for_each_part(std::int64_t n, std::int64_t from, std::int64_t count, F&& f) const;
  /// Calls f(i) for those of `count` tokens of sample n from its token `from` on, the i-th of them, that begin a
  /// document, in order. What is before the range's first token is of another one.
  template <typename F>
  void for_each_begin(std::int64_t n, std::int64_t from, std::int64_t count, F&& f) const;

  std::shared_ptr<const TokenSequence> tokens_;
  TextSourceOptions options_;
  std::size_t length_;
  std::int64_t samples_;
  std::optional<SampleOrder> order_;
};

struct TextDataOptions {
  std::filesystem::path path;
  std::vector<WeightedPath> mixture;  ///< where there are several; `path` is not used then
  std::filesystem::path tokenizer;    ///< read_tokenizer()'s, for text; empty: bytes are tokens
  int threads = 1;                    ///< that encode text
  TokenFormat format = TokenFormat::automatic;
  std::string json_field = "text";  ///< of JSON lines
  std::string prompt_field;         ///< their fields for prompts (instruction_source.hpp), "a,b"; empty: none
  std::string label_field;          ///< likewise: they are texts of a class each (labelled_source.hpp); empty: not
  std::vector<std::string> labels;  ///< of the classes, by number
  SpecialTokenPolicy specials = SpecialTokenPolicy::tokenizer;  ///< in text
  bool text_allowed = true;                                     ///< false: the data have to be tokens already
  int sequence_length = 1;
  int vocab_size = 256;
  std::optional<std::uint64_t> shuffle_seed;  ///< of the training samples
  Documents documents = Documents::join;
  std::optional<std::int32_t> document_end;  ///< of token files that do not say; none: the tokenizer's end of text
  double validation_split = 0;               ///< share of the tokens, at the end, that is not trained on
  bool validates_all = false;                ///< all of the tokens, instead of a share
  std::function<void(const std::filesystem::path&)> reads = nullptr;  ///< as TextReading has it
};

/// One of the paths of the data, as people are told of it.
struct TextOrigin {
  std::string path;
  double share = 1;  ///< of the samples
  std::int64_t files = 0;
  std::int64_t documents = 0;  ///< 0: unknown
  std::int64_t tokens = 0;
  std::int64_t samples = 0;                ///< per training epoch
  std::vector<std::int32_t> first_sample;  ///< tokens of the first one in file order, and the last to be predicted
  std::vector<SkippedFile> left_out;
  std::vector<std::string> remarks;
};

struct TextData {
  std::unique_ptr<SampleSource> training;
  std::unique_ptr<SampleSource> validation;  ///< in file order; null without a split
  std::int64_t tokens = 0;
  std::vector<TextOrigin> origins;
  std::vector<std::filesystem::path> files;  ///< that were read
};

/// Opens and checks the data of a run. Throws ErrorCode::io or ::data.
[[nodiscard]] TextData open_text_data(const TextDataOptions& options);

}  // namespace ranvier::models

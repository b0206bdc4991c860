// Samples for language modelling: T input tokens, and the next tokens as targets, both int32. With Documents::mask,
// the first token of a document has no loss (Megatron-LM's `eod_mask_loss`, if documents end with a token).
//
// Window w of L tokens covers tokens w·T … w·T+T modulo L, for any w. An epoch has the floor((L-1)/T) windows
// that do not wrap. In file order sample n is window n. Shuffled, SampleOrder maps n to a window, so each epoch
// contains each of its windows once.
#pragma once

#include "models/core/sample_source.hpp"
#include "models/text/mixed_source.hpp"
#include "models/text/sample_order.hpp"
#include "models/text/token_sequence.hpp"

#include <cstdint>
#include <filesystem>
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

/// Relation of the documents of a sample.
enum class Documents {
  join,  ///< one text
  mask,  ///< positions attend only to their own document and count from zero in each
  pad,   ///< each document has separate samples (document_source.hpp)
};

struct TextSourceOptions {
  TokenRange range;
  int sequence_length = 1;  ///< T
  int vocab_size = 256;
  std::optional<std::uint64_t> shuffle_seed;  ///< none: file order
  Documents documents = Documents::join;      ///< join or mask; mask: after TokenSequence::find_documents()
};

class TextSource final : public TokenSamples {
 public:
  /// Throws ErrorCode::data if the range is too short for one window.
  TextSource(std::shared_ptr<const TokenSequence> tokens, const TextSourceOptions& options);

  [[nodiscard]] std::int64_t samples() const override { return samples_; }  ///< per epoch
  [[nodiscard]] std::int64_t losses_of(std::int64_t n) const override;
  [[nodiscard]] std::size_t document_positions() const override {
    return masks() ? static_cast<std::size_t>(positions()) : 0;
  }

  /// Throw ErrorCode::data if a token is outside the vocabulary.
  void read_input(std::int64_t n, std::byte* to) const override { read(n, 0, to); }
  void read_target(std::int64_t n, std::byte* to) const override;
  void read_starts(std::int64_t n, std::int32_t* to) const override;
  void prefetch(std::int64_t n) const override;

 private:
  [[nodiscard]] bool masks() const { return options_.documents == Documents::mask; }
  void read(std::int64_t n, std::int64_t shift, std::byte* to) const;
  /// Calls f(first, count) for the parts of the data that hold `count` tokens of sample n starting at token `from`.
  template <typename F>
  void for_each_part(std::int64_t n, std::int64_t from, std::int64_t count, F&& f) const;
  /// Calls f(i), in order, for the tokens that start a document among T tokens of sample n starting at `from`.
  /// Text before the range's first token belongs to another document.
  template <typename F>
  void for_each_begin(std::int64_t n, std::int64_t from, F&& f) const;

  std::shared_ptr<const TokenSequence> tokens_;
  TextSourceOptions options_;
  std::int64_t samples_;
  std::optional<SampleOrder> order_;
};

struct TextDataOptions {
  std::filesystem::path path;
  std::vector<WeightedPath> mixture;  ///< several files; `path` is unused then
  std::filesystem::path tokenizer;    ///< argument of read_tokenizer() for text; empty: bytes are tokens
  int threads = 1;                    ///< threads for encoding text
  TextReading reading;                ///< prompt fields: instruction_source.hpp; label field: labelled_source.hpp
  std::vector<std::string> labels;    ///< class names by number
  SpecialTokenPolicy specials = SpecialTokenPolicy::tokenizer;  ///< policy for text
  bool text_allowed = true;                                     ///< false: only token files are allowed
  int sequence_length = 1;
  int vocab_size = 256;
  std::optional<std::uint64_t> shuffle_seed;  ///< for training samples; none: file order
  Documents documents = Documents::join;
  std::optional<std::int32_t>
      document_end;  ///< end-of-document token for files without document bounds; none: the tokenizer's end of text
  double validation_split = 0;  ///< fraction of the tokens, at the end, for validation
  bool validates_all = false;   ///< validate on all tokens instead of a fraction
};

/// Description of one data path for the user.
struct TextOrigin {
  std::string path;
  double share = 1;  ///< fraction of the samples
  std::int64_t files = 0;
  std::int64_t documents = 0;  ///< 0: unknown
  std::int64_t tokens = 0;
  std::int64_t samples = 0;                ///< per training epoch
  std::vector<std::int32_t> first_sample;  ///< tokens of the first sample in file order, and its last target
  std::vector<SkippedFile> left_out;
  std::vector<std::string> remarks;
};

struct TextData {
  std::unique_ptr<SampleSource> training;
  std::unique_ptr<SampleSource> validation;  ///< in file order; null without a split
  std::int64_t tokens = 0;
  std::vector<TextOrigin> origins;
  std::vector<std::filesystem::path> files;  ///< files that were read
};

/// Opens and checks the data of a run. Throws ErrorCode::io or ::data.
[[nodiscard]] TextData open_text_data(const TextDataOptions& options);

}  // namespace ranvier::models

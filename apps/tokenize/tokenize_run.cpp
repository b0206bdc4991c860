#include "apps/tokenize/tokenize_run.hpp"

#include "models/text/data_files.hpp"
#include "models/text/document_reader.hpp"
#include "models/tokenizers/document_frame.hpp"
#include "models/tokenizers/text_encoder.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "runtime/files/atomic_file.hpp"

#include <fmt/ranges.h>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace ranvier::apps {

namespace {

/// Hash of everything that affects the tokens.
std::uint64_t job_of(const TokenizeOptions& options, const TokenizeInput& input, const models::Tokenizer& tokenizer,
                     std::int32_t end_of_text) {
  auto all = deciding_options(options);
  for (const TokenizeInput::File& one : input.files)
    all.push_back({"file", one.data.path.string(), fmt::format("{} {}", one.bytes, one.modified)});
  const models::TextTemplate& around = tokenizer.around();
  all.push_back(
      {"", "around", fmt::format("{} {}", fmt::join(around.beginning, ","), fmt::join(around.ending, ","))});
  all.push_back({"", "tokens", fmt::format("{:016x}", tokenizer.fingerprint())});
  all.push_back({"", "end of text", fmt::format("{}", end_of_text)});
  return hash_of(all);
}

/// Writes documents to the output. The end of a document is written when the next one begins, since an end-of-text
/// token may belong only between two documents.
class Documents {
 public:
  Documents(const TokenizeOptions& options, const models::Tokenizer& tokenizer, std::int32_t end_of_text,
            models::TokenOutput& output)
      : frame_(tokenizer, options.specials),
        between_(options.end_of_text != EndOfText::none && frame_.needs_between(end_of_text)),
        last_(options.end_of_text == EndOfText::after_each && !frame_.ends_with(end_of_text)),
        end_of_text_(end_of_text),
        output_(output),
        open_(output.document_tokens() > 0) {}

  /// Begins a document; `first`: its first tokens.
  void begin(std::span<const std::int32_t> first) {
    if (open_) end(between_ || (last_ && !frame_.begins_with(end_of_text_)));
    open_ = true;
    around_.clear();
    frame_.begin(first, around_);
    output_.append(around_);
  }
  void finish() {
    if (open_) end(last_);
  }

 private:
  void end(bool marked) {
    around_.clear();
    frame_.end(around_);
    if (marked) around_.push_back(end_of_text_);
    output_.append(around_);
    output_.end_document();
    open_ = false;
  }

  models::DocumentFrame frame_;
  bool between_, last_;  // end-of-text token between documents, and after the last one
  std::int32_t end_of_text_;
  models::TokenOutput& output_;
  bool open_;
  std::vector<std::int32_t> around_;
};

}  // namespace

TokenizeInput find_input(const TokenizeOptions& options) {
  TokenizeInput found;
  for (const std::string& input : options.inputs) {
    struct stat status{};
    if (::stat(input.c_str(), &status) != 0)
      fail(ErrorCode::io, "{}: cannot be read: {}; check the path", input, std::strerror(errno));
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) fail(ErrorCode::io, "{}: not a regular file", input);
    if (S_ISREG(status.st_mode) && status.st_size == 0) {
      found.remarks.push_back(fmt::format("left out: {} (empty)", input));
      continue;
    }
    models::DataFiles files = models::data_files_at(input, options.reading);
    if (std::string line = models::left_out_text(input, files.left_out); !line.empty())
      found.remarks.push_back(std::move(line));
    for (models::DataFile& file : files.files) {
      const std::string name = file.path.string();
      if (models::has_tokens(file.format))
        fail(ErrorCode::data, "input contains tokens, not text: {}; use text files", name);
      if (::stat(name.c_str(), &status) != 0)
        fail(ErrorCode::io, "{}: cannot be read: {}", name, std::strerror(errno));
      const auto bytes = static_cast<std::uint64_t>(status.st_size);
      found.bytes += bytes;
      found.files.push_back(
          {std::move(file), bytes, status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec});
    }
  }
  if (found.files.empty())
    fail(ErrorCode::data, "no text in input: {}; use files that are not empty", options.inputs.front());
  return found;
}

TokenizeResult tokenize(const TokenizeOptions& options, const TokenizeInput& input,
                        const std::function<void(std::uint64_t done, std::uint64_t all)>& progress) {
  const models::Tokenizer tokenizer = models::read_tokenizer(tokenizer_path(options.tokenizer));
  const models::TextCuts cuts = tokenizer.cuts(options.specials);
  const bool marked = options.end_of_text != EndOfText::none;
  const std::int32_t end_of_text = marked ? tokenizer.required_end_of_text() : 0;
  runtime::check_replaced(models::token_file_path(options.output), "--output", options.overwrite);
  models::TokenOutput output(
      {options.output, options.format, tokenizer.size(), job_of(options, input, tokenizer, end_of_text)});
  models::TextEncoder encoder(tokenizer, options.threads, options.specials);

  TokenizeResult result;
  const auto start = output.start();
  expect(start.file <= input.files.size(), "{}: tokens of {} files, but there are {}", options.output, start.file,
         input.files.size());
  std::uint64_t before = 0;  // bytes of earlier files
  for (std::size_t i = 0; i < start.file; ++i) before += input.files[i].bytes;
  result.skipped_bytes = before;

  std::uint64_t unsaved = 0;
  std::vector<models::TextEncoder::Passage> texts;
  Documents documents(options, tokenizer, end_of_text, output);
  for (std::size_t i = start.file; i < input.files.size(); ++i) {
    const auto& [file, bytes, modified] = input.files[i];
    const std::uint64_t offset = i == start.file ? start.offset : 0;
    models::DocumentReader reader(file, options.reading, offset, cuts);
    if (offset > 0) result.skipped_bytes += reader.file_position();
    const std::size_t wanted = std::min(models::DocumentReader::default_bytes, options.checkpoint_bytes);
    for (auto pieces = reader.next(wanted); !pieces.empty(); pieces = reader.next(wanted)) {
      texts.clear();
      for (const auto& piece : pieces) texts.push_back({piece.text, piece.begins});
      encoder.encode(texts);
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const auto of_piece = encoder.tokens(p);
        if (pieces[p].begins) documents.begin(of_piece);
        output.append(of_piece);
        unsaved += texts[p].text.size();
      }
      progress(before + reader.file_position(), input.bytes);
      if (unsaved < options.checkpoint_bytes) continue;
      output.checkpoint({i, reader.offset()});
      unsaved = 0;
    }
    for (std::string& remark : reader.remarks()) result.remarks.push_back(std::move(remark));
    before += bytes;
  }
  documents.finish();
  output.commit();
  result.documents = output.documents();
  result.tokens = output.tokens();
  return result;
}

}  // namespace ranvier::apps

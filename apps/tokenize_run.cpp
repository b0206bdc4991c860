#include "apps/tokenize_run.hpp"

#include "models/text/bpe_files.hpp"
#include "models/text/data_files.hpp"
#include "models/text/word_splitter.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ranvier::apps {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = std::size_t{4} << 20;
constexpr std::size_t longest_uncut = std::size_t{64} << 20;  // text without any blank is cut after so much

struct Document {
  fs::path path;
  std::uint64_t bytes = 0;
  std::int64_t modified = 0;
};

/// Those that are not empty: an empty file is no document.
std::vector<Document> documents_of(const std::vector<std::string>& inputs) {
  std::vector<Document> documents;
  for (const std::string& input : inputs) {
    std::error_code ignored;
    const bool folder = fs::is_directory(input, ignored);
    for (const fs::path& path : folder ? models::text_files_in(input) : std::vector<fs::path>{input}) {
      struct stat status {};
      if (::stat(path.c_str(), &status) != 0)
        fail(ErrorCode::io, "{}: cannot be read: {}; check the path", path.string(), std::strerror(errno));
      if (!S_ISREG(status.st_mode)) fail(ErrorCode::io, "{}: not a regular file", path.string());
      if (status.st_size == 0) continue;
      documents.push_back({path, static_cast<std::uint64_t>(status.st_size),
                           status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec});
    }
  }
  if (documents.empty())
    fail(ErrorCode::data, "{}: there is no text in it: give files that are not empty", inputs.front());
  return documents;
}

/// Of everything that decides which tokens come out.
std::uint64_t job_of(const TokenizeOptions& options, const std::vector<Document>& documents,
                     const models::BpeVocabulary& vocabulary) {
  auto all = deciding_options(options);
  for (const Document& one : documents)
    all.push_back({"document", one.path.string(), fmt::format("{} {}", one.bytes, one.modified)});
  std::string tokens;
  for (std::int32_t token = 0; token < vocabulary.size(); ++token) tokens += vocabulary.bytes_of(token);
  all.push_back({"", "tokens", std::move(tokens)});
  return runtime::hash_of(all);
}

/// A document from some offset on, piece by piece.
class DocumentReader {
 public:
  DocumentReader(const Document& document, std::uint64_t offset)
      : document_(document), offset_(offset), read_(offset) {
    file_ = ::open(document.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) refuse(std::strerror(errno));
    ::posix_fadvise(file_, static_cast<off_t>(offset), 0, POSIX_FADV_SEQUENTIAL);
  }
  ~DocumentReader() { ::close(file_); }
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;

  /// Where the next piece begins.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }

  /// About `bytes`, or more if there is no place to cut; empty at the end. Lasts until the next call.
  std::string_view next(std::size_t bytes) {
    text_.erase(0, taken_);
    std::size_t cut = 0;
    for (std::size_t wanted = bytes;; wanted *= 2) {
      fill(wanted);
      const bool whole = read_ == document_.bytes;
      cut = whole && text_.size() <= bytes ? text_.size() : models::last_cut(text_, wanted);
      if (cut == 0 && whole) cut = text_.size();
      if (cut > 0 || text_.empty()) break;
      if (wanted < longest_uncut) continue;
      for (cut = text_.size() - 4; cut < text_.size() && (text_[cut] & 0xc0) == 0x80;)
        ++cut;  // not inside a character
      break;
    }
    taken_ = cut;
    offset_ += cut;
    return std::string_view(text_).substr(0, cut);
  }

 private:
  void fill(std::size_t bytes) {
    const std::uint64_t left = document_.bytes - read_;
    std::size_t at = text_.size();
    if (at >= bytes) return;
    text_.resize(at + static_cast<std::size_t>(std::min<std::uint64_t>(left, bytes - at)));
    while (at < text_.size()) {
      const ssize_t count = ::pread(file_, text_.data() + at, text_.size() - at, static_cast<off_t>(read_));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) refuse(std::strerror(errno));
      if (count == 0) refuse("it was made shorter meanwhile");
      at += static_cast<std::size_t>(count);
      read_ += static_cast<std::uint64_t>(count);
    }
  }

  [[noreturn]] void refuse(const char* why) const {
    fail(ErrorCode::io, "{}: cannot be read at offset {}: {}", document_.path.string(), read_, why);
  }

  const Document& document_;
  std::uint64_t offset_, read_;
  int file_ = -1;
  std::string text_;
  std::size_t taken_ = 0;  // of text_, by the last call
};

}  // namespace

TokenizeResult tokenize(const TokenizeOptions& options,
                        const std::function<void(std::uint64_t done, std::uint64_t all)>& progress) {
  const std::vector<Document> documents = documents_of(options.inputs);
  const models::BpeVocabulary vocabulary = models::read_bpe_vocabulary(gpt2_path(options.tokenizer));
  models::TokenOutput output(
      {options.output, options.format, vocabulary.size(), job_of(options, documents, vocabulary)});
  models::TextEncoder encoder(vocabulary, options.threads, options.specials);

  TokenizeResult result{.documents = documents.size()};
  for (const Document& document : documents) result.text_bytes += document.bytes;
  const auto start = output.start();
  expect(start.file <= documents.size(), "{}: tokens of {} documents, and there are {}", options.output, start.file,
         documents.size());
  std::uint64_t done = start.offset;
  for (std::size_t i = 0; i < start.file; ++i) done += documents[i].bytes;
  result.skipped_bytes = done;

  std::uint64_t unsaved = 0;
  std::vector<std::int32_t> tokens;
  for (std::size_t i = start.file; i < documents.size(); ++i) {
    DocumentReader reader(documents[i], i == start.file ? start.offset : 0);
    while (true) {
      const std::string_view text = reader.next(std::min(piece_bytes, options.checkpoint_bytes));
      if (text.empty()) break;
      tokens.clear();
      encoder.encode(text, tokens);
      output.append(tokens);
      done += text.size();
      unsaved += text.size();
      progress(done, result.text_bytes);
      if (unsaved < options.checkpoint_bytes || reader.offset() == documents[i].bytes) continue;
      output.checkpoint({i, reader.offset()});
      unsaved = 0;
    }
    const bool ends = options.end_of_text == EndOfText::after_each ||
                      (options.end_of_text == EndOfText::between && i + 1 < documents.size());
    if (ends) output.append(std::vector{vocabulary.end_of_text()});
    output.end_document();
    if (unsaved < options.checkpoint_bytes) continue;
    output.checkpoint({i + 1, 0});
    unsaved = 0;
  }
  output.commit();
  result.tokens = output.tokens();
  return result;
}

}  // namespace ranvier::apps

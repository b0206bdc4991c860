#include "models/text/question_file.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <cstring>

namespace ranvier::models {
namespace {

constexpr std::size_t header_bytes = 256 * sizeof(std::int32_t);
constexpr std::int32_t magic = 20240522;
constexpr std::int32_t version = 1;
constexpr std::uint16_t example_mark = 65535;

/// Sequential reader of the file's 16-bit words. Reading past the end of an example throws ErrorCode::data with the
/// offset.
class Words {
 public:
  Words(const std::filesystem::path& path, std::span<const std::uint16_t> words, int vocab_size)
      : path_(path), words_(words), end_(words.size()), vocab_size_(vocab_size) {}

  [[nodiscard]] bool whole() const { return at_ == words_.size(); }
  [[nodiscard]] std::size_t position() const { return at_; }
  [[nodiscard]] std::size_t end() const { return end_; }

  /// Limits reading to an example of `words` words, counted from `begin`.
  void enter(std::size_t begin, std::size_t words, std::size_t example) {
    if (words < at_ - begin || words > words_.size() - begin)
      refuse(begin + 1, fmt::format("example {} has {} bytes, more than the rest of the file", example, 2 * words));
    end_ = begin + words;
  }
  void leave(std::size_t example) {
    if (at_ != end_) refuse(at_, fmt::format("example {} has words after its last completion", example));
    end_ = words_.size();
  }

  std::uint16_t next(const char* what) {
    if (at_ == end_) refuse(at_, fmt::format("{} is missing", what));
    return words_[at_++];
  }

  std::span<const std::uint16_t> tokens(const char* what) {
    const std::size_t count = next(what);
    if (count == 0) refuse(at_ - 1, fmt::format("{} has no token", what));
    if (count > end_ - at_)
      refuse(at_ - 1, fmt::format("{} has {} tokens, and {} follow", what, count, end_ - at_));
    const auto found = words_.subspan(at_, count);
    const auto bad =
        std::find_if(found.begin(), found.end(), [this](std::uint16_t token) { return token >= vocab_size_; });
    if (bad != found.end())
      refuse(at_ + static_cast<std::size_t>(bad - found.begin()),
             fmt::format("token {} is outside the model's vocabulary of {}; use a file of the model's tokenizer",
                         *bad, vocab_size_));
    at_ += count;
    return found;
  }

  [[noreturn]] void refuse(std::size_t word, const std::string& what) const {
    fail(ErrorCode::data, "{}: at offset {}: {}", path_.string(), header_bytes + word * sizeof(std::uint16_t),
         what);
  }

 private:
  const std::filesystem::path& path_;
  std::span<const std::uint16_t> words_;
  std::size_t at_ = 0, end_;
  int vocab_size_;
};

}  // namespace

QuestionFile::QuestionFile(std::filesystem::path path, int vocab_size) : path_(std::move(path)), file_(path_) {
  const auto bytes = file_.bytes();
  std::int32_t header[4] = {};
  if (bytes.size() < header_bytes || bytes.size() % sizeof(std::uint16_t) != 0)
    fail(ErrorCode::data, "{}: size {} is not a header of {} bytes and words of 2 bytes", path_.string(),
         bytes.size(), header_bytes);
  std::memcpy(header, bytes.data(), sizeof header);
  if (header[0] != magic)
    fail(ErrorCode::data, "{}: wrong magic number at offset 0: {}, llm.c's is {}", path_.string(), header[0],
         magic);
  if (header[1] != version)
    fail(ErrorCode::data, "{}: unsupported version at offset 4: {}; only {} is supported", path_.string(),
         header[1], version);

  const auto* const begin = reinterpret_cast<const std::uint16_t*>(bytes.data() + header_bytes);
  Words words(path_, {begin, (bytes.size() - header_bytes) / sizeof(std::uint16_t)}, vocab_size);
  while (!words.whole()) {
    const std::size_t number = examples_.size(), at = words.position();
    if (words.next("an example") != example_mark)
      words.refuse(at, fmt::format("example {} does not start with {}", number, example_mark));
    const std::size_t example_bytes = words.next("the size of an example");
    words.enter(at, example_bytes / sizeof(std::uint16_t), number);
    if (words.next("the number of an example") != static_cast<std::uint16_t>(number))
      words.refuse(at + 2, fmt::format("example {} has another number", number));
    Example example{.first = answers_.size(), .right = words.next("the right completion")};
    example.answers = words.next("the number of completions");
    if (example.right >= example.answers)
      words.refuse(at + 3, fmt::format("the index of the right completion is not below {}: {}", example.answers,
                                       example.right));
    const auto context = words.tokens("a context");
    for (std::size_t c = 0; c < example.answers; ++c)
      answers_.push_back({number, context, words.tokens("a completion")});
    words.leave(number);
    examples_.push_back(example);
  }
  if (header[2] < 1 || examples_.size() != static_cast<std::size_t>(header[2]))
    fail(ErrorCode::data, "{}: wrong number of examples at offset 8: {}, found {}", path_.string(), header[2],
         examples_.size());
}

}  // namespace ranvier::models

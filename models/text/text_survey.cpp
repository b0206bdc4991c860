#include "models/text/text_survey.hpp"

#include "models/tokenizers/unicode.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace ranvier::models {
namespace {

constexpr std::size_t block_bytes = 64;

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t' && c != '\n' && c != '\f' && c != '\r') || byte == 0x7f;
}

/// Printable ASCII and line breaks, as most blocks of most texts are; compilers make vector code of it.
bool is_plain(const char* block) {
  unsigned strange = 0;
  for (std::size_t i = 0; i < block_bytes; ++i) {
    const auto byte = static_cast<unsigned char>(block[i]);
    strange |= static_cast<unsigned>(byte >= 0x7f) |
               (static_cast<unsigned>(byte < 0x20) & static_cast<unsigned>(byte != '\t') &
                static_cast<unsigned>(byte != '\n') & static_cast<unsigned>(byte != '\r'));
  }
  return strange == 0;
}

}  // namespace

void TextSurvey::add_stray(std::uint64_t offset, std::uint64_t count, bool continues) {
  if (!first_) first_ = offset;
  if (!first_stray_) first_stray_ = offset;
  strange_ += count;
  if (!continues || offset != stray_end_) ++stray_;  // a character that is damaged counts once
  stray_end_ = offset + count;
}

void TextSurvey::add(std::string_view piece) {
  std::size_t at = 0;
  if (!unfinished_.empty()) {
    const std::string joined = unfinished_ + std::string(piece.substr(0, 3));
    const std::size_t bytes = character_bytes(joined, 0);
    if (bytes == 0 && unfinished_bytes(joined) == joined.size()) {
      bytes_ += piece.size();
      unfinished_ = joined;
      return;
    }
    if (bytes == 0) {
      add_stray(bytes_ - unfinished_.size(), unfinished_.size(), false);
    } else {
      ++wide_;
      at = bytes - unfinished_.size();
    }
  }
  unfinished_ = piece.substr(at).substr(piece.size() - at - unfinished_bytes(piece.substr(at)));
  const std::size_t end = piece.size() - unfinished_.size();
  while (at < end) {
    if (end - at >= block_bytes && is_plain(piece.data() + at)) {
      at += block_bytes;
      continue;
    }
    const std::size_t stop = std::min(end, at + block_bytes);
    while (at < stop) {
      const std::size_t bytes = character_bytes(piece, at);
      wide_ += bytes > 1 ? 1 : 0;
      if (bytes == 0) {
        add_stray(bytes_ + at, 1, (static_cast<unsigned char>(piece[at]) & 0xc0) == 0x80);
      } else if (is_control(piece[at])) {
        if (!first_) first_ = bytes_ + at;
        ++strange_;
      }
      at += std::max<std::size_t>(bytes, 1);
    }
  }
  bytes_ += piece.size();
}

std::string conversion_to_utf8(const std::filesystem::path& file) {
  return fmt::format("iconv -f WINDOWS-1252 -t UTF-8 '{0}' > '{0}.utf8', with the file's encoding after -f",
                     file.string());
}

std::string remark_on(const TextSurvey& survey, const std::filesystem::path& file) {
  return fmt::format("{}: {} of the {} bytes examined are not UTF-8, the first at offset {}{}", file.string(),
                     survey.strange(), survey.bytes(), survey.first().value_or(0),
                     survey.is_other_encoding()
                         ? "; if the file has another encoding, such as Latin-1, use " + conversion_to_utf8(file)
                         : "");
}

}  // namespace ranvier::models

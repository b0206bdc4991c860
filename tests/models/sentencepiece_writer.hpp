// Writes SentencePiece's tokenizer.model with the fields that are read.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::tests {

struct SentencePieceWriter {
  std::vector<std::string> pieces;
  int type = 2;  ///< BPE
  bool remove_extra_whitespaces = false;
  std::string characters;

  SentencePieceWriter& add(const std::string& piece, float score, int kind = 1) {
    pieces.push_back(piece);
    std::string message = text(1, piece) + '\x15';
    char bytes[4];
    std::memcpy(bytes, &score, sizeof bytes);
    message.append(bytes, sizeof bytes);
    if (kind != 1) message += number(3, kind);
    content_ += text(1, message);
    return *this;
  }
  [[nodiscard]] std::string model() const {
    const std::string trainer = number(3, type) + number(35, 1) + number(41, 1) + number(42, 2);
    std::string normalizer = text(1, "identity") + number(3, 1) + number(4, remove_extra_whitespaces ? 1 : 0);
    if (!characters.empty()) normalizer += text(2, characters);
    return content_ + text(2, trainer) + text(3, normalizer);
  }

 private:
  static std::string varint(std::uint64_t value) {
    std::string to;
    for (; value >= 0x80; value >>= 7) to += static_cast<char>((value & 0x7f) | 0x80);
    return to + static_cast<char>(value);
  }
  static std::string number(int field, int value) {
    return varint(static_cast<std::uint64_t>(field) << 3) + varint(static_cast<std::uint64_t>(value));
  }
  static std::string text(int field, std::string_view value) {
    return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(value.size()) + std::string(value);
  }

  std::string content_;
};

}  // namespace ranvier::tests

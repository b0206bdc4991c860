// The tests' own reader of event files: TFRecord frames with their checksums, and the fields of protocol buffers.
#pragma once

#include "apps/view/event_file.hpp"
#include "tests/test.hpp"

#include <bit>

namespace ranvier::tests {

inline std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// Records of a file, whose checksums must be correct.
inline std::vector<std::string> records_of(std::string_view file) {
  const auto checks = [](std::string_view bytes, std::string_view crc) {
    const auto value = static_cast<std::uint32_t>(apps::crc32c(bytes));
    CHECK(static_cast<std::uint32_t>((value >> 15 | value << 17) + 0xa282ead8u) == little_endian(crc));
  };
  std::vector<std::string> records;
  while (!file.empty()) {
    REQUIRE(file.size() >= 16);
    const std::uint64_t bytes = little_endian(file.substr(0, 8));
    REQUIRE(file.size() >= 16 + bytes);
    checks(file.substr(0, 8), file.substr(8, 4));
    checks(file.substr(12, bytes), file.substr(12 + bytes, 4));
    records.emplace_back(file.substr(12, bytes));
    file.remove_prefix(16 + bytes);
  }
  return records;
}

/// Fields of a message: numbers as text, all other types as bytes.
inline std::multimap<int, std::string> fields_of(std::string_view message) {
  const auto varint = [&message] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE(!message.empty());
      const auto byte = static_cast<unsigned char>(message[0]);
      message.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  std::multimap<int, std::string> fields;
  while (!message.empty()) {
    const std::uint64_t tag = varint();
    const int type = static_cast<int>(tag & 7), field = static_cast<int>(tag >> 3);
    if (type == 0) {
      fields.emplace(field, std::to_string(varint()));
      continue;
    }
    const std::size_t bytes = type == 1 ? 8 : type == 5 ? 4 : static_cast<std::size_t>(varint());
    REQUIRE((type == 1 || type == 5 || type == 2));
    REQUIRE(message.size() >= bytes);
    fields.emplace(field, std::string(message.substr(0, bytes)));
    message.remove_prefix(bytes);
  }
  return fields;
}

inline std::string field(const std::string& message, int number) {
  const auto fields = fields_of(message);
  REQUIRE(fields.count(number) == 1);
  return fields.find(number)->second;
}

/// Tag and value of all scalars.
inline std::map<std::string, float> scalars_of(const std::string& event) {
  std::map<std::string, float> scalars;
  const auto summary = fields_of(field(event, 5));
  for (const auto& [number, value] : summary) {
    CHECK(number == 1);
    scalars[field(value, 1)] = std::bit_cast<float>(static_cast<std::uint32_t>(little_endian(field(value, 2))));
  }
  return scalars;
}

}  // namespace ranvier::tests

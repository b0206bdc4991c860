// Token files of other programs, from their tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ranvier::tests {

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// llm.c's, in the format for 16 or for 32 bits.
template <typename Token>
std::string llmc_file(const std::vector<Token>& tokens) {
  constexpr bool wide = sizeof(Token) > 2;
  std::vector<std::int32_t> header(256);
  header[0] = wide ? 20240801 : 20240520;
  header[1] = wide ? 7 : 1;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return bytes_of(header) + bytes_of(tokens);
}

/// Megatron's .idx, in the format of its indexed_dataset.py.
struct MegatronIndex {
  std::uint8_t code = 8;
  std::vector<std::int32_t> sizes;
  std::vector<std::int64_t> begins, documents;

  [[nodiscard]] std::string bytes() const {
    const std::string magic("MMIDIDX\0\0", 9);
    return magic + bytes_of(std::vector<std::uint64_t>{1}) + static_cast<char>(code) +
           bytes_of(std::vector<std::uint64_t>{sizes.size(), documents.size()}) + bytes_of(sizes) +
           bytes_of(begins) + bytes_of(documents);
  }
};

}  // namespace ranvier::tests

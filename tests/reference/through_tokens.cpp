// Prints a file's tokens and their decoded text, for comparison with another program's.
//
//   through_tokens TOKENIZER text|token INPUT TOKENS OUTPUT
//
// `text` or `token` is the treatment of text that spells a special token. TOKENS is int32.
#include "models/tokenizers/text_encoder.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/memory_map.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <fstream>
#include <string_view>

using namespace ranvier;
using namespace ranvier::models;

int main(int argc, char** argv) try {
  if (argc != 6) {
    fmt::print(stderr, "usage: through_tokens TOKENIZER text|token INPUT TOKENS OUTPUT\n");
    return EXIT_FAILURE;
  }
  const Tokenizer tokenizer = read_tokenizer(argv[1]);
  const auto specials =
      std::string_view(argv[2]) == "token" ? SpecialTokenPolicy::tokenizer : SpecialTokenPolicy::text;
  const runtime::MemoryMap input(argv[3]);
  TextEncoder encoder(tokenizer, 2, specials);
  std::vector<std::int32_t> tokens;
  encoder.encode(input.text(), tokens);
  std::ofstream(argv[4], std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof tokens[0]));
  std::ofstream(argv[5], std::ios::binary) << tokenizer.decode(tokens);
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return EXIT_FAILURE;
}

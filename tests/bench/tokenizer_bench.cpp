// Encoding and decoding rates of a tokenizer in MB of text per second, and the rate of splitting into words alone.
// One JSON line per case.
//
//   tokenizer_bench TOKENIZER FILE... [--threads N] [--specials text|token] [--write-tokens FILE] [--write-text FILE]
//
// TOKENIZER: value of ranvier-train's --tokenizer. --write-tokens writes the tokens of the last file, int32, for a
// comparison with another encoder; --write-text writes the decoded text.
#include "models/tokenizers/text_encoder.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/tokenizers/word_splitter.hpp"
#include "runtime/files/memory_map.hpp"
#include "tests/bench/bench.hpp"

#include <fstream>

using namespace ranvier;
using namespace ranvier::bench;
using namespace ranvier::models;

namespace {

void print(const char* what, const std::string& file, int threads, std::size_t bytes, double seconds,
           std::size_t count) {
  print_case(R"("bench": "tokenizer", "case": "{}", "file": "{}", "threads": {}, "bytes": {}, "count": {}, )"
             R"("mb_per_second": {:.1f})",
             what, file, threads, bytes, count, static_cast<double>(bytes) / seconds * 1e-6);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto option = [&](const char* name, std::string value) {
    const auto at = std::find(arguments.begin(), arguments.end(), name);
    if (at == arguments.end() || at + 1 == arguments.end()) return value;
    value = at[1];
    arguments.erase(at, at + 2);
    return value;
  };
  const int max_threads = std::atoi(option("--threads", "2").c_str());
  const std::string tokens_path = option("--write-tokens", "");
  const std::string text_path = option("--write-text", "");
  const SpecialTokenPolicy specials =
      option("--specials", "text") == "token" ? SpecialTokenPolicy::tokenizer : SpecialTokenPolicy::text;
  if (arguments.size() < 2 || max_threads < 1) {
    fmt::print(
        stderr,
        "usage: tokenizer_bench TOKENIZER FILE... [--threads N] [--specials text|token] [--write-tokens FILE] "
        "[--write-text FILE]\n");
    return EXIT_FAILURE;
  }
  const Tokenizer tokenizer = read_tokenizer(arguments[0]);
  std::vector<std::int32_t> tokens;
  std::string back;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string name = std::filesystem::path(arguments[i]).filename();
    const std::string text(runtime::MemoryMap(arguments[i]).text());
    WordSplitter splitter;
    std::size_t words = 0;
    const double splitting = quickest(1, [&] {
      words = 0;
      splitter.start(text);
      while (!splitter.next().empty()) ++words;
    });
    print("words", name, 1, text.size(), splitting, words);
    for (int threads = 1; threads <= max_threads; ++threads) {
      const auto encode = [&](TextEncoder& encoder) {
        tokens.clear();
        encoder.encode(text, tokens);
      };
      const double cold = quickest(1, [&] {
        TextEncoder encoder(tokenizer, threads, specials);
        encode(encoder);
      });
      print("encode, no word met before", name, threads, text.size(), cold, tokens.size());
      TextEncoder encoder(tokenizer, threads, specials);
      print("encode", name, threads, text.size(), quickest(1, [&] { encode(encoder); }), tokens.size());
    }
    const double decoding = quickest(1, [&] { back = tokenizer.decode(tokens); });
    print("decode", name, 1, text.size(), decoding, tokens.size());
  }
  if (!tokens_path.empty())
    std::ofstream(tokens_path, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()),
               static_cast<std::streamsize>(tokens.size() * sizeof tokens[0]));
  if (!text_path.empty()) std::ofstream(text_path, std::ios::binary) << back;
}

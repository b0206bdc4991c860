// Encoding and decoding rates of a tokenizer in MB of text per second, and the rate of splitting into words alone.
// One JSON line per case.
//
//   tokenizer_bench TOKENIZER FILE... [--threads N] [--specials text|token] [--write-tokens FILE] [--write-text FILE]
//
// TOKENIZER: value of ranvier-train's --tokenizer. --write-tokens writes the tokens of the last file, int32, for a
// comparison with another encoder; --write-text writes the decoded text.
#include "apps/program/options.hpp"
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

void bench_main(int argc, char** argv) {
  std::vector<std::string> arguments;
  int max_threads = 2;
  SpecialTokenPolicy specials = SpecialTokenPolicy::text;
  std::string tokens_path, text_path;
  apps::OptionTable table;
  table.add({"threads", "N", "at most", apps::whole(max_threads, 1)});
  table.add({"specials", "text|token", "special tokens that a text spells",
             apps::choice<SpecialTokenPolicy>(
                 specials, {{"text", SpecialTokenPolicy::text}, {"token", SpecialTokenPolicy::tokenizer}})});
  table.add({"write-tokens", "FILE", "tokens of the last file, int32", apps::text(tokens_path)});
  table.add({"write-text", "FILE", "the decoded text", apps::text(text_path)});
  table.rest(arguments);
  table.parse(argc, argv);
  if (arguments.size() < 2) fail(ErrorCode::usage, "usage: tokenizer_bench TOKENIZER FILE...");
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

}  // namespace

int main(int argc, char** argv) {
  return status_of("tokenizer_bench", [&] { bench_main(argc, argv); });
}

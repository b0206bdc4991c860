// Samples per second that one thread reads, compared with the rate that training needs, for every kind of token file.
// One JSON line per case.
//
//   loader_bench [--sequence-length 1024] [--megabytes 64] [--needed TOKENS] [--folder DIR]
//
// --needed: tokens per second that training takes. The default is GPT-2 small at the peak of an H200 in bf16,
// 989 TFLOP/s over 6 · 124M + 12 · 12 · 768 · 1024 FLOP per token, more than any run reaches.
//
// The last two cases start with an empty page cache and read microbatches of 8 samples, two milliseconds apart, the
// time of a step. The last one announces samples eight microbatches ahead.
#include "apps/program/options.hpp"
#include "models/text/data_file.hpp"
#include "models/text/text_source.hpp"
#include "models/text/token_output.hpp"
#include "runtime/base/philox.hpp"
#include "tests/bench/bench.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::bench;

namespace {

constexpr int vocabulary = 50257;
constexpr int microbatch = 8;

struct Settings {
  int sequence_length = 1024;
  double needed = 1.15e6;
};

void print(const std::string& what, const Settings& settings, std::int64_t samples, double seconds,
           double slowest) {
  const double tokens = static_cast<double>(samples * settings.sequence_length) / seconds;
  print_case(R"("bench": "loader", "case": "{}", "sequence_length": {}, "samples_per_second": {:.0f}, )"
             R"("tokens_per_second": {:.3g}, "needed_tokens_per_second": {:.3g}, "times_needed": {:.1f}, )"
             R"("slowest_microbatch_us": {:.1f})",
             what, settings.sequence_length, static_cast<double>(samples) / seconds, tokens, settings.needed,
             tokens / settings.needed, slowest * 1e6);
}

/// Reads microbatches for about a second, not counting `pause` between them; `ahead`: samples announced, 0: none.
void measure(const std::string& what, const Settings& settings, const SampleSource& source,
             std::chrono::microseconds pause = {}, std::int64_t ahead = 0) {
  std::vector<std::byte> inputs(microbatch * source.input_bytes()), targets(microbatch * source.target_bytes());
  double total = 0, slowest = 0;
  std::int64_t first = 0;
  for (int i = 0; i < (pause.count() > 0 ? 200 : 1'000'000) && total < 1; ++i, first += microbatch) {
    const double seconds = seconds_of([&] {
      source.read_inputs(first, microbatch, inputs.data());
      source.read_targets(first, microbatch, targets.data());
    });
    total += seconds;
    slowest = std::max(slowest, seconds);
    for (std::int64_t n = first + ahead; ahead > 0 && n < first + ahead + microbatch; ++n) source.prefetch(n);
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
  }
  print(what, settings, first, total, slowest);
}

std::vector<std::int32_t> tokens_of(std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i)
    tokens[i] = static_cast<std::int32_t>(runtime::philox({1, 2}, {static_cast<std::uint32_t>(i), 0, 0, 0})[0] %
                                          vocabulary);
  return tokens;
}

void write(const std::filesystem::path& path, TokenOutputFormat format, int vocab_size,
           const std::vector<std::int32_t>& tokens) {
  constexpr std::size_t document = 600;
  TokenOutput output({.path = path, .format = format, .vocab_size = vocab_size});
  for (std::size_t i = 0; i < tokens.size(); i += document) {
    output.append(std::span(tokens).subspan(i, std::min(document, tokens.size() - i)));
    output.end_document();
  }
  output.commit();
}

void forget(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

void bench_main(int argc, char** argv) {
  Settings settings;
  int megabytes = 64;
  std::string place = std::filesystem::temp_directory_path();
  apps::OptionTable table;
  table.add({"sequence-length", "N", "tokens per sample", apps::whole(settings.sequence_length, 1)});
  table.add({"megabytes", "N", "size of a token file", apps::whole(megabytes, 1)});
  table.add({"needed", "TOKENS", "per second that training takes", apps::real(settings.needed, 0)});
  table.add({"folder", "DIR", "for the files", apps::text(place)});
  table.parse(argc, argv);
  const auto folder = std::filesystem::path(place) / fmt::format("ranvier-loader-bench-{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto narrow = folder / "narrow.bin", megatron = folder / "megatron.bin", wide = folder / "wide.bin";
  const auto tokens = tokens_of(static_cast<std::size_t>(megabytes) * 500'000);
  write(narrow, TokenOutputFormat::llmc, vocabulary, tokens);
  write(megatron, TokenOutputFormat::megatron, vocabulary, tokens);
  write(wide, TokenOutputFormat::megatron, 100'000, tokens);  // int32

  const auto source_of = [&](const std::filesystem::path& path, std::optional<std::uint64_t> seed,
                             int vocab_size = vocabulary) {
    return open_text_data({.path = path,
                           .sequence_length = settings.sequence_length,
                           .vocab_size = vocab_size,
                           .shuffle_seed = seed})
        .training;
  };
  measure("llm.c uint16, in order", settings, *source_of(narrow, {}));
  measure("llm.c uint16, shuffled", settings, *source_of(narrow, 1));
  measure("Megatron uint16, shuffled", settings, *source_of(megatron, 1));
  measure("Megatron int32, shuffled", settings, *source_of(wide, 1));
  measure("two files by weight, shuffled", settings,
          *open_text_data({.mixture = {{narrow.string(), 0.7}, {wide.string(), 0.3}},
                           .sequence_length = settings.sequence_length,
                           .vocab_size = vocabulary,
                           .shuffle_seed = 1})
               .training);
  for (const std::int64_t ahead : {0, 8 * microbatch}) {
    forget(narrow);
    const auto source = source_of(narrow, 1, 1 << 16);  // all uint16 values: opening does not check the tokens
    const std::string what = "llm.c uint16, shuffled, from the disk";
    measure(ahead == 0 ? what : what + ", announced", settings, *source, std::chrono::milliseconds(2), ahead);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
  return status_of("loader_bench", [&] { bench_main(argc, argv); });
}

// A training run of well under a second, and its input files.
#pragma once

#include "tests/apps/job.hpp"
#include "tests/test.hpp"

namespace ranvier::tests {

/// 4 layers of 32 channels, 4 steps of 4 samples of 16 bytes of `data`, `more` flags, a later one of which overrides an
/// earlier one of the same name. With --save or --trace also --overwrite, so that runs may share a path.
[[nodiscard]] Flags small_run(const std::string& data, const Flags& more = {});

/// About 8 KiB of random words.
[[nodiscard]] std::string small_text();
/// A folder with small_text() in the file `text`, and paths for outputs.
struct SmallText : InFolder {
  std::string text = folder.write("text.txt", small_text()).string();
  std::string metrics = file("metrics.jsonl"), weights = file("weights.safetensors");

  [[nodiscard]] std::string make_folder(std::string_view name) const {
    std::filesystem::create_directory(folder.path() / name);
    return file(name);
  }
  /// Runs small_run() of the text, which must end well.
  Outcome ends_well(int ranks, const Flags& more, std::chrono::duration<double> limit,
                    const Environment& environment = {}) const {
    return require_status(0, run(ranks, small_run(text, more), limit, environment));
  }
};

/// An llm.c token file.
[[nodiscard]] std::string token_file(const std::vector<std::uint16_t>& tokens);

/// The values of `key`, as written, of every step of a metrics file.
[[nodiscard]] std::vector<std::string> metric(const std::string& path, const std::string& key);

/// "validation loss 2.5  accuracy 0.5": the output of an evaluation, without its number of samples.
[[nodiscard]] std::string validation_of(const Outcome& outcome);

/// Checks that the losses of two runs differ only by rounding.
void check_close(const std::vector<std::string>& losses, const std::vector<std::string>& others);

}  // namespace ranvier::tests

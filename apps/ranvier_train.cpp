// ranvier-train: trains a GPT on a file of text or tokens.
#include "apps/launch.hpp"
#include "models/gpt.hpp"
#include "models/text/bpe_files.hpp"
#include "models/text/text_source.hpp"
#include "models/weights/gpt_config.hpp"

#include <algorithm>
#include <thread>

namespace {

using namespace ranvier;

apps::Job make_job(const apps::TrainOptions& options) {
  models::GptOptions gpt = options.model.gpt;
  gpt.precision = options.precision.types;
  const std::size_t ids = static_cast<std::size_t>(gpt.sequence_length) * sizeof(std::int32_t);
  apps::Job job{
      .architecture = models::make_gpt(gpt), .sample = {ids, ids}, .config = models::gpt_config_json(gpt)};
  if (options.data.data.empty()) {
    if (options.run.request == apps::Request::dry_run) return job;
    fail(ErrorCode::usage,
         "--data is missing: give a text file, a folder of text files or a token file, or several with weights");
  }
  models::TextDataOptions text{.tokenizer = options.data.gpt2,
                               .threads = options.device.threads > 0
                                              ? options.device.threads
                                              : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())),
                               .format = options.data.format,
                               .text_allowed = options.data.tokenizer != apps::Tokenizer::none,
                               .sequence_length = gpt.sequence_length,
                               .vocab_size = gpt.vocab_size,
                               .validation_split = options.data.validation_split};
  if (options.data.shuffle) text.shuffle_seed = options.run.seed;
  if (auto paths = models::parse_weighted_paths(options.data.data); paths.size() > 1) {
    text.mixture = std::move(paths);
  } else {
    text.path = paths.front().path;  // one with a weight has all of it
  }
  models::TextData data = models::open_text_data(text);
  job.source = std::move(data.training);
  job.validation = std::move(data.validation);
  if (!options.data.gpt2.empty()) {
    job.tokenizer = std::make_shared<const models::Tokenizer>(models::read_bpe_vocabulary(options.data.gpt2));
  } else if (options.data.tokenizer == apps::Tokenizer::bytes) {
    job.tokenizer = std::make_shared<const models::Tokenizer>();
  }
  if (!options.data.hellaswag.empty())
    job.choices = std::make_shared<const models::ChoiceFile>(options.data.hellaswag, gpt.vocab_size);
  job.bytes_per_token = options.data.tokenizer == apps::Tokenizer::bytes ? 1 : data.bytes_per_token;
  return job;
}

}  // namespace

int main(int argc, char** argv) { return apps::launch("ranvier-train", argc, argv, make_job); }

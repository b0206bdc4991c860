// ranvier-train: trains a GPT on a file of text or tokens.
#include "apps/launch.hpp"
#include "models/gpt.hpp"
#include "models/text/text_source.hpp"
#include "models/weights/gpt_config.hpp"

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
    fail(ErrorCode::usage, "--data is missing: give a text file, a folder of text files or a token file");
  }
  models::TextDataOptions text{.path = options.data.data,
                               .format = options.data.format,
                               .text_allowed = options.data.tokenizer == apps::Tokenizer::bytes,
                               .sequence_length = gpt.sequence_length,
                               .vocab_size = gpt.vocab_size,
                               .validation_split = options.data.validation_split};
  if (text.text_allowed) job.bytes_per_token = 1;
  if (options.data.shuffle) text.shuffle_seed = options.run.seed;
  models::TextData data = models::open_text_data(text);
  job.source = std::move(data.training);
  job.validation = std::move(data.validation);
  return job;
}

}  // namespace

int main(int argc, char** argv) { return apps::launch("ranvier-train", argc, argv, make_job); }

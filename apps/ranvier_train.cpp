// ranvier-train: trains a GPT on a file of text or tokens.
#include "apps/launch.hpp"
#include "models/gpt.hpp"
#include "models/text/text_source.hpp"

namespace {

using namespace ranvier;

apps::Job make_job(const apps::TrainOptions& options) {
  models::GptOptions gpt = options.model.gpt;
  gpt.precision = options.precision.types;
  models::TextDataOptions text{.path = options.data.data,
                               .format = options.data.format,
                               .text_allowed = options.data.tokenizer == apps::Tokenizer::bytes,
                               .sequence_length = gpt.sequence_length,
                               .vocab_size = gpt.vocab_size,
                               .validation_split = options.data.validation_split};
  if (options.data.shuffle) text.shuffle_seed = options.run.seed;
  models::TextData data = models::open_text_data(text);
  return {models::make_gpt(gpt), std::move(data.training), std::move(data.validation)};
}

}  // namespace

int main(int argc, char** argv) { return apps::launch("ranvier-train", argc, argv, make_job); }

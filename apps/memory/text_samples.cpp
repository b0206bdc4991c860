#include "apps/memory/text_samples.hpp"

#include "models/tokenizers/document_frame.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::apps {

actors::SampleOptions text_samples(const TrainOptions& options, const Job& job) {
  actors::SampleOptions sample = options.trainer.sample;
  if (sample.every == 0) return sample;
  if (!job.tokenizer)
    fail(ErrorCode::usage, "--sample-every {} needs a tokenizer; add --tokenizer PATH, or use --sample-every 0",
         sample.every);
  const models::Tokenizer& tokenizer = *job.tokenizer;
  const std::string& prompt = options.data.sample_prompt;
  sample.end_of_text = tokenizer.end_of_text();
  const models::SpecialTokenPolicy specials = options.data.specials;
  sample.prompt =
      models::make_prompt(prompt, tokenizer, specials, models::DocumentFrame(tokenizer, specials)).tokens;
  const auto known = static_cast<std::int32_t>(job.architecture.layers.back()->vocabulary());
  for (const std::int32_t token : sample.prompt) {
    if (known > 0 && token >= known)
      fail(ErrorCode::usage,
           "--sample-prompt '{}' contains token id {}, but the model's vocabulary has {} tokens; use a larger "
           "--vocab-size or another prompt",
           prompt, token, known);
  }
  sample.sampling.seed = options.trainer.seed;
  sample.sampling.tokens = known > 0 ? std::min(known, tokenizer.size()) : tokenizer.size();
  return sample;
}

}  // namespace ranvier::apps

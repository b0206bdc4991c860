#include "apps/files/train_job.hpp"

#include "apps/kernels/kernel_choice.hpp"
#include "apps/options/initial_weights.hpp"
#include "models/families/bert.hpp"
#include "models/families/model.hpp"
#include "models/images/image_source.hpp"
#include "models/text/bytes_per_token.hpp"
#include "models/text/masked_source.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/weights/safetensors.hpp"
#include "runtime/host/cores.hpp"

#include <algorithm>
#include <variant>

namespace ranvier::apps {

namespace {

/// Source of a run that reads no samples.
class NoSamples final : public models::TokenSamples {
 public:
  using TokenSamples::TokenSamples;

  [[nodiscard]] std::int64_t samples() const override { return 0; }
  void read_input(std::int64_t, std::byte*) const override { expect(false, "no samples to read"); }
  void read_target(std::int64_t, std::byte*) const override { expect(false, "no samples to read"); }
};

/// Mask token, probability and special tokens, which are never masked.
models::MaskingOptions masking(const TrainOptions& options, const Job& job) {
  const int vocab_size = options.model.size(models::Size::vocab_size);
  models::MaskingOptions masking{.probability = options.data.mlm_probability,
                                 .tokens = job.tokenizer ? std::min(job.tokenizer->size(), vocab_size) : vocab_size,
                                 .seed = options.trainer.seed};
  const models::SpecialTokens special = job.tokenizer ? job.tokenizer->specials() : models::SpecialTokens();
  for (const auto& token : {special.begin_of_text, special.end_of_text, special.unknown, special.separator,
                            special.padding, special.classifier, special.mask, options.data.document_end})
    if (token) masking.special_tokens.push_back(*token);
  const bool bytes = options.data.tokenizer == Tokenizer::bytes;
  auto mask = options.data.mask_token ? options.data.mask_token : special.mask;
  if (!mask && bytes && job.tokenizer->size() < vocab_size) mask = job.tokenizer->size();
  if (!mask)
    reject("--mask-token is missing: {}, and --model {} needs one; add --mask-token N{}",
           bytes           ? "all tokens of the model are bytes"
           : job.tokenizer ? "the tokenizer has no mask token"
                           : "the data are tokens",
           options.model.name,
           bytes           ? ", and a larger --vocab-size"
           : job.tokenizer ? ""
                           : " (103 for bert-base-uncased, 50264 for roberta-base), or --tokenizer PATH");
  if (*mask >= vocab_size)
    reject("the mask token {} is not in the model's vocabulary of {} tokens; use another --mask-token", *mask,
           vocab_size);
  masking.mask_token = *mask;
  return masking;
}

/// Throws if config.json is missing and needed: only GPT-2's sizes follow from its tensors.
void expect_configuration(const TrainOptions& options) {
  const std::string& from = options.run.init_from;
  if (from.empty() || !initial_config(options).empty() ||
      !std::holds_alternative<models::GptOptions>(options.model.sizes))
    return;
  const models::Safetensors weights(models::find_weights(from, "--init-from"));
  if (weights.find("wte.weight") == nullptr)
    fail(ErrorCode::data,
         "config.json is missing in the folder of {}, whose tensors are not a GPT-2's; copy the model's "
         "config.json to that folder, or add --model with the model's family and sizes",
         weights.path().string());
}

Job make_image_job(const TrainOptions& options, const models::ModelSizes& model) {
  const int size = options.model.size(models::Size::image_size);
  const auto pixels = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  Job job{.architecture = models::make_model(model, options.model.tuning()),
          .sample = {3 * pixels, sizeof(std::int32_t)},
          .item = "image",
          .config = models::model_config_json(model, initial_config(options)),
          .beside_weights = files_beside_weights(options)};
  const std::string& path = options.data.data;
  if (path.empty()) {
    if (options.run.request == Request::dry_run) return job;
    reject("--data is missing; use --data with a CIFAR-10 or CIFAR-100 binary file, a folder of them, or {}",
           models::synthetic_images);
  }
  models::ImageDataOptions images{.path = path,
                                  .image_size = size,
                                  .classes = options.model.size(models::Size::classes),
                                  .validation_split = options.data.validation_split,
                                  .validates_all = options.data.eval_only && options.data.validation_split == 0};
  if (options.data.shuffle) images.shuffle_seed = options.trainer.seed;
  if (options.data.augment) images.augment_seed = options.trainer.seed;
  models::ImageData data = models::open_image_data(images);
  job.data = fmt::format("data: {} images of {} × {}", data.images, size, size);
  if (data.validation) job.data += fmt::format(", {} of them for validation", data.validation->samples());
  job.files = std::move(data.files);
  job.source = std::move(data.training);
  job.validation = std::move(data.validation);
  return job;
}

}  // namespace

Job make_job(const TrainOptions& options) {
  expect_configuration(options);
  models::ModelSizes model = options.model.sizes;
  models::set_precision(model, options.trainer.precision);
  models::set_attention(model, attention_kernels(options), options.device.fast_attention_backward);
  if (models::reads_images(model)) return make_image_job(options, model);
  const int length = options.model.size(models::Size::sequence_length);
  const int vocab_size = options.model.size(models::Size::vocab_size);
  const std::size_t ids = static_cast<std::size_t>(length) * sizeof(std::int32_t);
  const bool joined = options.data.documents == models::Documents::join;
  models::set_targets(model, static_cast<int>(models::tokens_to_find(options.data.mlm_probability, length)));
  Job job{.architecture = models::make_model(model, options.model.tuning()),
          .sample = {ids, ids, joined ? 0 : models::SampleSource::document_arrays * ids},
          .config = models::model_config_json(model, initial_config(options)),
          .beside_weights = files_beside_weights(options)};
  if (models::tells_classes(model)) {
    job.sample = {ids, sizeof(std::int32_t), models::SampleSource::document_arrays * ids};
    job.item = "text";
    if (!options.data.labels.empty()) job.config = models::with_labels(job.config, options.data.labels);
  }
  if (!options.data.gpt2.empty()) {
    job.tokenizer = std::make_shared<const models::Tokenizer>(models::read_tokenizer(options.data.gpt2));
  } else if (options.data.tokenizer == Tokenizer::bytes) {
    job.tokenizer = std::make_shared<const models::Tokenizer>();
  }
  if (job.tokenizer && !options.run.save.empty()) {
    const std::string generation = generation_config(model, *job.tokenizer);
    if (!generation.empty()) job.beside_weights.try_emplace("generation_config.json", generation);
  }
  if (!options.data.hellaswag.empty())
    job.questions = std::make_shared<const models::QuestionFile>(options.data.hellaswag, vocab_size);
  if (options.data.data.empty()) {
    if (options.run.request == Request::dry_run) return job;
    if (options.data.eval_only && job.questions) {  // reads only the questions
      job.source = std::make_unique<NoSamples>(length);
      return job;
    }
    reject(
        "--data is missing; use --data with a text file, a folder of text files, a token file, or several with "
        "weights");
  }
  models::TextDataOptions text{
      .tokenizer = options.data.gpt2,
      .threads = options.device.threads > 0 ? options.device.threads : runtime::available_cores(),
      .reading = options.data.reading,
      .labels = options.data.labels,
      .specials = options.data.specials,
      .text_allowed = options.data.tokenizer != Tokenizer::none,
      .sequence_length = length,
      .vocab_size = vocab_size,
      .documents = options.data.documents,
      .document_end = options.data.document_end,
      .validation_split = options.data.validation_split,
      .validates_all = options.data.eval_only && options.data.validation_split == 0};
  if (options.data.shuffle) text.shuffle_seed = options.trainer.seed;
  if (auto paths = models::parse_weighted_paths(options.data.data); paths.size() > 1) {
    text.mixture = std::move(paths);
  } else {
    text.path = paths.front().path;  // the weight of a single path has no effect
  }
  models::TextData data = models::open_text_data(text);
  job.data = data_report(data, options, job.tokenizer.get());
  if (job.tokenizer && job.tokenizer->size() > vocab_size)
    job.data += fmt::format("\nthe tokenizer {} has {} tokens and the model {}; the data have none of the others",
                            options.data.gpt2, job.tokenizer->size(), vocab_size);
  job.files.insert(job.files.end(), data.files.begin(), data.files.end());
  job.source = std::move(data.training);
  job.validation = std::move(data.validation);
  if (models::fills_masks(model)) {
    models::MaskingOptions masks = masking(options, job);
    const std::int32_t mask = masks.mask_token;
    job.tokens_per_sample = length;
    job.source = std::make_unique<models::MaskedSource>(std::move(job.source), masks);
    const std::int64_t found = job.source->losses_per_sample();
    job.data += options.data.documents == models::Documents::pad
                    ? fmt::format("\nmasked per sample: {:.3g}% of its tokens, at most {}",
                                  100 * options.data.mlm_probability, found)
                    : fmt::format("\nmasked per sample: {} of {} tokens", found, length);
    job.data += fmt::format("; mask token: {}", mask);
    masks.validation = true;
    if (job.validation)
      job.validation = std::make_unique<models::MaskedSource>(std::move(job.validation), std::move(masks));
    return job;  // losses of masked tokens give no bits per byte
  }
  if (models::tells_classes(model)) return job;
  if (options.data.tokenizer == Tokenizer::bytes) {
    job.bytes_per_token = 1;
  } else if (job.tokenizer && job.validation) {
    const std::int64_t all = job.validation->samples(), some = options.data.eval_samples;
    job.bytes_per_token =
        models::bytes_per_token(*job.tokenizer, *job.validation, some > 0 ? std::min(some, all) : all);
  }
  return job;
}

}  // namespace ranvier::apps

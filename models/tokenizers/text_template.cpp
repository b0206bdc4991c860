#include "models/tokenizers/text_template.hpp"

#include "models/tokenizers/file_text.hpp"

namespace ranvier::models {
namespace {

/// Tokens around a text by tokenizer_config.json of a LLaMA's tokenizer.
struct LlamaTemplate {
  bool begin_of_text = true, end_of_text = false;

  [[nodiscard]] TextTemplate tokens(std::optional<std::int32_t> begin, std::optional<std::int32_t> end) const {
    TextTemplate around;
    if (begin_of_text && begin) around.beginning = {*begin};
    if (end_of_text && end) around.ending = {*end};
    return around;
  }
};

/// None: no configuration, or one for another tokenizer.
std::optional<LlamaTemplate> llama_template(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer_config.json";
  if (!is_file(path)) return std::nullopt;
  const JsonFile file(path);
  const JsonNode root = file.root();
  const JsonNode kind = root["tokenizer_class"];
  if (!kind.there() || kind.text().find("Llama") == std::string::npos) return std::nullopt;
  return LlamaTemplate{root["add_bos_token"].flag(true), root["add_eos_token"].flag(false)};
}

struct TemplateSpellings {
  std::vector<JsonNode> beginning, ending;
};

void add_spellings(const JsonNode& processor, TemplateSpellings& to) {
  if (!processor.there()) return;
  const std::string type = processor.type();
  if (type == "Sequence") {
    for (const JsonNode& one : processor["processors"].list()) add_spellings(one, to);
  } else if (type == "TemplateProcessing") {
    bool behind_text = false;
    for (const JsonNode& piece : processor["single"].list()) {
      const JsonNode token = piece["SpecialToken"];
      if (token.there())
        (behind_text ? to.ending : to.beginning).push_back(token["id"]);
      else
        behind_text = true;
    }
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    // Spelling and number each.
    if (const auto classifier = processor["cls"].list(); !classifier.empty()) to.beginning.push_back(classifier[0]);
    if (const auto separator = processor["sep"].list(); !separator.empty()) to.ending.push_back(separator[0]);
  }
}

}  // namespace

TextTemplate text_template(const JsonNode& post_processor, const std::filesystem::path& folder,
                           std::optional<std::int32_t> begin_of_text, std::optional<std::int32_t> end_of_text,
                           const FindToken& find) {
  if (const auto llama = llama_template(folder)) return llama->tokens(begin_of_text, end_of_text);
  TemplateSpellings spellings;
  add_spellings(post_processor, spellings);
  const auto tokens = [&](const std::vector<JsonNode>& nodes) {
    std::vector<std::int32_t> found;
    for (const JsonNode& node : nodes) {
      const auto token = find(node.text());
      if (!token) node.refuse("is not a token");
      found.push_back(*token);
    }
    return found;
  };
  return {tokens(spellings.beginning), tokens(spellings.ending)};
}

TextTemplate sentencepiece_template(const std::filesystem::path& folder, std::optional<std::int32_t> begin_of_text,
                                    std::optional<std::int32_t> end_of_text) {
  return llama_template(folder).value_or(LlamaTemplate()).tokens(begin_of_text, end_of_text);
}

}  // namespace ranvier::models

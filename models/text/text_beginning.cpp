#include "models/text/text_beginning.hpp"

#include "models/text/file_text.hpp"
#include "runtime/json_text.hpp"

namespace ranvier::models {
namespace {

/// By their spellings.
void add_spellings(const JsonNode& processor, std::vector<JsonNode>& to) {
  if (!processor.there()) return;
  const std::string type = processor.type();
  if (type == "Sequence") {
    for (const JsonNode& one : processor["processors"].list()) add_spellings(one, to);
  } else if (type == "TemplateProcessing") {
    for (const JsonNode& piece : processor["single"].list()) {
      if (!piece["SpecialToken"].there()) break;  // the text
      to.push_back(piece["SpecialToken"]["id"]);
    }
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto classifier = processor["cls"].list();  // spelling and number
    if (!classifier.empty()) to.push_back(classifier[0]);
  }
}

}  // namespace

std::optional<bool> adds_begin_of_text(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer_config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  const FileText text(path);
  const boost::json::value parsed = runtime::parse_json(text.text(), text.name());
  const JsonNode root(text.name(), "", &parsed);
  const JsonNode kind = root["tokenizer_class"];
  if (!kind.there() || kind.text().find("Llama") == std::string::npos) return std::nullopt;
  return root["add_bos_token"].flag(true);
}

std::vector<std::int32_t> text_beginning(const JsonNode& post_processor, const std::filesystem::path& folder,
                                         std::optional<std::int32_t> begin_of_text, const FindToken& find) {
  if (const auto adds = adds_begin_of_text(folder))
    return *adds && begin_of_text ? std::vector{*begin_of_text} : std::vector<std::int32_t>{};
  std::vector<JsonNode> spellings;
  add_spellings(post_processor, spellings);
  std::vector<std::int32_t> tokens;
  for (const JsonNode& spelling : spellings) {
    const auto token = find(spelling.text());
    if (!token) spelling.refuse("is no token");
    tokens.push_back(*token);
  }
  return tokens;
}

bool begins_texts(const JsonNode& post_processor, const std::filesystem::path& folder) {
  if (const auto adds = adds_begin_of_text(folder)) return *adds;
  std::vector<JsonNode> spellings;
  add_spellings(post_processor, spellings);
  return !spellings.empty();
}

}  // namespace ranvier::models

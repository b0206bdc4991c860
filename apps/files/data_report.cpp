#include "apps/files/train_job.hpp"

#include "actors/watch/reporter.hpp"
#include "apps/program/flag_names.hpp"
#include "models/tokenizers/unicode.hpp"

#include <algorithm>
#include <string_view>

namespace ranvier::apps {

namespace {

/// "1,204".
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

/// Text in quotes, with unprintable bytes escaped as in C.
std::string in_quotes(std::string_view text) {
  std::string to = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = std::max<std::size_t>(models::character_bytes(text, at), 1);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == '\n' || byte == '\t' || byte == '\r')
      to += byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : "\\r";
    else if (byte == '"' || byte == '\\')
      to += {'\\', text[at]};
    else if (byte < 0x20 || byte == 0x7f || (bytes == 1 && byte >= 0x80))
      to += fmt::format("\\x{:02x}", byte);
    else
      to += text.substr(at, bytes);
    at += bytes;
  }
  return to + '"';
}

std::string counted(std::int64_t number, const char* what) {
  return fmt::format("{} {}{}", grouped(number), what, number == 1 ? "" : "s");
}

std::string content_of(const models::TextOrigin& origin) {
  std::string text = counted(origin.files, "file");
  if (origin.documents > 0) text += ", " + counted(origin.documents, "document");
  return text + fmt::format(", {} tokens", actors::format_count(static_cast<double>(origin.tokens)));
}

/// 1 "<s>", 450 " The", …, 2 "</s>".
std::string ends_of(const std::vector<std::int32_t>& tokens, const models::Tokenizer& tokenizer) {
  constexpr std::size_t shown = 8;  // at each end
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!text.empty()) text += ", ";
    if (i == shown && tokens.size() > 2 * shown) {
      text += "…, ";
      i = tokens.size() - shown;
    }
    text += std::to_string(tokens[i]);
    if (tokens[i] < tokenizer.size()) text += fmt::format(" {}", in_quotes(tokenizer.spelled(tokens[i])));
  }
  return text;
}

}  // namespace

std::string data_report(const models::TextData& data, const TrainOptions& options,
                        const models::Tokenizer* tokenizer) {
  models::TextOrigin all{.files = 0};
  for (const models::TextOrigin& one : data.origins) {
    all.files += one.files;
    all.documents += one.documents;
    all.tokens += one.tokens;
  }
  const bool mixed = data.origins.size() > 1;
  const double taken = static_cast<double>(options.trainer.steps) * options.trainer.batch_size;
  const auto epochs = [taken](const models::TextOrigin& origin) {
    const std::string number = fmt::format("{:.3g}", taken * origin.share / static_cast<double>(origin.samples));
    return number + (number == "1" ? " epoch" : " epochs");
  };

  std::string report = fmt::format("data: {}; ", content_of(all));
  const std::string of_length = fmt::format("of {}", options.model.size(models::Size::sequence_length));
  if (options.data.eval_only) {
    report += fmt::format("{} {} to evaluate", counted(data.validation->samples(), "sample"), of_length);
  } else {
    report += fmt::format("{} {} per epoch, {} steps × {} samples{}", counted(data.training->samples(), "sample"),
                          of_length, grouped(options.trainer.steps), grouped(options.trainer.batch_size),
                          mixed ? ":" : " are " + epochs(data.origins.front()));
    if (mixed) {
      for (const models::TextOrigin& one : data.origins)
        report += fmt::format("\n  {:.3g}% of {}: {}; {}, {}", 100 * one.share, one.path, content_of(one),
                              counted(one.samples, "sample"), epochs(one));
    }
    if (data.validation)
      report += fmt::format("\nheld out for validation: {}", counted(data.validation->samples(), "sample"));
  }
  for (const models::TextOrigin& one : data.origins) {
    if (tokenizer != nullptr)
      report += fmt::format("\nfirst sample{}: {}", mixed ? " of " + one.path : "",
                            ends_of(one.first_sample, *tokenizer));
    if (!one.left_out.empty()) report += "\n" + with_flags(models::left_out_text(one.path, one.left_out));
    for (const std::string& remark : one.remarks) report += "\n" + with_flags(remark);
  }
  return report;
}

}  // namespace ranvier::apps

#include "apps/train/files/data_report.hpp"

#include "actors/watch/reporter.hpp"

namespace ranvier::apps {

namespace {

/// "1,204".
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

std::string counted(std::int64_t number, const char* what) {
  return fmt::format("{} {}{}", grouped(number), what, number == 1 ? "" : "s");
}

std::string content_of(const models::TextOrigin& origin) {
  std::string text = counted(origin.files, "file");
  if (origin.documents > 0) text += ", " + counted(origin.documents, "document");
  return text + fmt::format(", {} tokens", actors::format_count(static_cast<double>(origin.tokens)));
}

}  // namespace

std::string data_report(const models::TextData& data, const TrainOptions& options) {
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
    report += fmt::format("{} {} an epoch, {} steps × {} samples{}", counted(data.training->samples(), "sample"),
                          of_length, grouped(options.trainer.steps), grouped(options.trainer.batch_size),
                          mixed ? ":" : " are " + epochs(data.origins.front()));
    if (mixed) {
      for (const models::TextOrigin& one : data.origins)
        report += fmt::format("\n  {:.3g}% of {}: {}; {}, {}", 100 * one.share, one.path, content_of(one),
                              counted(one.samples, "sample"), epochs(one));
    }
    if (data.validation)
      report += fmt::format("\nkept for validation: {}", counted(data.validation->samples(), "sample"));
  }
  for (const models::TextOrigin& one : data.origins) {
    if (!one.left_out.empty()) report += fmt::format("\n{}", models::left_out_text(one.path, one.left_out));
    for (const std::string& remark : one.remarks) report += fmt::format("\n{}", remark);
  }
  return report;
}

}  // namespace ranvier::apps

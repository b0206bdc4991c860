#include "models/text/labelled_source.hpp"

#include "runtime/base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

namespace ranvier::models {
namespace {

std::optional<int> whole_number(std::string_view label) {
  int number = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), number);
  const bool is_number = error == std::errc{} && end == label.data() + label.size() && number >= 0;
  return is_number && label == std::to_string(number) ? std::optional(number) : std::nullopt;
}

/// "'bad' or 'good'", of many the first ones.
std::string listed(std::span<const std::string> labels) {
  constexpr std::size_t max_listed = 10;
  const auto some = labels.first(std::min(labels.size(), max_listed));
  return fmt::format("'{}'{}", fmt::join(some, "', '"), labels.size() > max_listed ? ", …" : "");
}

}  // namespace

std::string unnamed_label(int label) { return fmt::format("LABEL_{}", label); }

std::vector<std::string> labels_in(const std::filesystem::path& path, const TextReading& reading,
                                   std::size_t most) {
  std::set<std::string, std::less<>> labels;
  for (const DataFile& file : json_lines_at(path, reading).files) {
    DocumentReader reader(file, reading);
    for (auto pieces = reader.next(); !pieces.empty(); pieces = reader.next()) {
      for (const auto& piece : pieces)
        if (!labels.contains(piece.label)) labels.emplace(piece.label);
      if (labels.size() > most)
        fail(ErrorCode::data,
             "{}: field '{}' has more than {} different labels, for example '{}' and '{}'; name the label "
             "field with `label_field`",
             path.string(), reading.label_field, most, *labels.begin(), *labels.rbegin());
    }
  }
  int greatest = -1;
  for (const std::string& label : labels) {
    const auto number = whole_number(label);
    if (!number || static_cast<std::size_t>(*number) >= most) return {labels.begin(), labels.end()};
    greatest = std::max(greatest, *number);
  }
  std::vector<std::string> unnamed;
  for (int label = 0; label <= greatest; ++label) unnamed.push_back(unnamed_label(label));
  return unnamed;
}

std::optional<std::int32_t> class_of(std::string_view label, std::span<const std::string> labels) {
  const auto named = std::find(labels.begin(), labels.end(), label);
  if (named != labels.end()) return static_cast<std::int32_t>(named - labels.begin());
  const auto number = whole_number(label);
  return number && static_cast<std::size_t>(*number) < labels.size() ? std::optional<std::int32_t>(*number)
                                                                     : std::nullopt;
}

LabelledTexts::LabelledTexts(const std::filesystem::path& path, const TextReading& reading, const TextTokens& text,
                             LabelledTextOptions options)
    : TokenizedLines(path),
      options_(std::move(options)),
      capacity_(options_.around.capacity(options_.sequence_length)) {
  read_lines(reading, text, options_.vocab_size,
             [&](const DocumentReader::Text& document, std::span<const std::int32_t> tokens, std::size_t) {
               add(tokens, document.label);
             });
  if (texts_.empty()) fail(ErrorCode::data, "{}: no line has text; use files with text", path.string());
  report();
}

void LabelledTexts::add(std::span<const std::int32_t> tokens, std::string_view label) {
  const auto number = class_of(label, options_.labels);
  if (!number)
    fail(ErrorCode::data,
         "{}: label '{}' is not one of the model's {} classes, {}; correct the data, or remove "
         "`classes` and use other weights",
         path_.string(), label, options_.labels.size(), listed(options_.labels));
  const auto kept = static_cast<std::int32_t>(std::min<std::int64_t>(std::ssize(tokens), capacity_));
  if (kept < std::ssize(tokens)) ++cut_;
  texts_.push_back({std::ssize(tokens_), kept, *number});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.begin() + kept);
}

void LabelledTexts::report() {
  std::vector<std::int64_t> counts(options_.labels.size());
  std::int64_t all_filled = 0;
  for (std::int64_t n = 0; n < samples(); ++n) {
    ++counts[static_cast<std::size_t>(label(n))];
    all_filled += filled(n);
  }
  constexpr std::size_t max_counted = 8;
  std::vector<std::string> counted;
  for (std::size_t k = 0; k < std::min(counts.size(), max_counted); ++k)
    counted.push_back(fmt::format("{} {}", options_.labels[k], counts[k]));
  remarks_.push_back(fmt::format("{}: texts of {} classes: {}{}", path_.string(), counts.size(),
                                 fmt::join(counted, ", "), counts.size() > max_counted ? ", …" : ""));
  const double positions = static_cast<double>(samples()) * options_.sequence_length;
  remarks_.push_back(fmt::format("{}: {:.1f}% of all positions are padding{}", path_.string(),
                                 100 * (1 - static_cast<double>(all_filled) / positions),
                                 cut_ > 0 ? fmt::format("; truncated at `sequence_length` {}: {} of {} texts",
                                                        options_.sequence_length, cut_, samples())
                                          : ""));
}

void LabelledTexts::read(std::int64_t sample, std::int32_t* to) const {
  const Text& one = text(sample);
  std::int32_t* const end = to + options_.sequence_length;
  if (options_.around.begin) *to++ = *options_.around.begin;
  to = std::copy_n(tokens_.data() + one.first, one.tokens, to);
  if (options_.around.end) *to++ = *options_.around.end;
  std::fill(to, end, options_.around.padding);
}

}  // namespace ranvier::models

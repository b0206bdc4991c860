#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/core/name_pattern.hpp"

#include "runtime/base/error.hpp"

#include <pcre2.h>

#include <array>
#include <cstdint>

namespace ranvier::models {
namespace {

constexpr std::uint32_t max_trials = 100'000;  // per name; bounds backtracking

}  // namespace

struct NamePattern::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;

  ~Compiled() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
};

NamePattern::NamePattern(const std::string& expression, const std::string& flag)
    : given_(fmt::format("{} {}", flag, expression)) {
  const auto compiled = std::make_shared<Compiled>();
  int error = 0;
  PCRE2_SIZE at = 0;
  compiled->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), 0, &error, &at, nullptr);
  if (compiled->code == nullptr)
    fail(ErrorCode::usage, "{} is not a regular expression: {} at character {}", given_, pattern_error(error),
         at + 1);
  compiled->limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(compiled->limits, max_trials);
  compiled_ = compiled;
}

bool NamePattern::matches_in(std::string_view name) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const int groups = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                 match.get(), compiled_->limits);
  if (groups < 0 && groups != PCRE2_ERROR_NOMATCH)
    fail(ErrorCode::usage, "{}: {} when matching '{}'; use a simpler expression", given_, pattern_error(groups),
         name);
  return groups != PCRE2_ERROR_NOMATCH;
}

std::string pattern_error(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace ranvier::models

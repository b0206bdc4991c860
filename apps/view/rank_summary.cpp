#include "apps/view/rank_summary.hpp"

#include <algorithm>

namespace ranvier::apps {

void RankSummary::set_waits(std::string_view text) {
  constexpr std::string_view ellipsis = " …";
  waits.fill('\0');
  if (text.size() < waits.size()) {
    std::ranges::copy(text, waits.begin());
    return;
  }
  const std::size_t space = text.rfind(' ', waits.size() - 1 - ellipsis.size());
  const std::size_t kept = space == std::string_view::npos ? 0 : space;
  std::ranges::copy(ellipsis, std::ranges::copy(text.substr(0, kept), waits.begin()).out);
}

}  // namespace ranvier::apps

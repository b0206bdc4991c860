// Plots a metric for a terminal in braille characters of 2 × 4 dots. Pure functions, callable from any thread.
#pragma once

#include "apps/view/series.hpp"

#include <cstddef>
#include <string>

namespace ranvier::apps {

/// Plot over all steps: `columns` × `lines` characters and a scale on the left. Empty if the values cover fewer than 8
/// steps or are all equal.
[[nodiscard]] std::string text_plot(const Series& series, Metric metric, std::size_t columns = 72,
                                    std::size_t lines = 8);

}  // namespace ranvier::apps

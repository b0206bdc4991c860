// A curve for a terminal, in characters of 2 × 4 dots. Pure; any thread.
#pragma once

#include "apps/view/series.hpp"

#include <cstddef>
#include <string>

namespace ranvier::apps {

/// The figure over all steps, `columns` × `lines` characters and a scale at the left; empty: fewer than 8 steps have a
/// value, or all have the same.
[[nodiscard]] std::string text_plot(const Series& series, Metric metric, std::size_t columns = 72,
                                    std::size_t lines = 8);

}  // namespace ranvier::apps

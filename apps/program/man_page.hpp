// A program's manual page. Pure; any thread.
#pragma once

#include "apps/program/manual.hpp"

#include <string>

namespace ranvier::apps {

/// As man reads it: section 1, in the macros of man(7), ASCII.
[[nodiscard]] std::string man_page(const Manual& manual);

}  // namespace ranvier::apps

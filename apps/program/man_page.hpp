// Manual page of a program. Pure functions, callable from any thread.
#pragma once

#include "apps/program/manual.hpp"

#include <string>

namespace ranvier::apps {

/// Manual page for section 1, with the macros of man(7), in ASCII.
[[nodiscard]] std::string man_page(const Manual& manual);

}  // namespace ranvier::apps

// The precision of a training run without --precision: its checkpoint's if it resumes, otherwise its device's default
// (apps/program/default_precision.hpp). Decided before the other flags are resolved. Any thread.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/mpi_transport.hpp"

#include <vector>

namespace ranvier::apps {

/// All ranks call it, with the flags that each was given, and get the same: if their GPUs differ, a precision that all
/// have. A file that cannot be read changes nothing here: the code that needs it reports flag and remedy.
[[nodiscard]] ChosenPrecision choose_precision(runtime::MpiSession& session, const std::vector<GivenFlag>& given);

}  // namespace ranvier::apps

// Values of a training run's flags that are not given: its checkpoint's if it resumes, otherwise the default of its
// device (apps/program/default_precision.hpp). Decided before the other flags are resolved. Any thread.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/mpi_transport.hpp"

#include <vector>

namespace ranvier::apps {

/// Called by all ranks with their own flags; the result is the same on all. If GPUs differ, all support the precision.
/// An unreadable file is ignored: the code that needs it reports flag and remedy.
[[nodiscard]] RunDefaults run_defaults(runtime::MpiSession& session, const std::vector<GivenFlag>& given);

}  // namespace ranvier::apps

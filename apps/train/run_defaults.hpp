// Chooses values for flags that the user did not give: the checkpoint's on resume, otherwise the device's default
// (apps/program/device_flag.hpp). Called before the other flags are resolved. Callable from any thread.
#pragma once

#include "apps/options/train_options.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <vector>

namespace ranvier::apps {

/// Called by all ranks with their own flags; the result is the same on all. If GPUs differ, all support the precision.
/// An unreadable file is ignored: the code that needs it reports flag and remedy.
[[nodiscard]] RunDefaults run_defaults(runtime::MpiSession& session, const std::vector<GivenFlag>& given);

}  // namespace ranvier::apps

// Where programs look for machine profiles if --profile is not given; `ranvier-bench profile` writes them there. One
// file per host, kind of device and, for CPUs, threads per rank: `node1-cpu-2-threads.json`.
#pragma once

#include "runtime/host/cores.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace ranvier::apps {

inline constexpr const char* profile_variable = "RANVIER_PROFILE";
inline constexpr const char* no_profile = "none";  ///< value of --profile and of the variable for no profile

using runtime::host_name;

struct ProfileSearchPath {
  std::string named;             ///< RANVIER_PROFILE: preferred name or path; "none": no profile; empty: unset
  std::filesystem::path folder;  ///< ranvier/profiles in $XDG_DATA_HOME or ~/.local/share; empty: both unknown
  std::string host;
};

/// Search path of this process.
[[nodiscard]] ProfileSearchPath profile_search_path();

/// Required device of a profile.
struct ProfileSubject {
  bool gpu = false;
  int threads = 0;  ///< threads per CPU rank; 0: the newest profile
};

/// Path for a new profile. Throws ErrorCode::usage if no folder is known.
[[nodiscard]] std::filesystem::path profile_file(const ProfileSearchPath& places, const ProfileSubject& subject);

/// Name or path for read_machine_profile(): RANVIER_PROFILE, or this host's file for the subject. Reads no file.
[[nodiscard]] std::optional<std::string> find_profile(const ProfileSearchPath& places,
                                                      const ProfileSubject& subject);

}  // namespace ranvier::apps

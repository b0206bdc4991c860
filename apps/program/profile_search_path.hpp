// Where profiles of machines lie when no --profile names one: `ranvier-bench profile` leaves them there, other programs
// look there. One file for each host, kind of device and, of a CPU, threads of a rank: `node1-cpu-2-threads.json`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ranvier::apps {

inline constexpr const char* profile_variable = "RANVIER_PROFILE";
inline constexpr const char* no_profile = "none";  ///< what --profile and the variable say to have none

struct ProfileSearchPath {
  std::string named;  ///< by RANVIER_PROFILE: a name or path that goes first; "none": no profile; or empty
  std::filesystem::path folder;  ///< $XDG_DATA_HOME/ranvier/profiles, or of ~/.local/share; empty: neither is known
  std::string host;
};

/// Of this process.
[[nodiscard]] ProfileSearchPath profile_search_path();

/// What a profile has to be of.
struct ProfileSubject {
  bool gpu = false;
  int threads = 0;  ///< of a rank's CPU; 0: whatever was measured last
};

/// Where one that is measured belongs. Throws ErrorCode::usage where no folder is known.
[[nodiscard]] std::filesystem::path profile_file(const ProfileSearchPath& places, const ProfileSubject& subject);

/// A name or a path for read_machine_profile(): RANVIER_PROFILE's, or else a file of this host that is of the subject.
/// Reads no file.
[[nodiscard]] std::optional<std::string> find_profile(const ProfileSearchPath& places,
                                                      const ProfileSubject& subject);

}  // namespace ranvier::apps

#include "apps/program/profile_search_path.hpp"

#include "runtime/base/error.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <system_error>

namespace ranvier::apps {

namespace fs = std::filesystem;

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string cpu_prefix(const ProfileSearchPath& places) { return places.host + "-cpu-"; }

std::string file_name(const ProfileSearchPath& places, const ProfileSubject& subject) {
  if (subject.gpu) return places.host + "-cuda.json";
  return fmt::format("{}{}-thread{}.json", cpu_prefix(places), subject.threads, subject.threads == 1 ? "" : "s");
}

/// Newest profile of this host's CPU.
std::optional<std::string> newest(const ProfileSearchPath& places) {
  std::optional<std::string> found;
  fs::file_time_type latest;
  std::error_code error;
  for (fs::directory_iterator each(places.folder, error), end; !error && each != end; each.increment(error)) {
    const std::string name = each->path().filename().string();
    if (!name.starts_with(cpu_prefix(places)) || each->path().extension() != ".json") continue;
    std::error_code gone;
    const fs::file_time_type written = each->last_write_time(gone);
    if (gone || (found && written <= latest)) continue;
    found = each->path().string();
    latest = written;
  }
  return found;
}

}  // namespace

ProfileSearchPath profile_search_path() {
  ProfileSearchPath places{.named = variable(profile_variable), .folder = {}, .host = host_name()};
  // XDG base directory specification: ignore a relative path.
  if (const fs::path data = variable("XDG_DATA_HOME"); data.is_absolute()) {
    places.folder = data / "ranvier" / "profiles";
  } else if (const fs::path home = variable("HOME"); home.is_absolute()) {
    places.folder = home / ".local" / "share" / "ranvier" / "profiles";
  }
  return places;
}

fs::path profile_file(const ProfileSearchPath& places, const ProfileSubject& subject) {
  if (places.folder.empty())
    fail(ErrorCode::usage,
         "no folder for the profile: neither XDG_DATA_HOME nor HOME is an absolute path; use --write-profile FILE, "
         "or --write-profile - for stdout");
  return places.folder / file_name(places, subject);
}

std::optional<std::string> find_profile(const ProfileSearchPath& places, const ProfileSubject& subject) {
  if (places.named == no_profile) return {};
  if (!places.named.empty()) return places.named;
  if (places.folder.empty()) return {};
  if (!subject.gpu && subject.threads == 0) return newest(places);
  const fs::path file = profile_file(places, subject);
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  return file.string();
}

}  // namespace ranvier::apps

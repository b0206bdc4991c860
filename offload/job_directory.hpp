// Folder for one rank of one job, on a shared disk. A lock on a file in it lasts as long as the process. So the next
// job can detect folders of dead jobs, and removes them if user and host are the same.
//
//   PARENT/ranvier-offload.HOST.rank3.k2Jx9a/lock, /states
//
// Any thread.
#pragma once

#include "runtime/files/file_descriptor.hpp"

#include <filesystem>
#include <string>

namespace ranvier::offload {

class JobDirectory {
 public:
  /// The only file it may contain besides the lock.
  static constexpr const char* file_name = "states";

  /// Clears leftovers in `parent`, then creates a folder there. Throws ErrorCode::io on failure.
  JobDirectory(const std::filesystem::path& parent, int rank);
  /// Removes the folder with its file.
  ~JobDirectory();
  JobDirectory(const JobDirectory&) = delete;
  JobDirectory& operator=(const JobDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path file() const { return path_ / file_name; }

  /// Number of removed folders of dead jobs.
  [[nodiscard]] int cleared() const noexcept { return cleared_; }

 private:
  std::filesystem::path path_;
  runtime::FileDescriptor lock_;
  int cleared_ = 0;
};

}  // namespace ranvier::offload

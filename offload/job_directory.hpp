// A folder of its own for one rank of one job, on a disk that others use too. A lock on a file in it lasts as long
// as the process, however that ends; so the next job tells the folders that dead jobs left behind from those in
// use, and removes the former, of the same user on the same host only.
//
//   PARENT/ranvier-offload.HOST.rank3.k2Jx9a/lock, /states
//
// Any thread.
#pragma once

#include <filesystem>

namespace ranvier::offload {

class JobDirectory {
 public:
  /// The one file that may be kept in it, besides the lock.
  static constexpr const char* file_name = "states";

  /// Clears leftovers in `parent`, then makes a folder there. Throws ErrorCode::io when that cannot be done.
  JobDirectory(const std::filesystem::path& parent, int rank);
  /// Removes the folder with its file.
  ~JobDirectory();
  JobDirectory(const JobDirectory&) = delete;
  JobDirectory& operator=(const JobDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path file() const { return path_ / file_name; }

  /// Folders of dead jobs that were removed.
  [[nodiscard]] int cleared() const noexcept { return cleared_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
  int cleared_ = 0;
};

}  // namespace ranvier::offload

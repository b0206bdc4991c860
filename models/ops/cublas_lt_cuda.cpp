#include "models/ops/cublas_lt_cuda.hpp"

#include "runtime/base/error.hpp"

#include <dlfcn.h>

#include <string>

namespace ranvier::models::cuda {
namespace {

void* open_library() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* found = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (found == nullptr) found = dlopen(RANVIER_CUBLAS_LT, RTLD_NOW | RTLD_LOCAL);
  if (found == nullptr) {
    fail(ErrorCode::device,
         "neither {} nor {} can be opened: {}; install cuBLAS {} or put its folder into LD_LIBRARY_PATH", name,
         RANVIER_CUBLAS_LT, dlerror(), CUBLAS_VER_MAJOR);
  }
  return found;
}

}  // namespace

void* find_cublas_lt(const char* name) {
  static void* const library = open_library();
  void* const found = dlsym(library, name);
  if (found == nullptr)
    fail(ErrorCode::device, "cuBLASLt has no function {}: {}; install the cuBLAS version of this build", name,
         dlerror());
  return found;
}

const CublasLt& cublas_lt() {
  static const CublasLt functions;
  return functions;
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::memory : ErrorCode::device, "{} failed: {} (status {})",
       call, cublas_lt().cublasLtGetStatusString(status), static_cast<int>(status));
}

}  // namespace ranvier::models::cuda

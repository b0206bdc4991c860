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

template <typename Function>
void find(Function& function, void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr)
    fail(ErrorCode::device, "cuBLASLt has no function {}: {}; install the cuBLAS version of this build", name,
         dlerror());
  function = reinterpret_cast<Function>(found);
}

CublasLt open() {
  void* const library = open_library();
  CublasLt all{};
  find(all.matmul_preference_create, library, "cublasLtMatmulPreferenceCreate");
  find(all.matmul_preference_destroy, library, "cublasLtMatmulPreferenceDestroy");
  find(all.matmul_preference_set_attribute, library, "cublasLtMatmulPreferenceSetAttribute");
  find(all.matmul_algo_get_heuristic, library, "cublasLtMatmulAlgoGetHeuristic");
  find(all.matmul_desc_create, library, "cublasLtMatmulDescCreate");
  find(all.matmul_desc_destroy, library, "cublasLtMatmulDescDestroy");
  find(all.matmul_desc_set_attribute, library, "cublasLtMatmulDescSetAttribute");
  find(all.matrix_layout_create, library, "cublasLtMatrixLayoutCreate");
  find(all.matrix_layout_destroy, library, "cublasLtMatrixLayoutDestroy");
  find(all.get_status_string, library, "cublasLtGetStatusString");
  find(all.create, library, "cublasLtCreate");
  find(all.matmul, library, "cublasLtMatmul");
  find(all.matmul_algo_check, library, "cublasLtMatmulAlgoCheck");
  find(all.get_version, library, "cublasLtGetVersion");
  return all;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt functions = open();
  return functions;
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::memory : ErrorCode::device, "{} failed: {} (status {})",
       call, cublas_lt().get_status_string(status), static_cast<int>(status));
}

}  // namespace ranvier::models::cuda

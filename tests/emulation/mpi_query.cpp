// MPI's query of GPU support. The emulated GPU's memory is host memory, so every MPI can access it, and the query
// returns true; with RANVIER_EMULATED_MPI=host it behaves like an MPI without CUDA. The linker prefers this to Open
// MPI's function.
#include <cstdlib>
#include <string_view>

extern "C" int MPIX_Query_cuda_support() {
  const char* kind = std::getenv("RANVIER_EMULATED_MPI");
  return kind != nullptr && std::string_view(kind) == "host" ? 0 : 1;
}

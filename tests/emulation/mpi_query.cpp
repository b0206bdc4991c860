// What MPI says of GPUs. The emulated one's memory is the host's, so every MPI reaches it and says so here; with
// RANVIER_EMULATED_MPI=host it is one that was built without CUDA. The linker takes this before Open MPI's own.
#include <cstdlib>
#include <string_view>

extern "C" int MPIX_Query_cuda_support() {
  const char* kind = std::getenv("RANVIER_EMULATED_MPI");
  return kind != nullptr && std::string_view(kind) == "host" ? 0 : 1;
}

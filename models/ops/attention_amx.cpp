#include "models/ops/attention_amx.hpp"

#if defined(__AMX_BF16__) && defined(__AVX512BF16__)

#include <sys/syscall.h>
#include <unistd.h>

namespace ranvier::models::tile {

bool amx_available() {
  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), of Linux' Documentation/arch/x86/xstate.rst
  static const bool available = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return available;
}

}  // namespace ranvier::models::tile
#endif

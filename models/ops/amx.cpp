#include "models/ops/amx.hpp"

#if RANVIER_AMX

#include <sys/syscall.h>
#include <unistd.h>

namespace ranvier::models::amx {

bool available() {
  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA); see Linux' Documentation/arch/x86/xstate.rst
  static const bool allowed = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return allowed;
}

}  // namespace ranvier::models::amx
#endif

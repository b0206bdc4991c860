// Linked into a test program whose cases have one thread (ONE_THREAD in its CMakeLists.txt), and which is therefore
// skipped by ThreadSanitizer: the first case that starts another thread ends the program.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
  std::fputs(
      "This program's tests are to have one thread, or ThreadSanitizer has to watch them: name the test's file in "
      "a "
      "ranvier_tests() without ONE_THREAD.\n",
      stderr);
  std::abort();
}

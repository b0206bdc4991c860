// Default options of sanitized programs, so that no environment variable is needed. Suppressions cover only Open MPI,
// which leaks at exit. ThreadSanitizer ignores libraries that were built without it, because it cannot see their locks.
// The sanitizers call these functions before any constructor, so they are plain functions that access no data.

extern "C" {

// No copies of stack frames on the heap: GCC 12 aligns them to less than the 64 bytes that AVX-512 registers need, so
// the first spilled one faults. The slow unwinder, because Open MPI keeps no frame pointers and its leaks are
// recognized by their callers. Undefined behavior is a trap (SIGILL): its stack is printed, regardless of other
// handlers of that signal.
const char* __asan_default_options() {
  return "detect_stack_use_after_return=0:strict_string_checks=1:fast_unwind_on_malloc=0:handle_sigill=2";
}
const char* __lsan_default_options() { return "print_suppressions=0"; }
const char* __lsan_default_suppressions() {
  return "leak:libmpi.so\n"
         "leak:libopen-pal.so\n"
         "leak:libpmix.so\n"
         "leak:mca_\n";
}

const char* __tsan_default_options() {
  return "halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_modules=1";
}

// Libraries stay loaded; otherwise a leak in an unloaded one has no name that a suppression could match.
int dlclose(void*) { return 0; }

}  // extern "C"

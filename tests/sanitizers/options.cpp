// What sanitized programs run with by default, so that nobody has to remember an environment variable.
// Suppressions name Open MPI alone, which leaks at exit. ThreadSanitizer leaves libraries out that were built
// without it, whose locks it cannot see.
// The sanitizers call these before any constructor, hence plain functions that touch nothing.

extern "C" {

// No copies of stack frames on the heap: GCC 12 aligns them to less than the 64 bytes that registers of AVX-512
// need, and the first spilled one faults. The slow unwinder, because Open MPI keeps no frame pointers and its
// leaks must be told by their callers. Undefined behaviour is a trap (SIGILL): its stack is printed, whoever else
// handles that signal.
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

// Libraries stay loaded, or a leak in one that was unloaded meanwhile has no name that a suppression could match.
int dlclose(void*) { return 0; }

}  // extern "C"

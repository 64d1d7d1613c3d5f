// libzmq synchronizes its threads with atomics that ThreadSanitizer cannot see, since Debian's
// build is not instrumented; what it reports from inside that library are not races of ours.

#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so\nrace:libzmq.so\n";
}
#endif

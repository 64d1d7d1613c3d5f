#pragma once
// Databases are read through a mapping of their file. A page that cannot be read (the file was
// truncated, the disk failed) raises SIGBUS, which would end the process. In a thread that has
// turned this on, such a page reads as zeros instead, and the reader checks afterwards whether that
// has happened: then nothing that was read since is valid.

namespace hearth {

class BusGuard {
 public:
  /// For the calling thread, until it ends. The first call installs the handler; any other SIGBUS
  /// is passed to the previous handler.
  static void turn_on();
  /// Whether it happened in the calling thread since it was last cleared.
  static bool tripped();
  static void clear();
};

}  // namespace hearth

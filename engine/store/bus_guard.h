#pragma once
// Databases are read through a mapping of their file. A page of it that cannot be read (somebody
// cut the file, the disk failed) raises SIGBUS, which would end the process. In a thread that has
// turned this on, such a page reads as zeros instead, and whoever reads asks afterwards whether
// that has happened: then nothing that was read since can be believed.

namespace hearth::engine {

class BusGuard {
 public:
  /// For the calling thread, until it ends. The first call installs the handler; a SIGBUS of any
  /// other kind or thread goes to what was there before.
  static void turn_on();
  /// In the calling thread, since it was last cleared.
  static bool tripped();
  static void clear();
};

}  // namespace hearth::engine

#pragma once
// A program on its own terminal (pty): the test types keys and reads the screen.

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace hearth::e2e {

class Terminal {
 public:
  /// `environment` is added to the test's own.
  Terminal(const std::vector<std::string>& argv,
           const std::map<std::string, std::string>& environment);
  ~Terminal();  // kills it if it still runs
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys);
  /// Reads until `text` appears after the text of the previous wait; false if it does not come.
  bool wait_for(const std::string& text);
  /// Its wait status; fails the test if it does not end.
  int wait_for_exit();
  pid_t pid() const { return pid_; }
  /// Everything it wrote.
  const std::string& seen() const { return seen_; }

 private:
  bool read_some();

  pid_t pid_ = -1;
  int fd_ = -1;
  std::string seen_;
  size_t waited_ = 0;
};

}  // namespace hearth::e2e

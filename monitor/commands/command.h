#pragma once
// Commands of the user, and their results. Panels create commands; the owner of the sockets
// (monitor/commands/actions.h) executes them.

#include <string>

namespace hearth::monitor {

struct Command {
  enum class Kind {
    kCancel,        ///< `target`: a request's id
    kLoad,          ///< a model's name
    kUnload,        ///< a model's name
    kSwap,          ///< a model's name; `role` is pointed at it
    kPlan,          ///< a model's name
    kListCache,     ///< nothing: everything on disk
    kRemovePrefix,  ///< a prefix's name
    kPinPrefix,     ///< a prefix's name
    kUnpinPrefix,   ///< a prefix's name
  };
  Kind kind = Kind::kCancel;
  std::string target;
  std::string role;
};

struct Answer {
  Command command;
  bool ok = false;
  std::string text;  ///< text to show; for kPlan and kListCache, the program's output
};

/// A description for people, e.g. "cancel story-1".
std::string in_words(const Command& command);

}  // namespace hearth::monitor

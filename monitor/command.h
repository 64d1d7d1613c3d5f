#pragma once
// What the user wants done, and what came of it. Panels make commands; who owns the sockets
// (monitor/actions.h) carries them out.

#include <string>

namespace hearth::monitor {

struct Command {
  enum class Kind {
    kCancel,        ///< `target`: a request's id
    kLoad,          ///< a model's name
    kUnload,        ///< a model's name
    kSwap,          ///< a model's name; `role` is pointed at it
    kPlan,          ///< a model's name
    kListCache,     ///< nothing: all that is on disk
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
  std::string text;  ///< what to show; of kPlan and kListCache the program's output
};

/// "cancel story-1", for people.
std::string in_words(const Command& command);

}  // namespace hearth::monitor

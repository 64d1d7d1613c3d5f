#pragma once
// Values of the template language, which behave as in Python. A value is small and cheap to copy;
// the objects it refers to belong to the `Arena` of one rendering and are destroyed with it, so
// cycles are allowed. Strings are UTF-8 views: slicing and stripping do not copy, and keep the
// origin of a text, which is that of its bytes (text_store.h).

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/base/numbers.h"
#include "models/template/text_store.h"

namespace hearth::models::jinja {

struct List;
class Dict;
struct Callable;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,  ///< 64 bits; overflow is an error
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,  ///< namespace(): the only kind whose attributes can be assigned
  kCallable,
};

class Value {
 public:
  Value() = default;  ///< undefined
  /// `name`: the name that was not found; it outlives the value.
  static Value undefined(std::string_view name) {
    Value v;
    v.text_ = name;
    return v;
  }
  static Value none() { return Value(Kind::kNone); }
  static Value of(bool value) {
    Value v(Kind::kBool);
    v.int_ = value ? 1 : 0;
    return v;
  }
  static Value of(int64_t value) {
    Value v(Kind::kInt);
    v.int_ = value;
    return v;
  }
  static Value of(size_t value) { return of(static_cast<int64_t>(value)); }
  static Value of(double value) {
    Value v(Kind::kFloat);
    v.float_ = value;
    return v;
  }
  /// `markup`: already escaped for HTML (Markup in Python).
  static Value of(std::string_view value, bool markup = false) {
    Value v(Kind::kString);
    v.text_ = value;
    v.markup_ = markup;
    return v;
  }
  static Value of(const char*) = delete;  // would become a bool
  static Value of(List* list, Kind kind = Kind::kList) {
    Value v(kind);
    v.list_ = list;
    return v;
  }
  static Value of(Dict* dict, Kind kind = Kind::kDict) {
    Value v(kind);
    v.dict_ = dict;
    return v;
  }
  static Value of(Callable* callable) {
    Value v(Kind::kCallable);
    v.callable_ = callable;
    return v;
  }

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_int() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_int() || kind_ == Kind::kFloat; }
  bool is_markup() const { return markup_; }

  // Each requires a value of its kind.
  int64_t as_int() const { return int_; }  ///< or of a bool
  double as_float() const { return kind_ == Kind::kFloat ? float_ : as_double(int_); }
  std::string_view text() const { return text_; }  ///< for an undefined value, its name
  List& list() const { return *list_; }
  Dict& dict() const { return *dict_; }  ///< or of a namespace
  Callable& callable() const { return *callable_; }
  const void* identity() const { return list_; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  bool markup_ = false;
  union {
    int64_t int_ = 0;
    double float_;
    List* list_;
    Dict* dict_;
    Callable* callable_;
  };
  std::string_view text_;
};

struct List {
  std::vector<Value> items;
};

/// A dictionary in order of insertion. Keys are usually strings or ints; keys are compared by kind
/// and value.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const { return find(Value::of(key)); }
  void set(const Value& key, const Value& value);
  void set(std::string_view key, const Value& value) { set(Value::of(key), value); }
  bool erase(const Value& key);
  /// Erases the entries for which `gone` is true.
  template <typename Gone>
  void erase_if(const Gone& gone) {
    if (std::erase_if(entries_, gone) > 0) make_index();
  }

 private:
  struct Key {
    Kind kind;
    int64_t number;
    std::string_view text;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<std::string_view>()(key.text) ^ std::hash<int64_t>()(key.number);
    }
  };
  static Key key_of(const Value& value);
  size_t locate(const Value& key) const;  ///< size() if absent
  void make_index();

  std::vector<Entry> entries_;
  std::unordered_map<Key, size_t, KeyHash> index_;  ///< filled only if there are many entries
};

struct Macro;
struct Scope;
class LoopState;

/// A callable value.
struct Callable {
  enum class Type {
    kFunction,  ///< by `name`: range, namespace, ...
    kMethod,    ///< `name` of `self`: "a".upper
    kMacro,
    kLoop,  ///< `loop`: has attributes such as length; a call runs the loop's body over other items
    kCycler,  ///< items in `state`
    kJoiner,
  };
  Type type = Type::kFunction;
  std::string_view name;
  Value self;
  const Macro* macro = nullptr;
  Scope* scope = nullptr;  ///< where the macro was defined
  LoopState* loop = nullptr;
  List* items = nullptr;  ///< of a cycler
  size_t position = 0;    ///< of a cycler; of a joiner: nonzero after the first call
};

/// Owns everything that the values of one rendering refer to.
class Arena {
 public:
  std::string_view keep(TracedText text) {
    bytes_ += text.text.size() + sizeof(std::string) + text.data.size() * sizeof(ByteSpan);
    return texts_.keep(std::move(text));
  }
  const TextStore& texts() const { return texts_; }
  List* new_list() {
    bytes_ += 2 * sizeof(List);
    return &lists_.emplace_back();
  }
  Dict* new_dict() {
    bytes_ += 2 * sizeof(Dict);
    return &dicts_.emplace_back();
  }
  Callable* new_callable(Callable callable) {
    bytes_ += sizeof(Callable);
    return &callables_.emplace_back(std::move(callable));
  }
  /// Adds the bytes that lists and dictionaries hold.
  void count(size_t bytes) { bytes_ += bytes; }
  size_t bytes() const { return bytes_; }

 private:
  TextStore texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Callable> callables_;
  size_t bytes_ = 0;
};

/// "str", "int", ...: the type names in Python's messages.
std::string_view type_name(const Value& value);

/// Whether the value is true in a condition.
bool truth(const Value& value);

/// repr() of a float: "1.0", "1e-05".
std::string float_text(double value);

}  // namespace hearth::models::jinja

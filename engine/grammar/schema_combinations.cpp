// $ref, allOf, anyOf, oneOf.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/grammar/schema_reader.h"
#include "models/template/json.h"
#include "models/template/text.h"

namespace hearth::engine {

Result<PiecePtr> SchemaReader::reference(const Dict& d, int depth) {
  for (const auto& [key, value] : d.entries()) {
    if (key.text() == "$ref" || among(kAnnotations, key.text())) continue;
    return unsupported(fmt::format("'{}' together with $ref", key.text()));
  }
  const Value* const ref = d.find("$ref");
  if (!ref->is_string()) return wrong("$ref: want a text");
  const std::string pointer(ref->text());
  const auto known = rule_numbers_.find(pointer);
  if (known != rule_numbers_.end()) return rule_piece(known->second);
  HEARTH_ASSIGN_OR_RETURN(const Value target, resolve(pointer));
  HEARTH_ASSIGN_OR_RETURN(const int32_t rule, rules_.add(nullptr, pointer));
  rule_numbers_.emplace(pointer, rule);
  HEARTH_ASSIGN_OR_RETURN(PiecePtr body, schema(target, depth + 1));
  rules_.set(rule, std::move(body));
  return rule_piece(rule);
}

Result<Value> SchemaReader::resolve(std::string_view pointer) {
  if (!pointer.starts_with("#/") && pointer != "#") {
    return unsupported(fmt::format("$ref '{}' to outside", pointer.substr(0, 60)));
  }
  Value at = root_;
  std::string_view rest = pointer.substr(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    std::string part(rest.substr(0, end));
    rest.remove_prefix(end);
    for (const auto& [from, to] : {std::pair("~1", "/"), std::pair("~0", "~")}) {
      for (size_t i = 0; (i = part.find(from, i)) != std::string::npos; ++i) {
        part.replace(i, 2, to);
      }
    }
    const Value* next = at.is_dict() ? at.dict().find(part) : nullptr;
    if (next == nullptr) {
      return wrong(fmt::format("$ref '{}': nothing there", pointer.substr(0, 60)));
    }
    at = *next;
  }
  return at;
}

Result<Value> SchemaReader::target_of(const Value& s) {
  Value at = s;
  for (int i = 0; at.is_dict() && at.dict().find("$ref") != nullptr; ++i) {
    const Value* const ref = at.dict().find("$ref");
    if (i > kMaxSchemaDepth || !ref->is_string() || at.dict().size() > 1) {
      return unsupported("this $ref inside allOf or anyOf");
    }
    HEARTH_ASSIGN_OR_RETURN(at, resolve(ref->text()));
  }
  if (!at.is_dict()) return unsupported("a schema that is not an object inside allOf or anyOf");
  return at;
}

Result<void> SchemaReader::merge(Dict& to, const Dict& from, std::string_view where) {
  for (const auto& [key, value] : from.entries()) {
    const std::string_view word = key.text();
    if (among(kAnnotations, word)) continue;
    const Value* const there = to.find(word);
    if (there == nullptr) {
      to.set(word, value);
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const bool alike, same(*there, value));
    if (alike) continue;
    const bool maps = word == "properties" && there->is_dict() && value.is_dict();
    const bool lists =
        word == "required" && there->kind() == Kind::kList && value.kind() == Kind::kList;
    if (maps) {
      Dict* const both = run_.arena().new_dict();
      for (const auto& [name, each] : there->dict().entries()) both->set(name, each);
      for (const auto& [name, each] : value.dict().entries()) {
        if (const Value* twice = both->find(name)) {
          HEARTH_ASSIGN_OR_RETURN(const bool equal, same(*twice, each));
          if (!equal) return unsupported(fmt::format("{}: one property twice", where));
        }
        both->set(name, each);
      }
      to.set(word, Value::of(both));
    } else if (lists) {
      std::vector<Value> both = there->list().items;
      both.insert(both.end(), value.list().items.begin(), value.list().items.end());
      HEARTH_ASSIGN_OR_RETURN(const Value merged, run_.list(std::move(both)));
      to.set(word, merged);
    } else {
      return unsupported(fmt::format("{}: '{}' given twice", where, word.substr(0, 60)));
    }
  }
  return {};
}

Result<Value> SchemaReader::without(const Dict& d, std::string_view word) {
  Dict* const out = run_.arena().new_dict();
  for (const auto& [key, value] : d.entries()) {
    if (key.text() != word) out->set(key, value);
  }
  return Value::of(out);
}

Result<Value> SchemaReader::all_of(const Dict& d) {
  const Value* const parts = d.find("allOf");
  if (parts->kind() != Kind::kList || parts->list().items.empty()) {
    return wrong("allOf: want a list of schemas");
  }
  HEARTH_ASSIGN_OR_RETURN(const Value base, without(d, "allOf"));
  const auto has_properties = [](const Dict& part) {
    return part.find("properties") != nullptr || part.find("patternProperties") != nullptr;
  };
  int with_properties = has_properties(base.dict()) ? 1 : 0;
  for (const Value& part : parts->list().items) {
    HEARTH_ASSIGN_OR_RETURN(const Value target, target_of(part));
    HEARTH_TRY(check_words(target.dict()));
    with_properties += has_properties(target.dict()) ? 1 : 0;
    HEARTH_TRY(merge(base.dict(), target.dict(), "allOf"));
  }
  // additionalProperties would cover only the properties of its own schema.
  if (with_properties > 1 && base.dict().find("additionalProperties") != nullptr) {
    return unsupported("additionalProperties inside allOf of several properties");
  }
  return base;
}

Result<PiecePtr> SchemaReader::any_of(const Dict& d, const Value& parts, std::string_view word,
                                      int depth) {
  if (parts.kind() != Kind::kList || parts.list().items.empty()) {
    return wrong(fmt::format("{}: want a list of schemas", word));
  }
  HEARTH_ASSIGN_OR_RETURN(const Value base, without(d, word));
  bool alone = true;
  for (const auto& [key, value] : base.dict().entries()) {
    alone = alone && among(kAnnotations, key.text());
  }
  std::vector<PiecePtr> out;
  for (const Value& part : parts.list().items) {
    Value branch = part;
    if (!alone) {
      HEARTH_ASSIGN_OR_RETURN(const Value target, target_of(part));
      HEARTH_ASSIGN_OR_RETURN(branch, without(base.dict(), ""));
      HEARTH_TRY(check_words(target.dict()));
      if (base.dict().find("properties") != nullptr &&
          target.dict().find("additionalProperties") != nullptr) {
        return unsupported("additionalProperties inside anyOf together with properties");
      }
      HEARTH_TRY(merge(branch.dict(), target.dict(), word));
    }
    HEARTH_ASSIGN_OR_RETURN(PiecePtr one, schema(branch, depth + 1));
    out.push_back(std::move(one));
  }
  return any_piece(std::move(out));
}

Result<void> SchemaReader::check_disjoint(const Value& parts) {
  if (parts.kind() != Kind::kList) return wrong("oneOf: want a list of schemas");
  std::vector<Dict*> branches;
  for (const Value& part : parts.list().items) {
    HEARTH_ASSIGN_OR_RETURN(const Value target, target_of(part));
    branches.push_back(&target.dict());
  }
  for (size_t a = 0; a < branches.size(); ++a) {
    for (size_t b = a + 1; b < branches.size(); ++b) {
      HEARTH_TRY(run_.charge());
      HEARTH_ASSIGN_OR_RETURN(const bool apart, disjoint(*branches[a], *branches[b]));
      if (!apart) return leave_out("oneOf of branches that one value may both be of");
    }
  }
  return {};
}

Result<bool> SchemaReader::disjoint(const Dict& a, const Dict& b) {
  for (const Dict* each : {&a, &b}) {
    const Value* const nullable = each->find("nullable");
    if (nullable != nullptr) return false;
  }
  const Value *type_a = a.find("type"), *type_b = b.find("type");
  if (type_a != nullptr && type_b != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const auto of_a, types_of(a));
    HEARTH_ASSIGN_OR_RETURN(const auto of_b, types_of(b));
    const auto numeric = [](std::string_view t) { return t == "integer" ? "number" : t; };
    bool common = false;
    for (const auto x : of_a) {
      for (const auto y : of_b) common = common || numeric(x) == numeric(y);
    }
    if (!common) return true;
  }
  const auto values = [](const Dict& d) {
    std::vector<Value> out;
    if (const Value* one = d.find("const")) out.push_back(*one);
    const Value* const list = d.find("enum");
    if (list != nullptr && list->kind() == Kind::kList) out = list->list().items;
    return out;
  };
  const std::vector<Value> of_a = values(a), of_b = values(b);
  const auto none_is_of = [](const std::vector<Value>& constants,
                             const Dict& other) -> Result<bool> {
    if (constants.empty() || other.find("type") == nullptr) return false;
    HEARTH_ASSIGN_OR_RETURN(const auto types, types_of(other));
    for (const Value& each : constants) {
      for (const auto type : types) {
        if (is_of(each, type == "integer" ? "number" : type)) return false;
      }
    }
    return true;
  };
  for (const auto& [constants, other] : {std::pair(&of_a, &b), std::pair(&of_b, &a)}) {
    HEARTH_ASSIGN_OR_RETURN(const bool apart, none_is_of(*constants, *other));
    if (apart) return true;
  }
  if (!of_a.empty() && !of_b.empty()) {
    for (const Value& x : of_a) {
      for (const Value& y : of_b) {
        HEARTH_ASSIGN_OR_RETURN(const bool equal, same(x, y));
        if (equal) return false;
      }
    }
    return true;
  }
  // Objects that require the same property with different constants.
  const Value *props_a = a.find("properties"), *props_b = b.find("properties");
  if (props_a == nullptr || props_b == nullptr || !props_a->is_dict() || !props_b->is_dict()) {
    return false;
  }
  for (const auto& [name, x] : props_a->dict().entries()) {
    const Value* const y = props_b->dict().find(name);
    if (y == nullptr || !x.is_dict() || !y->is_dict()) continue;
    if (!requires_property(a, name) || !requires_property(b, name)) continue;
    const std::vector<Value> vx = values(x.dict()), vy = values(y->dict());
    if (vx.empty() || vy.empty()) continue;
    bool common = false;
    for (const Value& p : vx) {
      for (const Value& q : vy) {
        HEARTH_ASSIGN_OR_RETURN(const bool equal, same(p, q));
        common = common || equal;
      }
    }
    if (!common) return true;
  }
  return false;
}

bool SchemaReader::requires_property(const Dict& d, const Value& name) {
  const Value* const required = d.find("required");
  if (required == nullptr || required->kind() != Kind::kList) return false;
  return std::ranges::any_of(required->list().items, [&name](const Value& each) {
    return each.is_string() && each.text() == name.text();
  });
}

}  // namespace hearth::engine

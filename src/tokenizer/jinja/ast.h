// A parsed template. Plain trees; kinds say which fields they use.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace medley::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// The arguments of a call, a filter or a test.
struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *args, **kwargs; may be null
};

struct Expr {
  enum class Kind {
    constant,   // constant
    name,       // text
    list,       // parts
    tuple,      // parts
    dict,       // parts: key, value, key, value, ...
    attribute,  // parts[0] . text
    item,       // parts[0] [ parts[1] ]
    slice,      // parts[0] [ parts[1] : parts[2] : parts[3] ], null where left out
    call,       // parts[0] ( args )
    filter,     // parts[0] | text(args); parts[0] is null in a filter block
    test,       // parts[0] is text(args)
    unary,      // text: - + not
    binary,     // text: + - * / // % **
    concat,     // parts joined with ~
    compare,    // parts[0] ops[0] parts[1] ops[1] parts[2] ...
    logic,      // text: and or
    condition,  // parts[0] if parts[1] else parts[2], which may be null
  };
  Kind kind;
  int line = 0;
  int depth = 1;  // of the tree below: bounded, so that following it needs a bounded stack
  std::string text;
  Value constant;
  std::vector<ExprPtr> parts;
  std::vector<std::string> ops;
  CallArgs args;
};

struct Node;
using Body = std::vector<std::unique_ptr<Node>>;

// What for, set and with assign to.
struct Target {
  enum class Kind { name, attribute, tuple };
  Kind kind = Kind::name;
  std::string name, attribute;  // attribute: name.attribute of a namespace
  std::vector<Target> parts;    // tuple
};

struct MacroSignature {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // for the last parameters
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Node {
  enum class Kind {
    text,        // text
    output,      // expr
    condition,   // branches: (test, body) in turn; a null test is else
    loop,        // for target in expr [if test]: body, else_body
    set,         // target = expr
    set_block,   // target = body, through expr (a filter) if not null
    macro,       // signature, body
    call_block,  // signature of the caller, expr (a call), body
    filter,      // body through expr
    with,        // targets = exprs, body
    scope,       // body with a scope of its own (generation blocks)
    break_loop,
    continue_loop,
  };
  Kind kind;
  int line = 0;
  std::string text;
  ExprPtr expr, test;
  Target target;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body body, else_body;
  MacroSignature signature;
  bool recursive = false;  // loop
};

}  // namespace medley::jinja

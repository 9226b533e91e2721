// exceptions.cpp: one personality routine for Objective-C++, so that exceptions of both languages meet in a
// .mm file.
//
//   Why       clang's -fobjc-runtime=gcc gives every landing pad of a .mm __gnu_objc_personality_v0;
//             libobjc's takes the std::type_info of a C++ catch clause for the name of a class. This one is
//             found before libobjc's.
//   What      A frame without an Objective-C clause is left to C++'s personality. Otherwise C++ exceptions
//             are matched as C++ does, Objective-C ones by superclass.
//   Limit     `@catch (id e)` may not use e: name a type.
#include <unwind.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <typeinfo>

#include "exception_tables.h"

using heddle::foundation::Action;
using heddle::foundation::ExceptionTables;

extern "C" {
struct objc_object;
struct objc_class;
objc_class* objc_lookUpClass(const char*);
objc_class* class_getSuperclass(objc_class*);
_Unwind_Reason_Code __gxx_personality_v0(int, _Unwind_Action, _Unwind_Exception_Class, _Unwind_Exception*,
                                         _Unwind_Context*);
// The vtables of libstdc++'s kinds of std::type_info.
extern char _ZTVN10__cxxabiv117__class_type_infoE[], _ZTVN10__cxxabiv120__si_class_type_infoE[],
    _ZTVN10__cxxabiv121__vmi_class_type_infoE[], _ZTVN10__cxxabiv119__pointer_type_infoE[],
    _ZTVN10__cxxabiv123__fundamental_type_infoE[], _ZTVN10__cxxabiv116__enum_type_infoE[],
    _ZTVN10__cxxabiv120__function_type_infoE[], _ZTVN10__cxxabiv117__array_type_infoE[],
    _ZTVN10__cxxabiv129__pointer_to_member_type_infoE[];
}

namespace {

constexpr uint64_t kObjectiveC = 0x474e55434f424a43;  // "GNUCOBJC"
constexpr uint64_t kCpp = 0x474e5543432b2b00;  // "GNUCC++\0"; the last byte is 1 for a dependent exception

struct ObjcException {
  _Unwind_Exception unwind;
  objc_object* value;  // right behind, as libobjc has it
  uintptr_t landing_pad;
  int filter;
};

// libstdc++'s record before every thrown C++ object.
struct CppException {
  std::type_info* type;
  void (*destroy)(void*);
  void (*unexpected)();
  void (*terminate)();
  CppException* next;
  int handlers;
  int filter;
  const uint8_t* action;
  const uint8_t* tables;
  uintptr_t landing_pad;
  void* adjusted;
  _Unwind_Exception unwind;
};

CppException* cpp_record(_Unwind_Exception* unwind) {
  return reinterpret_cast<CppException*>(reinterpret_cast<char*>(unwind) - offsetof(CppException, unwind));
}

// What the last landing pad on this thread was entered with. The end of an @finally throws "it" again.
thread_local _Unwind_Exception* entered_with;

// Types of a clause are either std::type_infos, which begin with one of these vtables, or names of classes.
bool is_type_info(uintptr_t type) {
  char* vtable = nullptr;
  memcpy(&vtable, reinterpret_cast<const void*>(type), sizeof vtable);
  for (char* known : {_ZTVN10__cxxabiv117__class_type_infoE, _ZTVN10__cxxabiv120__si_class_type_infoE,
                      _ZTVN10__cxxabiv121__vmi_class_type_infoE, _ZTVN10__cxxabiv119__pointer_type_infoE,
                      _ZTVN10__cxxabiv123__fundamental_type_infoE, _ZTVN10__cxxabiv116__enum_type_infoE,
                      _ZTVN10__cxxabiv120__function_type_infoE, _ZTVN10__cxxabiv117__array_type_infoE,
                      _ZTVN10__cxxabiv129__pointer_to_member_type_infoE}) {
    if (vtable == known + 16) return true;
  }
  return false;
}

bool is_kind_of(objc_object* object, const char* name) {
  objc_class* const wanted = objc_lookUpClass(name);
  objc_class* c = nullptr;
  if (object) memcpy(&c, object, sizeof c);
  while (c && c != wanted) c = class_getSuperclass(c);
  return c != nullptr;
}

bool has_class_clause(const ExceptionTables& tables) {
  for (const uint8_t* at = tables.first_action(); at;) {
    const Action action = ExceptionTables::action_at(at);
    if (action.filter > 0) {
      const uintptr_t type = tables.type(action.filter);
      if (type && !is_type_info(type)) return true;
    }
    at = action.next;
  }
  return false;
}

bool catches(uintptr_t type, const ObjcException& exception) {
  return !type || (!is_type_info(type) && is_kind_of(exception.value, reinterpret_cast<const char*>(type)));
}

// The caught C++ object, as the clause sees it, or null.
void* caught(uintptr_t type, CppException* record, bool dependent) {
  if (type && !is_type_info(type)) return nullptr;
  void* object = record + 1;
  std::type_info* thrown = record->type;
  if (dependent) {  // of a std::exception_ptr: the record holds a pointer to the first one's object
    memcpy(&object, record, sizeof object);
    thrown = (static_cast<CppException*>(object) - 1)->type;
  }
  if (thrown->__is_pointer_p()) memcpy(&object, object, sizeof object);
  if (!type) return object;
  return reinterpret_cast<std::type_info*>(type)->__do_catch(thrown, &object, 1) ? object : nullptr;
}

_Unwind_Reason_Code search(const ExceptionTables& tables, _Unwind_Exception_Class kind,
                           _Unwind_Exception* unwind) {
  for (const uint8_t* at = tables.first_action(); at;) {
    const Action action = ExceptionTables::action_at(at);
    at = action.next;
    if (action.filter <= 0) continue;
    const uintptr_t type = tables.type(action.filter);
    if (kind == kObjectiveC) {
      auto* const exception = reinterpret_cast<ObjcException*>(unwind);
      if (!catches(type, *exception)) continue;
      exception->landing_pad = tables.landing_pad();
      exception->filter = static_cast<int>(action.filter);
      return _URC_HANDLER_FOUND;
    }
    if (kind >> 8 != kCpp >> 8) continue;
    CppException* const record = cpp_record(unwind);
    void* const object = caught(type, record, kind & 1);
    if (!object) continue;
    record->filter = static_cast<int>(action.filter);
    record->action = tables.first_action();
    record->tables = tables.begin();
    record->landing_pad = tables.landing_pad();
    record->adjusted = object;
    return _URC_HANDLER_FOUND;
  }
  return _URC_CONTINUE_UNWIND;
}

bool has_cleanup(const ExceptionTables& tables) {
  if (!tables.first_action()) return true;
  for (const uint8_t* at = tables.first_action(); at;) {
    const Action action = ExceptionTables::action_at(at);
    if (action.filter == 0) return true;
    at = action.next;
  }
  return false;
}

_Unwind_Reason_Code enter(_Unwind_Context* context, uintptr_t pad, uintptr_t first, uintptr_t second) {
  _Unwind_SetGR(context, __builtin_eh_return_data_regno(0), first);
  _Unwind_SetGR(context, __builtin_eh_return_data_regno(1), second);
  _Unwind_SetIP(context, pad);
  return _URC_INSTALL_CONTEXT;
}

void free_record(_Unwind_Reason_Code, _Unwind_Exception* unwind) { free(unwind); }

}  // namespace

extern "C" _Unwind_Reason_Code __gnu_objc_personality_v0(int version, _Unwind_Action actions,
                                                         _Unwind_Exception_Class kind,
                                                         _Unwind_Exception* unwind,
                                                         _Unwind_Context* context) {
  if (actions & _UA_HANDLER_FRAME) entered_with = unwind;
  const ExceptionTables tables(context);
  if (!tables.present()) return _URC_CONTINUE_UNWIND;
  const bool known = kind == kObjectiveC || kind >> 8 == kCpp >> 8;
  if (!tables.landing_pad() && !known) return _URC_CONTINUE_UNWIND;
  if (!tables.landing_pad() || !has_class_clause(tables)) {
    return __gxx_personality_v0(version, actions, kind, unwind, context);
  }
  if (actions & _UA_SEARCH_PHASE) return search(tables, kind, unwind);
  if (!(actions & _UA_HANDLER_FRAME)) {
    if (!has_cleanup(tables)) return _URC_CONTINUE_UNWIND;
    return enter(context, tables.landing_pad(), reinterpret_cast<uintptr_t>(unwind), 0);
  }
  if (kind == kObjectiveC) {  // its handler is given the object itself, so the record ends here
    const ObjcException exception = *reinterpret_cast<ObjcException*>(unwind);
    entered_with = nullptr;
    free(unwind);
    return enter(context, exception.landing_pad, reinterpret_cast<uintptr_t>(exception.value),
                 static_cast<uintptr_t>(exception.filter));
  }
  const CppException* const record = cpp_record(unwind);
  return enter(context, record->landing_pad, reinterpret_cast<uintptr_t>(unwind),
               static_cast<uintptr_t>(record->filter));
}

// libobjc's record, but made here, so that the two halves cannot drift apart.
extern "C" void objc_exception_throw(objc_object* object) {
  if (reinterpret_cast<void*>(object) == entered_with) {
    _Unwind_Resume_or_Rethrow(entered_with);
    abort();
  }
  auto* const exception = static_cast<ObjcException*>(calloc(1, sizeof(ObjcException)));
  if (!exception) abort();
  exception->unwind.exception_class = kObjectiveC;
  exception->unwind.exception_cleanup = free_record;
  exception->value = object;
  _Unwind_RaiseException(&exception->unwind);
  fprintf(stderr, "*** Terminating app due to uncaught exception (Objective-C object %p)\n",
          static_cast<void*>(object));
  abort();
}

# Writes a ctest entry for every case of a doctest program; run after linking (hearth_test in targets.cmake).
#   cmake -D PROGRAM=... -D RUN_BY=... -D NAME=... -D LABEL=... -D TIMEOUT=... -D FIXTURE=... -D OUT=... -P doctest_cases.cmake
# doctest's own doctest_discover_tests cuts names at ";": such a case became two entries that ran nothing and passed.
execute_process(COMMAND ${RUN_BY} ${PROGRAM} --list-test-cases OUTPUT_VARIABLE listed RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --list-test-cases: ${status}\n${listed}")
endif()
# A list of lines, whatever they hold.
string(REPLACE "[" "<open>" listed "${listed}")
string(REPLACE "]" "<close>" listed "${listed}")
string(REPLACE ";" "<semicolon>" listed "${listed}")
string(REPLACE "\n" ";" listed "${listed}")
set(script)
foreach(line IN LISTS listed)
  if(line MATCHES "^(=+|<open>doctest<close> .*)$" OR line STREQUAL "")
    continue()
  endif()
  string(REPLACE "<semicolon>" ";" line "${line}")
  string(REPLACE "<open>" "[" line "${line}")
  string(REPLACE "<close>" "]" line "${line}")
  string(REPLACE "," "\\," filter "${line}")  # a comma ends a filter
  set(run)
  foreach(word IN LISTS RUN_BY)
    string(APPEND run "[==[${word}]==] ")
  endforeach()
  string(APPEND script "add_test([==[${NAME}: ${line}]==] ${run}[==[${PROGRAM}]==] [==[--test-case=${filter}]==])\n"
    "set_tests_properties([==[${NAME}: ${line}]==] PROPERTIES LABELS [==[${LABEL}]==] TIMEOUT ${TIMEOUT}\n"
    # An entry whose filter matches no case fails.
    "  SKIP_REGULAR_EXPRESSION [==[\\[hearth-skip\\]]==] FAIL_REGULAR_EXPRESSION [==[test cases: +0 ]==]")
  if(FIXTURE)
    string(APPEND script "\n  FIXTURES_REQUIRED ${FIXTURE}")
  endif()
  string(APPEND script ")\n")
endforeach()
file(WRITE "${OUT}" "${script}")

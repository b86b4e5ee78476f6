# pagewise_folder(NAME DEPS folder... LINK target...): one static library pagewise_NAME from the folder's *.cc,
# and one test program pagewise_NAME_test from its *_test.cc. Sub-folders belong to their folder. A main.cc belongs
# to a program and a *_testing.cc to test programs, not to the library.
function(pagewise_folder name)
  cmake_parse_arguments(ARG "" "" "DEPS;LINK;TEST_DEPS;TEST_LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_testing|/main)\\.cc$")
  list(TRANSFORM ARG_DEPS PREPEND pagewise_)
  list(TRANSFORM ARG_TEST_DEPS PREPEND pagewise_)
  if(sources)
    add_library(pagewise_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(pagewise_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(pagewise_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(pagewise_${name} ${scope} ${ARG_DEPS} ${ARG_LINK} Threads::Threads)
  if(PAGEWISE_TESTS AND tests)
    add_executable(pagewise_${name}_test ${tests})
    target_link_libraries(pagewise_${name}_test PRIVATE
      pagewise_${name} ${ARG_TEST_DEPS} ${ARG_TEST_LINK} rapidcheck GTest::gtest GTest::gtest_main)
    target_compile_definitions(pagewise_${name}_test PRIVATE
      PAGEWISE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    # One ctest entry a program: its own report names each case, and start-up (a model load) is paid once.
    add_dependencies(unit_tests pagewise_${name}_test)
    add_test(NAME ${name} COMMAND pagewise_${name}_test)
  endif()
endfunction()

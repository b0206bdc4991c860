// The one translation unit that compiles Boost.JSON, which every room above uses by its headers.
#include <boost/json/src.hpp>

// The only translation unit that compiles Boost.JSON; all others include only its headers.
#include <boost/json/src.hpp>

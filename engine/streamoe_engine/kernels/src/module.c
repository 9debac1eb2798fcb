/* Makes the library a Python module, so that it installs, is found and is removed like one. It has no members: the
 * functions are reached through ctypes, which lets go of the interpreter's lock. */
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }

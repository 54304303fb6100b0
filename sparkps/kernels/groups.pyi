# Nothing here is for Python: kernels cimport it.

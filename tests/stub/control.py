"""Controls the stub driver in this process: the lengths of launches, the function that runs them, the time."""

import ctypes

_LIBRARY = ctypes.CDLL("libcuda.so.1")
_LIBRARY.km_stub_now.restype = _LIBRARY.km_stub_emulating.restype = ctypes.c_longlong


class Launch(ctypes.Structure):
    """A launch as the driver passes it on; `args` are the addresses of the parameters' bytes."""

    _fields_ = (
        ("entry", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("cooperative", ctypes.c_int),
        ("count", ctypes.c_int),
        ("args", ctypes.POINTER(ctypes.c_void_p)),
        ("sizes", ctypes.POINTER(ctypes.c_size_t)),
    )

    def parameters(self):
        return [ctypes.string_at(self.args[i], self.sizes[i]) for i in range(self.count)]


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch))
_callbacks = []  # kept here, since the driver holds no reference


def run_launches_with(run):
    """Pass every launch to `run` when its turn comes; `run` returns the driver's status, 0 for success."""
    _callbacks[:] = [_Callback(lambda launch: run(launch.contents))]
    _LIBRARY.km_stub_on_launch(_callbacks[0])


def launches_take(nanoseconds):
    _LIBRARY.km_stub_length(ctypes.c_longlong(nanoseconds))


def host_takes(nanoseconds):
    _LIBRARY.km_stub_host_cost(ctypes.c_longlong(nanoseconds))


def note(text):
    _LIBRARY.km_stub_note(text.encode())


def now_ns():
    return int(_LIBRARY.km_stub_now())


def emulating_s():
    return int(_LIBRARY.km_stub_emulating()) * 1e-9


def allocation(address):
    """Return the start and the size of the allocation that contains an address, or None."""
    base, size = ctypes.c_size_t(), ctypes.c_size_t()
    is_allocated = _LIBRARY.km_stub_allocation(ctypes.c_size_t(address), ctypes.byref(base), ctypes.byref(size))
    return (base.value, size.value) if is_allocated else None

//go:build cuda

package engine

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// dlerror is per thread, so the error is read in the same call.
static void *open_library(const char *path, const char **error) {
	void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!library) *error = dlerror();
	return library;
}

// Functions of NVIDIA's driver. They are not linked, because a machine may lack the driver.
typedef struct {
	int found, version, status, devices;
	const char *text;
} driver_state;

static driver_state ask_driver(void *library) {
	driver_state s = {0};
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
	int (*version)(int *) = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
	int (*count)(int *) = (int (*)(int *))dlsym(library, "cuDeviceGetCount");
	int (*text)(int, const char **) = (int (*)(int, const char **))dlsym(library, "cuGetErrorString");
	if (!init || !version || !count) return s;
	s.found = 1;
	version(&s.version);
	s.status = init(0);
	if (!s.status) s.status = count(&s.devices);
	if (s.status && text) text(s.status, &s.text);
	return s;
}
*/
import "C"

import (
	"errors"
	"runtime"
	"unsafe"
)

// open loads a shared library, which stays loaded until the process ends.
func open(path string) (unsafe.Pointer, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	runtime.LockOSThread() // which owns the error text
	defer runtime.UnlockOSThread()
	var text *C.char
	if handle := C.open_library(name, &text); handle != nil {
		return handle, nil
	}
	return nil, errors.New(C.GoString(text))
}

func loadLibrary(path string) error {
	_, err := open(path)
	return err
}

// askDriver initializes NVIDIA's driver in this process and returns its state.
func askDriver() driverState {
	library, err := open("libcuda.so.1")
	if err != nil {
		return driverState{Missing: err.Error()}
	}
	s := C.ask_driver(library)
	if s.found == 0 {
		return driverState{Missing: "it has no cuInit"}
	}
	state := driverState{Version: int(s.version), Status: int(s.status), Devices: int(s.devices)}
	if s.text != nil {
		state.Text = C.GoString(s.text)
	}
	return state
}

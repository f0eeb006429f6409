//go:build cuda

package engine

// #include <stdint.h>
// #include <stddef.h>
import "C"

import (
	"fmt"
	"runtime/cgo"
	"time"
	"unsafe"
)

// PJRT error codes.
const (
	deadlineExceeded = 4
	notFound         = 5
	unavailable      = 14
)

// cageGet returns the value of a key to a PJRT client. It waits up to the given number of
// milliseconds until the key is set. The client frees the returned value.
//
//export cageGet
func cageGet(
	processes C.uintptr_t, key *C.char, keySize C.size_t, milliseconds C.int64_t,
	value **C.char, valueSize *C.size_t, message **C.char,
) C.int {
	p, name := cgo.Handle(processes).Value().(Processes), C.GoStringN(key, C.int(keySize))
	got, found, err := p.Get(name, time.Duration(milliseconds)*time.Millisecond)
	switch {
	case err != nil:
		*message = C.CString(err.Error())
		return unavailable
	case !found && milliseconds == 0:
		*message = C.CString(fmt.Sprintf("there is no key %q", name))
		return notFound
	case !found:
		text := fmt.Sprintf("no process has set the key %q within %d ms", name, milliseconds)
		*message = C.CString(text)
		return deadlineExceeded
	}
	*value, *valueSize = (*C.char)(C.CBytes(got)), C.size_t(len(got))
	return 0
}

// cagePut sets the value of a key for a PJRT client.
//
//export cagePut
func cagePut(
	processes C.uintptr_t, key *C.char, keySize C.size_t, value *C.char, valueSize C.size_t,
	message **C.char,
) C.int {
	p, name := cgo.Handle(processes).Value().(Processes), C.GoStringN(key, C.int(keySize))
	if err := p.Put(name, C.GoBytes(unsafe.Pointer(value), C.int(valueSize))); err != nil {
		*message = C.CString(err.Error())
		return unavailable
	}
	return 0
}

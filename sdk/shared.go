package sdk

import (
	"fmt"
	"math"
	"unsafe"
)

// sharedMemory is memory shared by the host and the plugin: a file that is mapped twice, read-only
// and writable. Tensors that the plugin must not change are in the read-only mapping, so that a
// mistaken write faults at the author's line instead of corrupting the result.
type sharedMemory struct{ read, write []byte }

func (m *sharedMemory) protects(address uintptr) bool {
	if m == nil || len(m.read) == 0 {
		return false
	}
	first := uintptr(unsafe.Pointer(&m.read[0]))
	return address >= first && address < first+uintptr(len(m.read))
}

func floats(memory []byte, at uint64, n int) ([]float32, error) {
	size := uint64(len(memory))
	if at%4 != 0 || n < 0 || n > math.MaxInt/4 || at > size || uint64(n)*4 > size-at {
		return nil, fmt.Errorf("%d floats at offset %d are not within its %d bytes", n, at, size)
	}
	if n == 0 {
		return nil, nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&memory[at])), n), nil
}

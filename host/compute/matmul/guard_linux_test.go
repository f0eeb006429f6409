package matmul

import (
	"syscall"
	"testing"
	"unsafe"
)

// guarded returns n zeros that end at an inaccessible page or, if front is set, begin after one.
func guarded[T any](t testing.TB, n int, front bool) []T {
	t.Helper()
	var zero T
	page := syscall.Getpagesize()
	size := n * int(unsafe.Sizeof(zero))
	room := (size + page - 1) / page * page
	memory, err := syscall.Mmap(-1, 0, room+2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(memory); err != nil {
			t.Error(err)
		}
	})
	for _, at := range []int{0, page + room} {
		if err := syscall.Mprotect(memory[at:at+page], syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	at := page
	if !front {
		at += room - size
	}
	if n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&memory[at])), n)
}

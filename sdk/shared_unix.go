//go:build unix

package sdk

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
)

// openShared maps the first size bytes of a file, read-only and writable.
func openShared(path string, size uint64) (*sharedMemory, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || size == 0 || size > math.MaxInt || uint64(info.Size()) < size {
		return nil, errors.Join(err, fmt.Errorf("%s has fewer than %d bytes", path, size))
	}
	m := &sharedMemory{}
	mapped := func(protection int) ([]byte, error) {
		return syscall.Mmap(int(f.Fd()), 0, int(size), protection, syscall.MAP_SHARED)
	}
	if m.read, err = mapped(syscall.PROT_READ); err == nil {
		m.write, err = mapped(syscall.PROT_READ | syscall.PROT_WRITE)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map %s: %w", path, err), m.close())
	}
	return m, nil
}

// close unmaps the memory; slices of it must not be used afterwards.
func (m *sharedMemory) close() error {
	var errs []error
	for _, part := range [][]byte{m.read, m.write} {
		if part != nil {
			errs = append(errs, syscall.Munmap(part))
		}
	}
	m.read, m.write = nil, nil
	return errors.Join(errs...)
}

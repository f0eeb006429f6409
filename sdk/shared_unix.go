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
	if info, err := f.Stat(); err != nil || size == 0 || size > math.MaxInt || uint64(info.Size()) < size {
		return nil, errors.Join(err, fmt.Errorf("%s does not have %d bytes", path, size))
	}
	m := &sharedMemory{}
	if m.read, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED); err == nil {
		m.write, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
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

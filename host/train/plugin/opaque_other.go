//go:build !linux

package plugin

import (
	"errors"
	"os"
)

// sharedMemory is not implemented on this system, where a plugin could truncate the file, and the
// next access to the mapped memory would raise a signal.
type sharedMemory struct{ file *os.File }

func newSharedMemory(int64) (*sharedMemory, error) {
	return nil, errors.New("opaque optimizers and quantizers that search need Linux: " +
		"other systems have no shared memory that a plugin cannot truncate")
}

func (*sharedMemory) path() string { return "" }

func (*sharedMemory) close() {}

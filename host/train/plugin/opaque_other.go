//go:build !linux

package plugin

import (
	"errors"
	"os"
)

// sharedMemory is not implemented on this system: a process that maps a file which another process
// shrinks would be killed at its next access.
type sharedMemory struct{ file *os.File }

func newSharedMemory(int64) (*sharedMemory, error) {
	return nil, errors.New("opaque optimizers and searches of quantizers need Linux: " +
		"other systems have no shared memory that a plugin cannot truncate")
}

func (*sharedMemory) path() string { return "" }

func (*sharedMemory) close() {}

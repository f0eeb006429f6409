//go:build !linux

package plugin

import (
	"errors"
	"os"
)

// sharedMemory is memory that a plugin maps: there is none here. A plugin that maps a file which
// another process makes shorter would end at its next access.
type sharedMemory struct{ file *os.File }

func newSharedMemory(int64) (*sharedMemory, error) {
	return nil, errors.New("opaque optimizers and searches of quantizers need Linux: elsewhere there is no memory that a plugin can share and cannot make shorter")
}

func (*sharedMemory) path() string { return "" }

func (*sharedMemory) close() {}

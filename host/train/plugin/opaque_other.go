//go:build !linux

package plugin

import "errors"

// sharedMemory is memory that a plugin maps, too: there is none here. A file that a plugin could make shorter
// would let it end the host.
type sharedMemory struct{ data []byte }

func newSharedMemory(int64) (*sharedMemory, error) {
	return nil, errors.New("opaque optimizers and searches of quantizers need Linux: elsewhere there is no memory that a plugin can share and cannot make shorter")
}

func (*sharedMemory) path() string { return "" }

func (*sharedMemory) close() {}

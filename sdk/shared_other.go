//go:build !unix

package sdk

import "errors"

func openShared(string, uint64) (*sharedMemory, error) {
	return nil, errors.New("memory cannot be shared on this system")
}

func (m *sharedMemory) close() error { return nil }

//go:build !unix

package shared

import "errors"

// Open fails: this system has no mapped files of the kind that is needed.
func Open(string, uint64) (*Memory, error) {
	return nil, errors.New("memory cannot be shared on this system")
}

// Close does nothing.
func (m *Memory) Close() error { return nil }

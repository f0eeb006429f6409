package safetensors_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// large makes a file of that size that begins with some bytes; the rest takes no room on a disk.
func large(t *testing.T, path string, start []byte, size int64) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, start, 0o644), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
}

// TestLimits: headers and indices that are larger than any are refused before they are decoded.
func TestLimits(t *testing.T) {
	const limit = 100_000_000
	dir := t.TempDir()
	single := filepath.Join(dir, safetensors.SingleName)
	for _, over := range []int64{0, 1} {
		large(t, single, binary.LittleEndian.AppendUint64(nil, uint64(limit+over)), 2*limit)
		_, err := safetensors.Open(vfs.At(single))
		if !errors.Is(err, safetensors.ErrFormat) || strings.Contains(err.Error(), "at most 100000000") != (over > 0) {
			t.Errorf("a header of %d bytes: %v", limit+over, err)
		}
	}
	if err := os.Remove(single); err != nil {
		t.Fatal(err)
	}
	for _, over := range []int64{0, 1} {
		large(t, filepath.Join(dir, safetensors.IndexName), nil, limit+over)
		_, err := safetensors.OpenShards(vfs.At(dir))
		if !errors.Is(err, safetensors.ErrFormat) || strings.Contains(err.Error(), "larger than 100000000 bytes") != (over > 0) {
			t.Errorf("an index of %d bytes: %v", limit+over, err)
		}
	}
}

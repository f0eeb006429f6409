package safetensors_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/effort"
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
	effort.Long(t, "a header of 100 MB")
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
		large(t, filepath.Join(dir, safetensors.IndexName), nil, limit/2+over)
		_, err := safetensors.OpenShards(vfs.At(dir))
		if !errors.Is(err, safetensors.ErrFormat) || strings.Contains(err.Error(), "larger than 50000000 bytes") != (over > 0) {
			t.Errorf("an index of %d bytes: %v", limit/2+over, err)
		}
	}
}

// TestIndexLimits: an index with more names or files than any checkpoint has is refused before it takes much memory, and
// before thousands of files are looked for.
func TestIndexLimits(t *testing.T) {
	effort.Long(t, "indices of millions of names")
	dir := t.TempDir()
	for _, c := range []struct {
		names, files int
		want         string
		most         uint64 // bytes that may be allocated
	}{
		{500_000, 10_000, "there is no file f0, which weight_map names", 1 << 30},
		{500_001, 1, "about 500003 names, want at most 500000", 100 << 20},
		{2_000_000, 2_000_000, "about 2000002 names, want at most 500000", 400 << 20},
		{10_001, 10_001, "10001 files, want at most 10000", 100 << 20},
	} {
		text := []byte(`{"metadata":{},"weight_map":{`)
		if c.names == 500_000 {
			text, c.names = []byte(`{"weight_map":{`), c.names-1
		}
		for i := range c.names {
			text = fmt.Appendf(text, "\"%d\":\"f%d\",", i, i%c.files)
		}
		text = append(text[:len(text)-1], "}}"...)
		if err := os.WriteFile(filepath.Join(dir, safetensors.IndexName), text, 0o644); err != nil {
			t.Fatal(err)
		}
		var m [2]runtime.MemStats
		runtime.ReadMemStats(&m[0])
		_, err := safetensors.OpenShards(vfs.At(dir))
		runtime.ReadMemStats(&m[1])
		if !errors.Is(err, safetensors.ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d names of %d files: %v", c.names, c.files, err)
		}
		if used := m[1].TotalAlloc - m[0].TotalAlloc; used > c.most {
			t.Errorf("%d names of %d files: %d bytes were allocated, want at most %d", c.names, c.files, used, c.most)
		}
	}
}

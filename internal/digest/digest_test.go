package digest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"runtime"
	"sync/atomic"
	"testing"
)

// TestNew checks that digests equal those of crypto/sha256, however the data is divided into
// writes.
func TestNew(t *testing.T) {
	data := make([]byte, 3*piece+1)
	for i := range data {
		data[i] = byte(i * i / 7)
	}
	for _, n := range []int{0, 1, 63, 64, piece - 1, piece, piece + 1, len(data)} {
		h, want := New(), sha256.Sum256(data[:n])
		for _, part := range [][]byte{data[:n/3], data[n/3 : n]} {
			if k, err := h.Write(part); k != len(part) || err != nil {
				t.Fatalf("Write of %d bytes returned %d, %v", len(part), k, err)
			}
		}
		if got := h.Sum(nil); !bytes.Equal(got, want[:]) {
			t.Errorf("the digest of %d bytes is %x, want %x", n, got, want)
		}
		if got, err := Of(bytes.NewReader(data[:n])); got != fmt.Sprintf("%x", want) || err != nil {
			t.Errorf("Of %d bytes is %s, %v, want %x", n, got, err, want)
		}
		h.Reset()
		h.Write(data[:n])
		if got := h.Sum([]byte{7}); !bytes.Equal(got[1:], want[:]) || got[0] != 7 {
			t.Errorf("after Reset the digest of %d bytes is %x, want 07%x", n, got, want)
		}
	}
}

// BenchmarkBesidePreempted hashes one megabyte at a time, with crypto/sha256 and with this package.
// It shares a single processor with a goroutine that never waits and is therefore preempted often.
func BenchmarkBesidePreempted(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var done atomic.Bool
	defer done.Store(true)
	go func() {
		for x := uint64(1); !done.Load(); x++ {
		}
	}()
	data := make([]byte, 1<<20)
	b.Run("crypto", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			sha256.Sum256(data)
		}
	})
	b.Run("digest", func(b *testing.B) {
		h := New()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			h.Write(data)
		}
	})
}

// TestNamed checks that the digest depends on names and hashes, but not on their order.
func TestNamed(t *testing.T) {
	programs := map[string]string{"weight x: quantize": "1", "optimizer of x: update": "1f"}
	a := Named(programs)
	if a == "" || a != Named(maps.Clone(programs)) {
		t.Errorf("digest %q", a)
	}
	if b := Named(map[string]string{"optimizer of x: update": "1",
		"weight x: quantize": "1f"}); b == a {
		t.Error("two sets of programs with one digest")
	}
	if Named(nil) != "" {
		t.Error("no programs have a digest")
	}
}

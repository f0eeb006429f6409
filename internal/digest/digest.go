// Package digest is SHA-256 of large files, at the speed that the processor has.
//
// In programs built with GOEXPERIMENT=simd, Go 1.27 gives a goroutine that was preempted all
// of its vector registers back, and leaves their upper halves in use. crypto/sha256 mixes
// the two kinds of vector instructions, and with those halves in use each change between
// them costs many cycles: hashing takes a hundred times as long, and so it stays on that
// thread until somebody clears them. Here that is done before each piece.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
)

// piece is what is hashed at once, in bytes: in less than a tenth of a millisecond.
const piece = 64 << 10

// Named is a short digest of hashes by their names; empty without any.
func Named(hashes map[string]string) string {
	if len(hashes) == 0 {
		return ""
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(hashes)) {
		fmt.Fprintf(h, "%q %s\n", name, hashes[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// New is [sha256.New] for much data: the same digests.
func New() hash.Hash { return pieces{sha256.New()} }

type pieces struct{ hash.Hash }

func (p pieces) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), piece)
		clearUpperHalves()
		p.Hash.Write(rest[:n]) // never fails
		rest = rest[n:]
	}
	return len(data), nil
}

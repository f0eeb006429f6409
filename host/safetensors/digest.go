package safetensors

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// DigestKey is the metadata entry that holds the SHA-256 of a file, in
// hexadecimal: of the whole file as written, with zeros ('0') in the place of
// the digest itself. Write adds it, Read and File.Verify check it. A program
// that changes such a file must remove the entry.
const DigestKey = "content_sha256"

// noDigest stands in the digest's place while the digest is computed.
var noDigest = strings.Repeat("0", sha256.Size*2)

// digestOf returns the digest that metadata states, "" for none.
func digestOf(metadata map[string]string) (string, error) {
	digest, ok := metadata[DigestKey]
	if !ok {
		return "", nil
	}
	if len(digest) != len(noDigest) || strings.Trim(digest, "0123456789abcdef") != "" {
		return "", fmt.Errorf("metadata: %s is %q, want %d lower-case hexadecimal digits", DigestKey, digest, len(noDigest))
	}
	return digest, nil
}

// headerHash begins a file's hash: it takes in the header's length and text,
// with zeros in the place of the digest.
func headerHash(head []byte, digest string) (hash.Hash, error) {
	if bytes.Count(head, []byte(digest)) != 1 {
		return nil, fmt.Errorf("metadata: the text of %s does not stand exactly once in the header", DigestKey)
	}
	sum := sha256.New()
	sum.Write(bytes.Replace(head, []byte(digest), []byte(noDigest), 1))
	return sum, nil
}

// checkDigest compares a finished hash with the digest that a file states.
func checkDigest(sum hash.Hash, digest string) error {
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("%w: the content hashes to %s, but its writer recorded %s", ErrChecksum, got, digest)
	}
	return nil
}
